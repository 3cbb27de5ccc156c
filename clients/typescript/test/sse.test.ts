import assert from "node:assert/strict"
import { test } from "node:test"
import fc from "fast-check"
import { type SseEvent, SseParser } from "../src/index.ts"
import { SseTooLarge } from "../src/sse.ts"

const bytes = (text: string) => new TextEncoder().encode(text)

function parse(text: string): SseEvent[] {
  return new SseParser().push(bytes(text))
}

test("the parser follows the standard", () => {
  for (const [name, text, want] of [
    ["an event", "data: a\n\n", [{ name: "", data: "a", id: "" }]],
    ["an id alone", "id: 41\n\n", [{ name: "", data: "", id: "41" }]],
    ["a name, an id and two lines", "event: x\nid: 7\ndata: a\ndata: b\n\n", [{ name: "x", data: "a\nb", id: "7" }]],
    ["the id stays, the name does not", "id: 7\nevent: x\ndata: a\n\ndata: b\n\n", [{ name: "x", data: "a", id: "7" }, { name: "", data: "b", id: "7" }]],
    ["one space is removed", "data:  a\n\ndata:b\n\n", [{ name: "", data: " a", id: "" }, { name: "", data: "b", id: "" }]],
    ["a field without a colon", "data\n\n", [{ name: "", data: "", id: "" }]],
    ["comments, unknown fields and a name alone", ": hi\nretry: 5\nother: x\n\nevent: x\n\ndata: a\n\n", [{ name: "", data: "a", id: "" }]],
    ["a byte order mark", "\uFEFFdata: a\n\n", [{ name: "", data: "a", id: "" }]],
    ["carriage returns", "data: a\r\rdata: b\r\n\r\n", [{ name: "", data: "a", id: "" }, { name: "", data: "b", id: "" }]],
    ["an id with U+0000 is ignored", "id: a\0b\ndata: x\n\n", [{ name: "", data: "x", id: "" }]],
    ["an event without an end is not complete", "data: a\n", []],
    ["a line separator is no end of a line", "data: a\u2028b\n\n", [{ name: "", data: "a\u2028b", id: "" }]],
  ] as const) assert.deepEqual(parse(text), want, name)
})

test("any division into pieces gives the same events", () => {
  const line = fc.oneof(
    fc.constantFrom("", "data", "data: x", "id: 9", "event: e", ": c", "id", "\uFEFFdata: y"),
    fc.string({ unit: "grapheme" }).map((s) => `data: ${s.replace(/[\r\n]/g, "")}`),
  )
  const text = fc.array(fc.tuple(line, fc.constantFrom("\n", "\r", "\r\n"))).map((lines) => lines.flat().join(""))
  fc.assert(fc.property(text, fc.array(fc.nat()), (text, cuts) => {
    const all = bytes(text)
    const at = [...new Set(cuts.map((c) => c % (all.length + 1)))].sort((a, b) => a - b)
    const parser = new SseParser(), events: SseEvent[] = []
    for (let i = 0, from = 0; i <= at.length; from = at[i++] ?? 0) events.push(...parser.push(all.slice(from, at[i] ?? all.length)))
    assert.deepEqual(events, parse(text))
  }), { numRuns: 2000 })
})

test("an event has a bound, a stream has none", () => {
  const parser = new SseParser(1000)
  for (let i = 0; i < 100; i++) parser.push(bytes(`: ${"c".repeat(900)}\ndata: ${"x".repeat(500)}\n\n`))
  assert.throws(() => { for (let i = 0; i < 100; i++) parser.push(bytes("x".repeat(100))) }, SseTooLarge)
})

test("a long line in many pieces costs no more than its length", () => {
  const parser = new SseParser(), began = performance.now()
  parser.push(bytes("data: "))
  for (let i = 0; i < 200_000; i++) parser.push(bytes("0123456789"))
  const [event] = parser.push(bytes("\n\n"))
  assert.equal(event?.data.length, 2_000_000)
  assert.ok(performance.now() - began < 5_000)
})
