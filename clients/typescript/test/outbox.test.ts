import assert from "node:assert/strict"
import { test } from "node:test"
import { Loquat, memoryStorage, Outbox, type OutboxEntry, type OutboxStorage, textStorage, type Topic, writeAhead } from "../src/index.ts"
import { Locks } from "./locks.ts"
import { until } from "./server.ts"

/** A server that keeps sends by their request_id, as the real one does. */
class FakeServer {
  sends: { session: string; id: string; content: string }[] = []
  sessions: string[] = []
  cancelled: string[] = []
  down = false
  /** How many calls are done whose answers are lost. */
  loses = 0
  refuses: string[] = []
  /** The status of answers to calls that are done, as of a proxy that gave up; 0: the real one. */
  fails = 0
  /** What answers wait for. */
  held: Promise<void> | undefined
  /** What If-Match of a send that is new has to name. */
  checkpoint = ""
  /** Whether a session has to be created before a send. */
  strict = false

  client(): Loquat {
    return new Loquat({ baseURL: "http://server.example", fetch: async (input, init) => this.#answer(new URL(input).pathname, init) })
  }

  async #answer(path: string, init: RequestInit): Promise<Response> {
    await new Promise((resolve) => setTimeout(resolve, 1))
    if (this.down) throw new TypeError("fetch failed")
    const body = typeof init.body === "string" ? JSON.parse(init.body) : {} // an image
    const [, kind, id, act] = path.split("/")
    const problem = (status: number, code: string) => new Response(JSON.stringify({ status, code, detail: code }), { status, headers: { "Content-Type": "application/problem+json" } })
    if (act === "cancel") {
      if (!this.sends.some((s) => s.id === id)) return problem(404, "not_found")
      this.cancelled.push(id!)
    } else if (kind === "requests") {
      if (!this.sends.some((s) => s.id === id)) return problem(404, "not_found")
    } else if (kind === "sessions" && !id) {
      if (this.sessions.includes(body.session_id)) return problem(409, "conflict")
      if (this.refuses.includes(body.send?.content)) return problem(422, "invalid")
      this.sessions.push(body.session_id)
      if (body.send) this.sends.push({ session: body.session_id, id: body.send.request_id, content: body.send.content })
    } else if (act === "send") {
      if (!this.sessions.includes(id!) && this.strict) return problem(404, "not_found")
      if (this.refuses.includes(body.content)) return problem(422, "invalid")
      if (!this.sends.some((s) => s.id === body.request_id)) {
        const match = new Headers(init.headers).get("If-Match")
        if (match && match !== `"${this.checkpoint}"`) return problem(412, "precondition_failed")
        this.sends.push({ session: id!, id: body.request_id, content: body.content })
      }
    }
    if (this.loses-- > 0) throw new TypeError("the answer was lost")
    if (this.fails) return new Response("", { status: this.fails })
    await this.held
    return new Response(JSON.stringify({ request_id: body.request_id, session_id: id, status: "running", cursor_event_id: "0000000000000005" }))
  }

  get texts(): string[] { return this.sends.map((s) => s.content) }
}

/** A browser's storage of texts. A full one refuses to write. */
function textMap(full = false): Parameters<typeof textStorage>[1] {
  const map = new Map<string, string>()
  return {
    get length() { return map.size },
    key: (i) => [...map.keys()][i] ?? null,
    getItem: (k) => map.get(k) ?? null,
    setItem: (k, v) => {
      if (full) throw new Error("full")
      map.set(k, v)
    },
    removeItem: (k) => void map.delete(k),
  }
}

test("sends arrive once and in order, over lost answers, a reload and a second tab", async () => {
  const server = new FakeServer(), storage = textMap(), locks = new Locks()
  const open = () => new Outbox(server.client(), { storage: textStorage("o", storage), locks, name: "once" })
  server.down = true
  let outbox = open()
  const first = await outbox.addSession({ metadata: { a: 1 } }, { content: "1" })
  await outbox.add(first.sessionId, { content: "2" })
  await until("an attempt fails", () => outbox.get()[0]?.error)
  assert.equal(outbox.get()[0]?.error?.code, "connection")
  outbox.close() // the page is reloaded
  server.down = false
  server.loses = 3
  outbox = open()
  const other = open()
  await other.ready
  await other.add(first.sessionId, { content: "3" })
  await until("all have arrived", () => server.sends.length === 3 && [outbox, other].every((o) => o.get().every((e) => e.status === "sent")))
  assert.deepEqual([server.texts, server.sessions], [["1", "2", "3"], [first.sessionId]])
  const state = { session: { session_id: first.sessionId }, cursor: "0000000000000005" } as never
  for (const o of [outbox, other]) {
    o.settle(state)
    assert.deepEqual(o.get(), [])
    o.close()
  }
  const again = open()
  await again.ready
  assert.deepEqual(again.get(), [])
  again.close()
})

test("a send goes out as soon as it is stored, and waits for no other write", async () => {
  const { http } = new FakeServer().client(), inner = textStorage("o", textMap()), never = new Promise<never>(() => {})
  const log: string[] = []
  const client = new Loquat({ baseURL: http.baseURL, fetch: (input, init) => {
    log.push(new URL(input).pathname)
    return http.fetch(input, init)
  } })
  let store = () => {}
  const first = new Promise<void>((resolve) => { store = resolve })
  const put = async (entry: OutboxEntry) => {
    await (log.push("put") === 1 ? first : never)
    await inner.put(entry)
    log.push("stored")
  }
  const outbox = new Outbox(client, { storage: { ...inner, put, get: () => never }, locks: new Locks(), name: "soon" })
  const added = outbox.addSession({}, { content: "1" })
  await until("it is being stored", () => log.length === 1)
  store()
  const { sessionId } = await added
  await until("it arrives", () => outbox.get()[0]?.status === "sent")
  assert.deepEqual(log, ["put", "stored", "/sessions"], "a session is created with its send")
  const cursor = outbox.created(sessionId)?.cursor_event_id
  assert.equal(cursor, "0000000000000005", "the session can be followed from the answer")
  outbox.settle({ session: { session_id: sessionId }, cursor } as never)
  assert.equal(outbox.created(sessionId), undefined)
  outbox.close()
})

test("a session that the server refuses with its first send is created with the next", async () => {
  const server = Object.assign(new FakeServer(), { refuses: ["bad"], strict: true }), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), locks: new Locks(), name: "next" })
  const first = await outbox.addSession({ metadata: { a: 1 } }, { content: "bad" })
  await outbox.add(first.sessionId, { content: "good" })
  await until("it is refused", () => outbox.get()[0]?.status === "failed")
  assert.deepEqual([server.sessions, server.texts], [[], []])
  await outbox.withdraw(first.id)
  await until("the next arrives", () => outbox.get()[0]?.status === "sent")
  assert.deepEqual([server.sessions, server.texts], [[first.sessionId], ["good"]])
  outbox.close()
})

test("a send with images goes out after they are uploaded to its new session", async () => {
  const server = Object.assign(new FakeServer(), { strict: true }), outbox = new Outbox(server.client(), { storage: memoryStorage(), locks: new Locks(), name: "image" })
  const { sessionId } = await outbox.addSession({}, { content: "1" }, { files: [{ image: new Blob(["x"]), name: "x.png" }] })
  await until("it arrives", () => outbox.get()[0]?.status === "sent")
  assert.deepEqual([server.sessions, server.texts], [[sessionId], ["1"]])
  outbox.close()
})

test("a send that cannot be stored is not sent", async () => {
  const server = new FakeServer(), inner = textStorage("o", textMap())
  const put = (entry: OutboxEntry) => (entry.send.content === "large" ? Promise.reject(new Error("full")) : inner.put(entry))
  const outbox = new Outbox(server.client(), { storage: { ...inner, put }, locks: new Locks(), name: "full" })
  await assert.rejects(outbox.add("s", { content: "large" }), /full/)
  await outbox.add("s", { content: "small" })
  await until("the other one arrives", () => outbox.get()[0]?.status === "sent")
  assert.deepEqual([server.texts, outbox.get().length], [["small"], 1])
  outbox.close()
})

test("a send waits for no other tab, and is cancelled in its turn if it is withdrawn", async () => {
  const server = new FakeServer(), locks = new Locks(), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), locks, name: "turn" })
  let end = () => {}
  void locks.request("loquat-outbox:turn:s", {}, () => new Promise<void>((resolve) => { end = resolve }))
  server.loses = 1
  const entry = await outbox.add("s", { content: "1" })
  await until("the answer is lost", () => outbox.of("s")[0]?.error)
  assert.equal(await outbox.withdraw(entry.id), true)
  outbox.retryNow()
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.deepEqual([server.texts, server.cancelled], [["1"], []], "the next attempt waits for its turn")
  end()
  await until("it is gone", () => outbox.get().length === 0)
  assert.deepEqual(server.cancelled, [entry.id])
  outbox.close()
})

const queued = (id: string, more: Partial<OutboxEntry> = {}): OutboxEntry => ({ id, sessionId: "s", order: id, send: { content: id }, status: "queued", ...more })
const seen = async (storage: OutboxStorage) => (await storage.all()).map((e) => `${e.id} ${e.status}`)

test("entries of two tabs and of other outboxes stand side by side in a storage of texts", async () => {
  const texts = textMap(), tabs = [textStorage("n", texts), textStorage("n", texts)] as const, other = textStorage("n:8080", texts)
  await Promise.all([tabs[0].put(queued("a")), tabs[1].put(queued("b")), other.put(queued("c"))])
  texts.setItem("n:odd", "{")
  for (const tab of tabs) assert.deepEqual(await seen(tab), ["a queued", "b queued"])
  assert.deepEqual(await seen(other), ["c queued"])
  await assert.rejects(tabs[0].put(queued("d", { files: [{ image: new Blob() }] })), /keeps no images/)
})

test("an entry is kept ahead until the slower storage has it, and a reload finds it in either", async () => {
  const kept = memoryStorage(), ahead = textStorage("n", textMap())
  let store = () => {}, last: Promise<unknown> = new Promise<void>((resolve) => { store = resolve })
  const inTurn = (act: () => Promise<void>) => (last = last.then(act)) as Promise<void>
  const slow = { ...kept, put: (e: OutboxEntry) => inTurn(() => kept.put(e)), delete: (id: string) => inTurn(() => kept.delete(id)) }
  const storage = writeAhead(ahead, slow), again = writeAhead(ahead, kept)
  await storage.put(queued("a"))
  await storage.put(queued("b"))
  await storage.put(queued("b", { status: "sending" }))
  let waits = true
  const image = storage.put(queued("image", { files: [{ image: new Blob(["x"]) }] })).then(() => { waits = false })
  assert.deepEqual(await seen(again), ["a queued", "b sending"])
  assert.deepEqual([await again.get("a"), await again.get("image"), waits], [queued("a"), undefined, true])
  const deleted = storage.delete("a")
  await storage.put(queued("c"))
  const twice = [storage.delete("c"), storage.put(queued("c", { status: "failed" }))] // in this order
  await kept.put(queued("b"))
  assert.deepEqual(await seen(again), ["b sending", "c failed"], "what is ahead is newer")
  store()
  await Promise.all([image, deleted, ...twice])
  await until("nothing is ahead", async () => (await ahead.all()).length === 0)
  assert.deepEqual(await seen(kept), ["b sending", "image queued", "c failed"])
})

test("no entry is missed that is written, or moves, while all are read", async () => {
  const kept = memoryStorage(), ahead = textStorage("n", textMap())
  let read = () => {}
  const slowly = new Promise<void>((resolve) => { read = resolve })
  const storage = writeAhead(ahead, { ...kept, all: async () => { const found = await kept.all(); await slowly; return found }, put: () => new Promise(() => {}) })
  await storage.put(queued("moves"))
  const all = seen(storage)
  await new Promise((resolve) => setTimeout(resolve, 1))
  await ahead.delete("moves") // another tab has stored it
  await storage.put(queued("written"))
  read()
  assert.deepEqual(await all, ["moves queued", "written queued"])
})

test("a storage that is full, and one that stores nothing", async () => {
  const kept = memoryStorage(), full = writeAhead(textStorage("n", textMap(true)), kept)
  await full.put(queued("a"))
  assert.deepEqual(await seen(kept), ["a queued"])
  const ahead = textStorage("n", textMap()), broken = writeAhead(ahead, { ...kept, put: () => Promise.reject(new Error("broken")) })
  await broken.put(queued("b"))
  await new Promise((resolve) => setTimeout(resolve, 5))
  assert.deepEqual(await seen(ahead), ["b queued"], "it is lost where nothing else has it")
})

test("nothing is sent, and nothing is cancelled, before it is known whose entries they are", async () => {
  const server = new FakeServer(), texts = textMap(), options = { storage: textStorage("o", texts), locks: new Locks(), name: "whose" }
  const before = new Outbox(server.client(), options)
  before.wait(new Promise(() => {}))
  await before.add("s", { content: "kept" })
  const taken = await before.add("s", { content: "taken back" })
  before.close()
  let known = () => {}
  const outbox = new Outbox(server.client(), options)
  outbox.wait(new Promise<void>((resolve) => (known = resolve)))
  await outbox.ready
  await outbox.withdraw(taken.id)
  outbox.retryNow()
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.deepEqual([server.texts, outbox.of("s").length], [[], 1])
  known()
  await until("it is sent", () => server.sends.length > 0)
  await until("the answer is here", () => outbox.of("s").every(({ status }) => status === "sent"))
  assert.deepEqual(server.texts, ["kept"])
  outbox.close()
})

test("nothing is sent while it is not known who has signed in again, whatever was waiting", async () => {
  const server = new FakeServer(), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), name: "again" })
  await outbox.ready
  let known = () => {}
  outbox.wait(new Promise<void>((resolve) => (known = resolve)))
  await outbox.add("s", { content: "of ann" })
  const first = known
  outbox.wait(new Promise<void>((resolve) => (known = resolve))) // another 401
  first()
  outbox.retryNow()
  await new Promise((resolve) => setTimeout(resolve, 20))
  assert.deepEqual(server.texts, [])
  known()
  await until("it is sent", () => server.sends.length > 0)
  outbox.close()
})

test("a send is taken out when the session shows it before the send is answered", async () => {
  const server = new FakeServer(), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), name: "early" })
  outbox.settle({ session: { session_id: "s" }, cursor: "0000000000000009" } as never)
  await outbox.add("s", { content: "1" })
  await outbox.add("other", { content: "2" })
  await until("both have arrived", () => server.sends.length === 2 && outbox.get().every((e) => e.status === "sent"))
  assert.deepEqual(outbox.get().map((e) => e.sessionId), ["other"])
  outbox.close()
})

test("withdraw and edit, before an attempt and after one", async () => {
  const server = new FakeServer(), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), name: "edit" })
  server.refuses = ["bad"]
  const bad = await outbox.add("s", { content: "bad" })
  const waits = await outbox.add("s", { content: "waits" })
  await until("it fails", () => outbox.get()[0]?.status === "failed")
  await outbox.edit(waits.id, { content: "waited" })
  const gone = await outbox.add("s", { content: "gone" })
  assert.equal(await outbox.withdraw(gone.id), true)
  assert.deepEqual(server.texts, [], "one that failed keeps the others back")
  await outbox.edit(bad.id, { content: "good" })
  await until("they arrive", () => server.sends.length === 2 && outbox.get().every((e) => e.status === "sent"))
  assert.deepEqual(server.texts, ["good", "waited"])
  assert.equal(await outbox.withdraw(bad.id), false, "the server has it")

  server.loses = 1 // the send arrives and the answer does not
  const unknown = await outbox.add("t", { content: "unknown" })
  await until("the answer is lost", () => outbox.of("t")[0]?.error)
  server.down = true
  await outbox.withdraw(unknown.id)
  assert.deepEqual(outbox.of("t"), [])
  server.down = false
  outbox.retryNow()
  await until("it is cancelled", () => server.cancelled.includes(unknown.id) || outbox.get().every((e) => e.id !== unknown.id || e.status === "sent"))
  outbox.close()
})

test("signing in again goes on", async () => {
  const server = new FakeServer()
  let signedIn = false
  const inner = server.client().http
  const client = new Loquat({ baseURL: "http://server.example", fetch: (i, init) => (signedIn ? inner.fetch(i, init) : Promise.resolve(new Response("{}", { status: 401 }))) })
  const outbox = new Outbox(client, { storage: textStorage("o", textMap()), name: "auth" })
  await outbox.add("s", { content: "x" })
  await until("it waits", () => outbox.get()[0]?.error?.code === "unauthorized")
  signedIn = true
  outbox.retryNow()
  await until("it arrives", () => server.texts.length === 1)
  outbox.close()
})

test("a session is followed from the snapshot of its creation, without another call", async () => {
  const client = new Loquat({ baseURL: "http://server.example", fetch: () => Promise.reject(new Error("a call")) })
  const followed: [Topic, string][] = []
  const log = { follow: (topic: Topic, since: string) => void followed.push([topic, since]) }
  const follower = client.followSession(log as never, "s", { session_id: "s", metadata: {}, messages: [], cursor_event_id: "0000000000000005" } as never)
  await until("it is ready", () => follower.get().status === "ready")
  assert.deepEqual(followed, [[{ session: "s" }, "0000000000000005"]])
})

/** gate returns a promise and what resolves it. */
function gate(): [Promise<void>, () => void] {
  let open = () => {}
  return [new Promise<void>((resolve) => { open = resolve }), () => open()]
}

const soon = () => new Promise((resolve) => setTimeout(resolve, 5))

test("what is cleared while it is being sent does not come back, for example as a send of the next user", async () => {
  for (const lost of [false, true]) {
    const server = new FakeServer(), storage = textStorage("o", textMap()), [held, open] = gate()
    server.held = held
    const outbox = new Outbox(server.client(), { storage, name: "cleared" })
    await outbox.add("s", { content: "of the first user" })
    await until("it is on its way", () => server.texts.length === 1)
    server.held = undefined
    await outbox.clear()
    server.down = lost
    server.sends = []
    if (lost) server.fails = 401
    open()
    await soon()
    server.down = false
    server.fails = 0
    outbox.retryNow()
    await soon()
    assert.deepEqual([outbox.get().filter((e) => e.status !== "sent"), await storage.all(), server.texts], [[], [], []])
    outbox.close()
  }
})

test("a send that arrived is sent, also if the storage cannot forget it", async () => {
  const server = new FakeServer(), inner = textStorage("o", textMap())
  const outbox = new Outbox(server.client(), { storage: { ...inner, delete: () => Promise.reject(new Error("broken")) }, name: "forget" })
  await outbox.add("s", { content: "x" })
  await until("it is answered", () => outbox.get()[0]?.status === "sent" || outbox.get()[0]?.error)
  assert.equal(outbox.get()[0]?.status, "sent")
  outbox.close()
})

test("a refusal after an attempt without an answer does not mean that the server has not got the send", async () => {
  const server = new FakeServer(), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), name: "unsure" })
  server.fails = 524 // a proxy gave up, and the server has it
  const first = await outbox.add("s", { content: "first" })
  await until("it fails", () => outbox.get()[0]?.status === "failed")
  server.fails = 0
  const changed = await outbox.edit(first.id, { content: "changed" })
  assert.notEqual(changed?.id, first.id)
  await until("the first is cancelled, and the other arrives", () => server.cancelled.includes(first.id) && server.texts.at(-1) === "changed")
  server.fails = 524
  const second = await outbox.add("t", { content: "second" })
  await until("it fails", () => outbox.of("t")[0]?.status === "failed")
  await outbox.withdraw(second.id)
  await until("the cancel is tried", () => server.cancelled.includes(second.id))
  server.fails = 0
  outbox.retryNow()
  await until("nothing is left", () => outbox.get().every((e) => e.status === "sent"))
  outbox.close()
})

test("a send for one state of its session is refused in another, also after a reload, and repeats after a lost answer", async () => {
  const server = new FakeServer(), storage = textMap()
  const open = () => new Outbox(server.client(), { storage: textStorage("o", storage), locks: new Locks(), name: "match" })
  server.checkpoint = "0000000000000004"
  server.down = true
  const before = open()
  await before.add("s", { delete_from: 1, keep: true }, { ifMatch: "0000000000000004" })
  await before.add("t", { delete_from: 1, keep: true }, { ifMatch: "0000000000000003" })
  await until("they wait", () => before.get().every((e) => e.error))
  before.close()
  server.down = false
  server.loses = 1
  const outbox = open()
  await until("one has arrived, and the other is refused", () => outbox.of("s").every((e) => e.status === "sent") && outbox.of("t")[0]?.status === "failed")
  assert.deepEqual([server.sends.map((s) => s.session), outbox.of("t")[0]!.error?.code], [["s"], "precondition_failed"])
  outbox.close()
})

test("a withdrawal during the attempt is not lost, and happens once", async () => {
  for (const act of ["withdraw", "edit"] as const) {
    const server = new FakeServer(), inner = textStorage("o", textMap()), [held, answer] = gate(), [stored, store] = gate()
    server.held = held
    const put = async (entry: OutboxEntry) => {
      if (entry.withdrawn && act === "withdraw") await stored
      await inner.put(entry)
    }
    const outbox = new Outbox(server.client(), { storage: { ...inner, put }, name: act })
    const { id } = await outbox.add("s", { content: "old" })
    await until("it is on its way", () => server.texts.length === 1)
    const done = act === "withdraw" ? outbox.withdraw(id) : outbox.edit(id, { content: "new" })
    if (act === "withdraw") assert.equal(await outbox.withdraw(id), false, "it is being withdrawn")
    server.held = undefined
    answer()
    await soon()
    store()
    assert.ok(await done)
    await until("it is cancelled", () => server.cancelled.includes(id))
    await until("the rest has arrived", () => outbox.get().every((e) => e.status === "sent"))
    assert.deepEqual(server.texts, act === "withdraw" ? ["old"] : ["old", "new"])
    outbox.close()
  }
})

test("one failure of the storage keeps nothing back and hides nothing", async () => {
  const server = new FakeServer(), inner = textStorage("o", textMap())
  let failures = 1
  const get = (id: string) => (failures-- > 0 ? Promise.reject(new Error("broken")) : inner.get(id))
  const outbox = new Outbox(server.client(), { storage: { ...inner, get }, name: "storage" })
  server.down = true
  await outbox.add("s", { content: "1" })
  await until("an attempt fails", () => failures <= 0)
  server.down = false
  outbox.retryNow()
  await until("it arrives", () => server.texts.length === 1)
  outbox.close()

  let broken = false
  server.down = true
  const all = () => (broken ? Promise.reject(new Error("broken")) : inner.all())
  const tab = new Outbox(server.client(), { storage: { ...inner, all }, name: "hides" })
  const other = new Outbox(server.client(), { storage: inner, name: "hides" })
  await tab.add("s", { content: "2" })
  await until("both have it", () => other.get().length === 1)
  broken = true
  await other.add("t", { content: "3" })
  await soon()
  assert.deepEqual(tab.get().map((e) => e.send.content), ["2"])
  tab.close()
  other.close()
})

test("sends keep their order when the clock is set back", async () => {
  const server = new FakeServer(), storage = textStorage("o", textMap())
  server.down = true
  let outbox = new Outbox(server.client(), { storage, name: "clock" })
  await outbox.add("s", { content: "1" })
  const order = outbox.get()[0]!.order
  outbox.close()
  await storage.put({ ...(await storage.all())[0]!, order: `f${order}` }) // as from a clock far ahead
  server.down = false
  outbox = new Outbox(server.client(), { storage, name: "clock" })
  await outbox.add("s", { content: "2" })
  await until("both have arrived", () => server.texts.length === 2)
  assert.deepEqual(server.texts, ["1", "2"])
  outbox.close()
})

test("a send after a withdrawn one creates the session", async () => {
  const server = new FakeServer(), outbox = new Outbox(server.client(), { storage: textStorage("o", textMap()), name: "creates" })
  server.strict = server.down = true
  const first = await outbox.addSession({}, { content: "A" })
  await until("an attempt fails", () => outbox.get()[0]?.error)
  await outbox.withdraw(first.id)
  await outbox.add(first.sessionId, { content: "B" })
  server.down = false
  outbox.retryNow()
  await until("it arrives", () => server.texts.length === 1)
  assert.deepEqual([server.texts, server.sessions], [["B"], [first.sessionId]])
  outbox.close()
})

test("of two loads of a session the newer one counts, and is followed once", async () => {
  const answers: ((snapshot: object) => void)[] = []
  const client = new Loquat({ baseURL: "http://server.example", fetch: () => new Promise((resolve) => answers.push((snapshot) => resolve(Response.json(snapshot)))) })
  const open = new Set<string>()
  const log = { follow: (_: Topic, since: string) => (open.add(since), () => open.delete(since)), report: () => {} }
  const follower = client.followSession(log as never, "s")
  await until("the first is asked for", () => answers.length === 1)
  follower.reload()
  await until("the second is asked for", () => answers.length === 2)
  const snapshot = (cursor_event_id: string) => ({ session_id: "s", metadata: {}, messages: [], cursor_event_id })
  answers[1]!(snapshot("0000000000000009"))
  await until("it is ready", () => follower.get().status === "ready")
  answers[0]!(snapshot("0000000000000005"))
  await soon()
  assert.deepEqual([follower.get().state?.cursor, [...open]], ["0000000000000009", ["0000000000000009"]])
  follower.close()
  assert.equal(open.size, 0)
})
