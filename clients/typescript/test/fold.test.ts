import assert from "node:assert/strict"
import { test } from "node:test"
import { type LogEvent, type SessionState, type Snapshot, addPage, fold, foldList, fromPage, fromSnapshot, toolCallsOf } from "../src/index.ts"

const now = "2026-01-01T00:00:00Z"
const snapshot: Snapshot = {
  session_id: "s", agent_id: "a", created_at: now, updated_at: now, metadata: {}, cursor_event_id: "0000000000000100",
  messages: [{ id: "m0", role: "user", content: "hi", created_at: now }],
}

let id = 100
const event = (type: string, fields: object = {}, session = "s") => ({ event_id: String(++id).padStart(16, "0"), type, session_id: session, ...fields }) as unknown as LogEvent
const after = (events: LogEvent[], from: SessionState = fromSnapshot(snapshot)) => events.reduce(fold, from)
const partial = (content: string, metadata?: object) => event("partial", { request_id: "r", message: { role: "assistant", content, metadata } })
const started = (request_id = "r", more = {}) => event("request_started", { request_id, stream: true, ...more })
const completed = (request_id = "r") => event("request_completed", { request_id })
const message = (id: string, more = {}) => ({ id, role: "assistant", content: id, created_at: now, ...more })

test("what did not change keeps its identity", () => {
  const first = after([started(), partial("a")])
  const next = after([partial("b", { reasoning_content: "x" })], first)
  assert.equal(next.messages, first.messages)
  assert.equal(next.session, first.session)
  assert.equal(next.tools, first.tools)
  assert.deepEqual([first.draft?.content, next.draft?.content, next.draft?.reasoning], ["a", "ab", "x"])
  const final = after([event("final", { request_id: "r", messages: [message("m1")] })], next)
  assert.equal(final.messages[0], first.messages[0])
  assert.equal(final.draft, undefined)
  assert.equal(fold(final, event("later_type")).messages, final.messages)
  assert.equal(fold(final, event("partial", {}, "other")), final)
})

test("4,000 increments cost about 4,000 times one, also behind 10,000 messages", (t) => {
  const long = fromSnapshot({ ...snapshot, messages: Array.from({ length: 10_000 }, (_, i) => message(`x${i}`)) as never })
  const time = (n: number) => {
    const events = [started(), ...Array.from({ length: n }, () => partial("12345"))]
    const began = process.cpuUsage()
    const state = events.reduce(fold, { ...long, cursor: "0" })
    assert.equal(state.draft?.content.length, 5 * n)
    const { user, system } = process.cpuUsage(began) // other programs do not count
    return (user + system) / 1000
  }
  time(1000)
  const few = Math.min(time(4_000), time(4_000)), many = time(40_000)
  t.diagnostic(`4,000 increments: ${few.toFixed(1)} ms; 40,000: ${many.toFixed(1)} ms`)
  assert.ok(many < 40 * few + 100, "the time grows faster than the number of increments")
})

test("the request: running, retry, error, cancelled, steered", () => {
  let s = after([started()])
  assert.deepEqual(s.request, { requestId: "r", status: "running" })
  s = after([event("retry_scheduled", { request_id: "r", attempt: 1, cause: "status", status: 503, delay_seconds: 2, resume_at: now })], s)
  assert.equal(s.request?.retry?.status, 503)
  s = after([partial("x")], s)
  assert.equal(s.request?.retry, undefined)
  const failed = after([event("error", { request_id: "r", detail: "no" }), completed()], s)
  assert.deepEqual([failed.request, failed.draft], [{ requestId: "r", status: "failed", error: "no" }, undefined])
  assert.equal(after([event("request_cancelled", { request_id: "r" }), completed()], s).request?.status, "cancelled")
  assert.equal(after([completed()], s).request?.status, "completed")
  const steered = after([started("q", { steered_into: "r" }), completed("q")], s)
  assert.deepEqual([steered.request?.requestId, steered.request?.status, steered.draft?.content], ["r", "running", "x"])
  assert.equal(fromSnapshot({ ...snapshot, active_request_id: "z" }).request?.status, "running")
  const ended = fromSnapshot({ ...snapshot, last_request: { request_id: "z", status: "failed", error: "why" } })
  assert.deepEqual(ended.request, { requestId: "z", status: "failed", error: "why" })
})

test("tools: output, results and names that are no names", () => {
  const call = (id: string) => ({ id, type: "function", function: { name: "f", arguments: "{}" } })
  const ids = ["c1", "constructor", "__proto__"]
  let s = after([started(), event("final", { request_id: "r", messages: [message("m1", { metadata: { tool_calls: ids.map(call) } })] }), event("tool_calls", { request_id: "r", tool_calls: ids.map(call) })])
  for (const tool_call_id of ids) {
    s = after([event("tool_partial", { request_id: "r", tool_call_id, phase: "stream", payload: { part: "a", progress: 1, total: 3 } }), event("tool_partial", { request_id: "r", tool_call_id, phase: "stream", payload: { part: "b", progress: 2 } })], s)
  }
  s = after([event("tool_partial", { request_id: "r", tool_call_id: "none", phase: "stream", payload: { part: "x" } })], s)
  assert.deepEqual(toolCallsOf(s, 1).map(({ run }) => [run?.output, run?.progress, run?.total]), [["ab", 2, 3], ["ab", 2, 3], ["ab", 2, 3]])
  s = after([event("tool_results", { request_id: "r", messages: ids.map((i) => message(`t-${i}`, { role: "tool", metadata: { tool_call_id: i } })) })], s)
  assert.deepEqual([Object.keys(s.tools), toolCallsOf(s, 1).map(({ run, result }) => [run, result?.id])], [[], ids.map((i) => [undefined, `t-${i}`])])
  assert.deepEqual(after([event("final", { request_id: "r", messages: [message("m1", { metadata: { tool_calls: ["x", null, 1] } })] })]).messages.length, 2)
})

test("the queue", () => {
  const queue = [{ request_id: "q1" }, { request_id: "q2" }]
  let s = after([event("queue_changed", { queue })])
  assert.equal(s.queue.length, 2)
  s = after([started("q1")], s)
  assert.deepEqual(s.queue.map((q) => q.request_id), ["q2"])
  assert.equal(after([event("queue_changed", { queue_omitted: true })], s).queueOmitted, true)
  assert.deepEqual(after([event("queue_changed", { queue: [] })], s).queue, [])
})

test("the list: sessions that changed at the same time are in the order of their events", () => {
  const summary = (session_id: string) => ({ session_id, agent_id: "a", created_at: now, updated_at: now, metadata: {}, message_count: 1, cursor_event_id: "0000000000000001" })
  let list = fromPage({ sessions: [summary("b"), summary("a")] }, {}, "0")
  for (const [i, id] of ["b", "a"].entries()) list = foldList(list, { ...event("checkpoint", { timestamp: "2026-01-01T00:00:09.5Z" }, id), event_id: `000000000000000${i + 2}` } as LogEvent)
  assert.deepEqual(list.sessions.map((s) => s.session_id), ["a", "b"])
})

test("an import keeps the time of the last change, in the list and in the session", () => {
  const summary = { session_id: "a", agent_id: "a", created_at: now, updated_at: now, metadata: {}, message_count: 1, cursor_event_id: "0000000000000001" }
  const old = "2020-05-05T00:00:00Z", timestamp = "2026-02-02T00:00:00Z", imported = event("checkpoint", { timestamp, updated_at: old })
  const events = [event("session_created", { agent_id: "a", created_at: old }), imported]
  const list = events.reduce(foldList, fromPage({ sessions: [summary] }, {}, "0"))
  assert.deepEqual(list.sessions.map((s) => [s.session_id, s.updated_at]), [["a", now], ["s", old]])
  const state = after([imported])
  assert.equal(state.session.updated_at, old)
  assert.equal(after([event("checkpoint", { timestamp })], state).session.updated_at, timestamp)
})

test("the list: a page that is older than the events of a session does not bring it back as it was", () => {
  const summary = (session_id: string, more = {}) => ({ session_id, agent_id: "a", created_at: now, updated_at: now, metadata: {}, message_count: 1, cursor_event_id: "0000000000000001", ...more })
  let list = fromPage({ sessions: [summary("a")] }, {}, "0"), seen = ""
  const take = (type: string) => { list = foldList(list, event(type, { request_id: "r", timestamp: now }, "z")); seen = list.cursor }
  take("request_started")
  const before = { sessions: [summary("z", { active_request_id: "r" }), summary("a")], next_page_token: "t", cursor_event_id: seen }
  take("request_completed")
  for (const first of [false, true]) { // it may be the page that comes for other changes, or the next one
    list = addPage(list, before, first)
    assert.deepEqual([list.sessions.map((s) => s.session_id), [...list.unknown]], [["a"], [["z", seen]]])
  }
  list = addPage(list, { sessions: [summary("z"), summary("a")], cursor_event_id: seen }, true)
  assert.deepEqual([list.sessions.find((s) => s.session_id === "z"), list.unknown.size], [summary("z"), 0])
})

test("the list: order, filters, unknown and deleted sessions, pages that overlap", () => {
  const summary = (session_id: string, second: number, metadata = {}, cursor = 1) => ({
    session_id, agent_id: "a", created_at: now, updated_at: `2026-01-01T00:00:${String(second).padStart(2, "0")}.5Z`, metadata, message_count: 1, cursor_event_id: String(cursor).padStart(16, "0"),
  })
  const ids = (s: { sessions: readonly { session_id: string }[] }) => s.sessions.map((x) => x.session_id).join(" ")
  const checkpoint = (session: string, second: string, more = {}) => event("checkpoint", { timestamp: `2026-01-01T00:00:${second}Z`, ...more }, session)
  let list = fromPage({ sessions: [summary("c", 3), summary("b", 2), summary("a", 1)], next_page_token: "t" }, {}, "0")
  list = foldList(list, checkpoint("a", "04", { message_count: 7 }))
  assert.deepEqual([ids(list), list.sessions[0]!.message_count], ["a c b", 7])
  list = foldList(list, checkpoint("b", "04.0000001", { metadata: { pinned: true } }))
  assert.equal(ids(list), "b a c")
  list = foldList(list, checkpoint("c", "04.05"))
  assert.equal(ids(list), "b c a")
  list = foldList(list, checkpoint("b", "05", { metadata: { archived: true } }))
  assert.equal(ids(list), "c a")
  list = foldList(list, checkpoint("z", "06"))
  assert.deepEqual([...list.unknown.keys()], ["z"])
  list = foldList(list, event("session_deleted", {}, "a"))
  list = addPage(list, { sessions: [summary("z", 6), summary("a", 1), summary("c", 9, {}, 0)], next_page_token: "t" }, true)
  assert.deepEqual([ids(list), list.unknown.size, list.next], ["z c", 0, "t"])
  list = foldList(list, event("session_created", { agent_id: "a", created_at: "2026-01-01T00:00:07Z" }, "n"))
  assert.equal(ids(list), "n z c")
  list = foldList(list, event("request_started", { request_id: "r" }, "n"))
  assert.equal(list.sessions[0]!.active_request_id, "r")
  list = foldList(list, event("request_completed", { request_id: "r" }, "n"))
  assert.equal("active_request_id" in list.sessions[0]!, false)
})
