import assert from "node:assert/strict"
import { test } from "node:test"
import { type UIMessage, type UIMessageChunk, readUIMessageStream } from "ai"
import { type LogEvent, type Message, type SessionState, type Snapshot, fold, fromSnapshot } from "../src/index.ts"
import { TurnWriter } from "../src/ui-turn.ts"
import { shapeOf } from "./chat.ts"

const question: Message = { id: "q", role: "user", content: "?", created_at: "2026-01-01T00:00:00Z" }
const loaded = (messages: Message[]) => fromSnapshot({ session_id: "s", agent_id: "a", created_at: "", updated_at: "", metadata: {}, messages, cursor_event_id: "0000000000000001" } as Snapshot)
let last = 1
const event = (type: string, more: object) => ({ event_id: String(++last).padStart(16, "0"), session_id: "s", request_id: "r", type, ...more }) as LogEvent
const partial = (content: string, metadata = {}) => event("partial", { message: { role: "assistant", content, metadata } })
const final = (content: string, metadata = {}) => event("final", { messages: [{ id: "a", role: "assistant", content, metadata }] })

/** Returns the parts of the message that the steps make: an event, or messages that are loaded again. */
async function written(...steps: (LogEvent | Message[])[]): Promise<string[]> {
  const chunks: UIMessageChunk[] = []
  const writer = new TurnWriter("q", (chunk) => chunks.push(chunk))
  let state: SessionState = loaded([question])
  for (const step of steps) {
    state = Array.isArray(step) ? loaded(step) : fold(state, step)
    writer.update(state, Array.isArray(step) ? undefined : step)
  }
  writer.end()
  const stream = new ReadableStream<UIMessageChunk>({ start: (controller) => {
    for (const chunk of chunks) controller.enqueue(chunk)
    controller.close()
  } })
  let message: UIMessage | undefined
  for await (message of readUIMessageStream({ stream, terminateOnError: true }));
  return shapeOf(message)
}

test("a session that is loaded again begins the open step again", async () => {
  assert.deepEqual(await written(partial("one two"), [question], partial("one "), partial("two three"), final("one two three")), ["step-start", "text one two three"])
})

test("a final text other than the increments replaces them", async () => {
  assert.deepEqual(await written(partial("One two"), final("one two")), ["step-start", "text one two"])
  assert.deepEqual(await written(partial("one"), final("one two")), ["step-start", "text one two"])
})

test("reasoning after text is a part of its own, and the message has all of it", async () => {
  const parts = await written(partial("", { reasoning: "a" }), partial("x"), partial("", { reasoning: "b" }), partial("y"), final("xy", { reasoning: "ab" }))
  assert.deepEqual(parts, ["step-start", "reasoning a", "text xy", "reasoning b"])
})

test("a tool whose request ends has an error; arguments may be anything", async () => {
  const calls = [{ id: "__proto__", type: "function", function: { name: "f", arguments: "{not json" } }]
  assert.deepEqual(await written(final("", { tool_calls: calls }), event("tool_calls", { tool_calls: calls })), [
    "step-start", 'f "{not json" output-error The request ended before the tool did.',
  ])
})

test("a tool that reports has preliminary outputs, then its result", () => {
  const call = { id: "c", type: "function", function: { name: "f", arguments: "{}" } }
  const chunks: UIMessageChunk[] = [], writer = new TurnWriter("q", (chunk) => chunks.push(chunk))
  let state: SessionState = loaded([question])
  for (const e of [
    final("", { tool_calls: [call] }), event("tool_calls", { tool_calls: [call] }), event("tool_partial", { tool_call_id: "c", tool_name: "f", payload: { part: "half" } }),
    event("tool_results", { messages: [{ id: "t", role: "tool", content: "all", metadata: { tool_call_id: "c" } }] }),
  ]) writer.update(state = fold(state, e), e)
  const outputs = chunks.flatMap((c) => (c.type === "tool-output-available" ? [[c.output, c.preliminary === true]] : []))
  assert.deepEqual(outputs, [["half", true], ["all", false]])
})
