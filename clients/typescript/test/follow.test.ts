import assert from "node:assert/strict"
import { test } from "node:test"
import { type ConnectionState, type EventLog, type Listener, type LogEvent, Loquat, type Readable, type SessionSummary, type Topic } from "../src/index.ts"
import { until } from "./server.ts"

const now = "2026-01-01T00:00:00Z", id = (n: number) => String(n).padStart(16, "0")
const live: Readable<ConnectionState> = { get: () => ({ status: "live", transport: "stream", since: 0, retryAt: undefined, failures: 0, error: undefined }), subscribe: () => () => {} }

/** A log whose events a test makes. */
class FakeLog implements EventLog {
  readonly state = live
  #listener: Listener | undefined
  reports = 0
  follow(_topic: Topic, _since: string, listener: Listener): () => void {
    this.#listener = listener
    return () => { if (this.#listener === listener) this.#listener = undefined }
  }
  report(): void { this.reports++ }
  expectSession(): void {}
  retryNow(): void {}
  close(): void {}
  say(n: number, type: string, session: string, more: object = {}): void {
    this.#listener?.event({ event_id: id(n), type, session_id: session, timestamp: now, ...more } as unknown as LogEvent)
  }
}

/** A client of a server that answers by path; an answer of a number is a status. */
function client(answer: (url: URL) => object | number): { client: Loquat; calls: string[] } {
  const calls: string[] = []
  return { calls, client: new Loquat({ baseURL: "http://server.example", retries: 0, fetch: async (input) => {
    const url = new URL(input)
    calls.push(url.pathname + url.search)
    const made = answer(url)
    return typeof made === "number" ? new Response("", { status: made }) : Response.json(made)
  } }) }
}

test("a queue that an event left out is loaded again if it could not be loaded", async () => {
  let failures = 2
  const log = new FakeLog(), { client: loquat } = client(({ pathname }) => {
    if (!pathname.endsWith("/queue")) return { session_id: "s", agent_id: "a", created_at: now, updated_at: now, metadata: {}, messages: [], cursor_event_id: id(1) }
    return failures-- > 0 ? 503 : { session_id: "s", queue: [{ request_id: "q", message: { id: "m", role: "user", content: "waits", created_at: now } }] }
  })
  const follower = loquat.followSession(log, "s")
  await until("it is loaded", () => follower.get().status === "ready")
  log.say(2, "queue_changed", "s", { queue_omitted: true })
  await until("the queue is there", () => follower.get().state?.queue.length === 1)
  assert.equal(log.reports, 2)
  follower.close()
})

test("a list asks for what has changed behind its pinned sessions, and again if a page is older than the changes", async () => {
  const summary = (session_id: string, more: Partial<SessionSummary> = {}): SessionSummary => ({ session_id, agent_id: "a", created_at: now, updated_at: now, metadata: {}, message_count: 0, cursor_event_id: id(1), ...more })
  const pinned = Array.from({ length: 3 }, (_, i) => summary(`pinned-${i}`, { metadata: { pinned: true } }))
  let cursor = 1, others: SessionSummary[] = []
  const log = new FakeLog(), { client: loquat, calls } = client(({ searchParams }) => ({ sessions: [...pinned, ...others].slice(0, Number(searchParams.get("limit"))), cursor_event_id: id(cursor), next_page_token: "t" }))
  const follower = loquat.followList(log, { pageSize: 3 })
  await until("it is loaded", () => follower.get().status === "ready")
  for (const [i, name] of ["x", "y"].entries()) log.say(2 + i, "request_started", name, { request_id: name })
  log.say(4, "request_completed", "x", { request_id: "x" })
  cursor = 3 // the page has not got the last event yet
  others = [summary("x", { active_request_id: "x" }), summary("y", { active_request_id: "y" })]
  const shown = () => follower.get().list!.sessions.slice(3).map((s) => `${s.session_id} ${s.active_request_id}`)
  await until("what has not changed since is there", () => shown().length > 0)
  assert.deepEqual(shown(), ["y y"])
  cursor = 4
  others[0] = summary("x")
  await until("all is there", () => shown().length === 2)
  assert.deepEqual(shown().sort(), ["x undefined", "y y"])
  assert.deepEqual(calls.map((call) => call.replace(/.*limit=/, "")), ["3", "5", "4"])
  follower.close()
})

test("a list of which very much has changed at once begins again", async () => {
  const all = Array.from({ length: 300 }, (_, i) => ({ session_id: `s${i}`, agent_id: "a", created_at: now, updated_at: now, metadata: {}, message_count: 0, cursor_event_id: id(900) }))
  let cursor = 1
  const log = new FakeLog(), { client: loquat, calls } = client(({ searchParams }) => ({ sessions: cursor > 1 ? all.slice(0, Number(searchParams.get("limit"))) : [], cursor_event_id: id(cursor), ...(cursor > 1 ? { next_page_token: "of-the-new-order" } : {}) }))
  const follower = loquat.followList(log, { pageSize: 50 })
  await until("it is loaded", () => follower.get().status === "ready")
  cursor = 900
  for (let i = 0; i < 300; i++) log.say(2 + i, "checkpoint", `s${i}`)
  await until("the first page is there", () => follower.get().list!.sessions.length > 0)
  assert.deepEqual([follower.get().list!.next, follower.get().list!.unknown.size, calls.length], ["of-the-new-order", 0, 2])
  follower.close()
})
