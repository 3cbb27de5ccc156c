import assert from "node:assert/strict"
import { test } from "node:test"
import { type Connection, type ConnectionOptions, type ConnectionState, type LogEvent, Loquat } from "../src/index.ts"
import { until } from "./server.ts"

const eventId = (n: number) => String(n).padStart(16, "0")
const event = (n: number, session = "s", type = "checkpoint"): LogEvent => ({ event_id: eventId(n), type, session_id: session, timestamp: "" }) as LogEvent
const problem = (status: number, code: string, headers = {}) => new Response(JSON.stringify({ status, code, detail: code }), { status, headers: { "Content-Type": "application/problem+json", ...headers } })

/** A stream that stays open: what it sends comes in pieces. */
class Stream {
  #controller!: ReadableStreamDefaultController<Uint8Array>
  readonly response: Response

  constructor(signal: AbortSignal, text: string) {
    const body = new ReadableStream<Uint8Array>({ start: (c) => { this.#controller = c } })
    signal.addEventListener("abort", () => { try { this.#controller.error(signal.reason) } catch { /* it has ended */ } })
    this.response = new Response(body, { headers: { "Content-Type": "text/event-stream" } })
    this.send(text)
  }

  send(text: string): void { if (text) this.#controller.enqueue(new TextEncoder().encode(text)) }
  end(): void { this.#controller.close() }
}

const opening = (id: string) => `id: ${id}\n\n`
const frame = (e: LogEvent) => `id: ${e.event_id}\ndata: ${JSON.stringify(e)}\n\n`

interface Rig {
  log: Connection
  states: ConnectionState[]
  streams: Stream[]
  urls: URL[]
  seen: string[]
  gone: number
  /** Ends the following of the session that every connection begins with. */
  leave: () => void
}

/** The answer of a proxy that holds back the headers, too. */
const never = "never"

/** A connection to a server that answers as the test says. A stream that `answer` leaves out opens. */
function rigOf(answer: (url: URL, streams: number) => Response | Error | string | undefined, options: ConnectionOptions = {}): Rig {
  const rig = { states: [], streams: [], urls: [], seen: [], gone: 0 } as unknown as Rig
  const client = new Loquat({
    baseURL: "http://server.example", fetch: async (input, init) => {
      const url = new URL(input)
      rig.urls.push(url)
      const given = answer(url, rig.streams.length)
      if (given instanceof Error) throw given
      if (given instanceof Response) return given.clone()
      if (given === never) return new Promise((_, reject) => init.signal!.addEventListener("abort", () => reject(init.signal!.reason as Error)))
      const stream = new Stream(init.signal!, given ?? opening(url.searchParams.get("since_id") ?? "0"))
      rig.streams.push(stream)
      return stream.response
    },
  })
  rig.log = client.connect({ backoff: { first: 5, max: 20 }, ...options })
  rig.log.state.subscribe((s) => rig.states.push(s))
  rig.leave = follow(rig, "s", eventId(10))
  return rig
}

const follow = (rig: Rig, session: string, since: string) => rig.log.follow({ session }, since, {
  event: (e) => rig.seen.push(`${e.session_id}${Number(e.event_id)}`), gone: () => { rig.gone++ },
})
const status = (rig: Rig) => rig.log.state.get().status

test("401 stops the connection; retryNow goes on where it was", async () => {
  let signedIn = true
  const rig = rigOf(() => (signedIn ? undefined : problem(401, "unauthorized")))
  await until("it is live", () => status(rig) === "live")
  rig.streams[0]!.send(frame(event(11)))
  await until("the event comes", () => rig.seen.length === 1)
  signedIn = false
  rig.streams[0]!.end()
  await until("it stops", () => status(rig) === "stopped")
  assert.equal(rig.log.state.get().error?.code, "unauthorized")
  signedIn = true
  rig.log.retryNow()
  await until("it is live again", () => status(rig) === "live")
  assert.equal(rig.urls.at(-1)!.searchParams.get("since_id"), eventId(11))
  rig.log.close()
})

test("the state shows when the next attempt is, and Retry-After counts", async () => {
  let down = true
  const rig = rigOf(() => (down ? problem(503, "unavailable", { "Retry-After": "30" }) : undefined))
  await until("it waits", () => status(rig) === "waiting")
  const { retryAt, error } = rig.log.state.get()
  assert.ok(retryAt! - Date.now() > 25_000 && error?.code === "unavailable")
  down = false
  rig.log.retryNow()
  await until("it is live", () => status(rig) === "live")
  assert.equal(rig.log.state.get().failures, 0)
  rig.log.close()
})

test("silence is not live", async () => {
  const rig = rigOf((_, streams) => (streams > 0 ? new TypeError("refused") : undefined), { silence: 100 })
  await until("it is live", () => status(rig) === "live")
  for (let i = 0; i < 5; i++) {
    await new Promise((resolve) => setTimeout(resolve, 50))
    rig.streams[0]!.send("event: heartbeat\ndata: {}\n\n")
  }
  assert.equal(status(rig), "live")
  await until("it is not live any more", () => status(rig) === "waiting")
  rig.log.close()
})

test("a log without the next events: followers load snapshots", async () => {
  for (const answer of [problem(410, "gone"), 'event: gone\ndata: {"code": "gone", "detail": "removed"}\n\n']) {
    const rig = rigOf((url) => (url.pathname === "/events/stream" ? answer : undefined), { transport: "stream" })
    await until("the follower knows", () => rig.gone === 1)
    rig.log.close()
  }
})

test("a proxy that holds streams back, or has none: polling", async () => {
  for (const refusal of ["", never, new Response("<html>"), new Response("no", { status: 404 })]) {
    const polls: string[] = []
    const rig = rigOf((url) => {
      if (url.pathname === "/events/stream") return refusal
      polls.push(url.searchParams.get("since_id")!)
      return Response.json({ events: polls.length === 1 ? [event(11), event(12)] : [] })
    }, { openTimeout: 50, connectTimeout: 50, pollWait: 1 })
    await until("events come", () => rig.seen.length === 2)
    assert.deepEqual([status(rig), rig.log.state.get().transport, rig.seen.join(" ")], ["live", "poll", "s11 s12"])
    await until("it polls on", () => polls.length > 1)
    assert.equal(polls[1], eventId(12))
    const asked = rig.urls.length
    follow(rig, "t", eventId(12))
    await until("it polls for both", () => rig.urls.slice(asked).some((url) => url.searchParams.getAll("session_id").join().includes("t")))
    assert.ok(!rig.urls.slice(asked).some((url) => url.pathname === "/events/stream"), "another stream is tried for each session")
    rig.log.close()
  }
})

test("a follower that joins gets what came before, then what comes; the others lose nothing", async () => {
  const polled: string[] = []
  const rig = rigOf((url) => {
    if (url.pathname === "/events/stream") return undefined
    polled.push(`${url.searchParams.get("session_id")} ${url.searchParams.get("since_id")} ${url.searchParams.get("limit")}`)
    const since = url.searchParams.get("since_id")!
    // The session has events 5, 15 and, while it joins, 25: the connection stands at 20.
    const all = [5, 15, 25].map((n) => event(n, "t")).filter((e) => e.event_id > since)
    return Response.json({ events: all.slice(0, Number(url.searchParams.get("limit"))) })
  })
  await until("it is live", () => status(rig) === "live")
  rig.streams[0]!.send(frame(event(20)))
  await until("the event comes", () => rig.seen.length === 1)
  const leave = follow(rig, "t", eventId(1))
  await until("another stream opens", () => rig.streams.length === 2)
  assert.deepEqual([...rig.urls.findLast((u) => u.pathname === "/events/stream")!.searchParams.entries()].filter(([k]) => k !== "session").map(([, v]) => v).sort(), [eventId(20), "s,t"])
  rig.streams[1]!.send(frame(event(25, "t")) + frame(event(26)) + frame(event(26)))
  await until("all have come", () => rig.seen.length === 5)
  assert.deepEqual([...rig.seen].sort(), ["s20", "s26", "t15", "t25", "t5"])
  assert.deepEqual(rig.seen.filter((x) => x.startsWith("t")), ["t5", "t15", "t25"])
  leave()
  rig.streams[1]!.send(frame(event(27, "t")) + frame(event(28)))
  await until("the other goes on", () => rig.seen.at(-1) === "s28")
  assert.ok(!rig.seen.includes("t27"))
  assert.ok(polled.length < 8, polled.join(", "))
  rig.log.close()
})

test("a connection that follows the list starts again at a new session, so no poll has to catch up", async () => {
  const rig = rigOf((url) => {
    assert.equal(url.pathname, "/events/stream")
    return undefined
  })
  const listed: number[] = []
  rig.log.follow({ list: true }, eventId(10), { event: (e) => listed.push(Number(e.event_id)), gone: () => {} })
  await until("it is live", () => status(rig) === "live")
  rig.leave()
  rig.streams.at(-1)!.send(frame(event(20, "t", "session_created")) + frame(event(22, "t", "request_started")))
  await until("the list has them", () => listed.length === 2)
  follow(rig, "t", eventId(21))
  await until("another stream opens", () => rig.urls.at(-1)!.searchParams.get("since_id") === eventId(21))
  rig.streams.at(-1)!.send([event(22, "t", "request_started"), event(23, "t", "partial"), event(24, "t", "final")].map(frame).join(""))
  await until("all have come", () => rig.seen.length === 3)
  assert.deepEqual([rig.seen, listed], [["t22", "t23", "t24"], [20, 22, 24]])
  rig.log.close()
})

test("a session that was expected comes without another connection", async () => {
  const rig = rigOf(({ pathname }) => (pathname === "/events/stream" ? undefined : Response.json({ events: [] })))
  const filters = () => [...rig.urls.findLast((u) => u.pathname === "/events/stream")!.searchParams.keys()].sort().join()
  const listed: number[] = []
  rig.log.follow({ list: true }, eventId(10), { event: (e) => listed.push(Number(e.event_id)), gone: () => {} })
  await until("it is live", () => status(rig) === "live")
  const before = rig.streams.length
  rig.log.expectSession()
  rig.log.expectSession()
  await until("one connection gets all events", () => rig.streams.length === before + 1 && status(rig) === "live")
  assert.equal(filters(), "session,since_id")
  rig.streams.at(-1)!.send([event(20, "t", "session_created"), event(21, "t"), event(22, "t", "partial"), event(23, "other", "partial"), event(24)].map(frame).join(""))
  await until("the others get theirs", () => rig.seen.length === 1 && listed.length === 3)
  const leave = follow(rig, "t", eventId(21))
  assert.deepEqual(rig.seen, ["s24"], "events come after follow has returned")
  rig.streams.at(-1)!.send(frame(event(25, "t", "partial")))
  await until("the new session's have come", () => rig.seen.length === 3)
  assert.deepEqual([rig.seen, listed, rig.streams.length], [["s24", "t22", "t25"], [20, 21, 24], before + 1])
  follow(rig, "sooner", eventId(27)) // the answer of a call came before the events
  rig.streams.at(-1)!.send([event(26, "sooner", "session_created"), event(27, "sooner"), event(28, "sooner", "partial")].map(frame).join(""))
  await until("so do those of a session that is followed sooner", () => rig.seen.length === 4)
  assert.deepEqual([rig.seen.at(-1), rig.streams.length], ["sooner28", before + 1])
  leave()
  follow(rig, "t", eventId(25))
  await until("a session that was left needs another connection", () => rig.streams.length === before + 2)
  assert.equal(filters(), "list,session,session_id,since_id")
  rig.log.close()
})

test("a connection for an expected session that brings too much of others is replaced, and loses nothing", async () => {
  const rig = rigOf(({ pathname, searchParams }) => (pathname === "/events/stream" ? undefined : Response.json({ events: [event(150, "t")].filter((e) => e.event_id > searchParams.get("since_id")!) })))
  rig.log.follow({ list: true }, eventId(10), { event: () => {}, gone: () => {} })
  await until("it is live", () => status(rig) === "live")
  const before = rig.streams.length
  rig.log.expectSession()
  await until("it gets all events", () => rig.streams.length === before + 1 && status(rig) === "live")
  const created = Array.from({ length: 12 }, (_, i) => event(11 + i, i === 5 ? "t" : `u${i}`, "session_created"))
  rig.streams.at(-1)!.send([...created, ...Array.from({ length: 99 }, (_, i) => event(30 + i, "other", "partial")), event(149)].map(frame).join(""))
  await until("it goes on", () => rig.seen.length === 1)
  assert.equal(rig.streams.length, before + 1)
  rig.streams.at(-1)!.send(frame(event(150, "t")) + frame(event(151, "other", "partial")))
  await until("another one gets less", () => rig.streams.length === before + 2)
  assert.deepEqual(["session_id", "since_id"].map((name) => rig.urls.at(-1)!.searchParams.get(name)), ["s", eventId(151)])
  follow(rig, "t", eventId(16))
  await until("the session's event comes with a call", () => rig.seen.includes("t150"))
  rig.log.close()
})

test("a deleted session leaves the connection to the others", async () => {
  const rig = rigOf((url) => (url.pathname === "/events" ? Response.json({ events: [], latest_event_id: eventId(10) }) : undefined))
  follow(rig, "t", eventId(10))
  await until("it is live", () => status(rig) === "live")
  rig.streams[0]!.send(frame(event(11, "t", "session_deleted")) + frame(event(12)))
  await until("a stream without the session opens", () => rig.urls.at(-1)!.searchParams.get("session_id") === "s")
  assert.equal(rig.urls.at(-1)!.searchParams.get("since_id"), eventId(11))
  rig.streams.at(-1)!.send(frame(event(12)))
  await until("the other goes on", () => rig.seen.at(-1) === "s12")
  assert.equal(rig.gone, 0)
  rig.log.close()
})

test("the next stream leaves out a deleted session that nothing follows, and no follower loads again", async () => {
  const rig = rigOf(() => undefined)
  const listed: number[] = []
  let gone = 0
  rig.log.follow({ list: true }, eventId(10), { event: (e) => listed.push(Number(e.event_id)), gone: () => { gone++ } })
  await until("it is live", () => status(rig) === "live")
  rig.leave()
  const before = rig.streams.length
  rig.streams.at(-1)!.send(frame(event(11, "s", "session_deleted")) + 'event: gone\ndata: {"code": "not_found"}\n\n')
  await until("a stream without the session opens", () => rig.streams.length === before + 1 && status(rig) === "live")
  const { searchParams } = rig.urls.at(-1)!
  assert.deepEqual([searchParams.get("session_id"), searchParams.get("since_id"), gone, listed], [null, eventId(11), 0, [11]])
  rig.log.close()
})

test("a follower that goes on in the middle of a reply gets no merged increments from before, and needs no call that not every token may make", async () => {
  const polled: string[] = []
  const rig = rigOf((url) => {
    if (url.pathname === "/events/stream") return undefined
    polled.push(`${url.searchParams.get("session_id")} ${url.searchParams.get("since_id")}`)
    return url.searchParams.has("session_id") || url.searchParams.has("list") ? Response.json({ events: [] }) : problem(403, "forbidden")
  })
  rig.leave()
  const resume = (session: string, since: number) => rig.log.follow({ session }, eventId(since), { event: (e) => rig.seen.push(`${e.session_id}${Number(e.event_id)}`), gone: () => { rig.gone++ } }, true)
  resume("t", 20)
  const leave = resume("t", 25)
  await until("it is live", () => status(rig) === "live")
  assert.equal(rig.urls.find((u) => u.pathname === "/events/stream")!.searchParams.get("since_id"), eventId(25))
  await until("the other is filled up", () => polled.length > 0)
  assert.deepEqual(polled, [`t ${eventId(20)}`])
  leave()

  // The list is at 106. Another tab comes back with its list at 90, and in the middle of a reply at 100.
  rig.log.follow({ list: true }, eventId(25), { event: () => {}, gone: () => {} })
  await until("it follows the list", () => rig.urls.at(-1)!.searchParams.has("list") && status(rig) === "live")
  rig.streams.at(-1)!.send(frame(event(106, "t")))
  await until("the event comes", () => rig.seen.includes("t106"))
  const streams = rig.streams.length
  rig.log.follow({ list: true }, eventId(90), { event: () => {}, gone: () => {} }, true)
  resume("u", 100)
  await until("another stream opens", () => rig.streams.length > streams)
  assert.equal(rig.urls.findLast((u) => u.pathname === "/events/stream")!.searchParams.get("since_id"), eventId(106))
  await until("the reply is filled up", () => polled.includes(`u ${eventId(100)}`))
  rig.log.close()
})

test("a list gets nothing twice from a connection that starts earlier for others", async () => {
  const rig = rigOf(() => undefined)
  const listed: number[] = []
  rig.leave()
  rig.log.follow({ list: true }, eventId(100), { event: () => {}, gone: () => {} })
  await until("it is live", () => status(rig) === "live")
  rig.log.follow({ list: true }, eventId(105), { event: (e) => listed.push(Number(e.event_id)), gone: () => {} })
  await until("it follows both", () => rig.streams.length === 2 && status(rig) === "live")
  follow(rig, "t", eventId(95))
  await until("it starts earlier", () => rig.urls.at(-1)!.searchParams.get("since_id") === eventId(95))
  rig.streams.at(-1)!.send([event(96, "t"), event(103, "t"), event(106, "t")].map(frame).join(""))
  await until("all have come", () => rig.seen.length === 3)
  assert.deepEqual(listed, [106])
  rig.log.close()
})

test("an expected session does not stop what may be followed, or make it load again", async () => {
  for (const answer of [problem(410, "gone"), problem(403, "forbidden")]) {
    const rig = rigOf((url) => (url.searchParams.has("list") || url.searchParams.has("session_id") ? undefined : answer))
    rig.log.follow({ list: true }, eventId(10), { event: () => {}, gone: () => { rig.gone++ } })
    await until("it is live", () => status(rig) === "live")
    rig.log.expectSession()
    await until("it is live again", () => rig.urls.length > 2 && rig.urls.at(-1)!.searchParams.has("list") && status(rig) === "live")
    assert.equal(rig.gone, 0)
    assert.ok(!rig.states.some((s) => s.status === "stopped"))
    rig.log.close()
  }
})

test("a session that is expected while nothing connects is expected of the next connection", async () => {
  let down = false
  const rig = rigOf(() => (down ? problem(503, "unavailable", { "Retry-After": "30" }) : undefined))
  rig.log.expectSession()
  await until("it is live", () => status(rig) === "live")
  assert.ok(rig.urls.at(-1)!.searchParams.has("session_id"), "without a list, all old events would come")
  rig.log.follow({ list: true }, eventId(10), { event: () => {}, gone: () => {} })
  await until("it gets all events", () => !rig.urls.at(-1)!.searchParams.has("session_id") && status(rig) === "live")
  down = true
  rig.streams.at(-1)!.end()
  await until("it waits", () => status(rig) === "waiting" && rig.log.state.get().retryAt! > Date.now() + 20_000)
  rig.log.expectSession()
  down = false
  rig.log.retryNow()
  await until("it is live again", () => status(rig) === "live")
  assert.ok(!rig.urls.at(-1)!.searchParams.has("session_id"))
  rig.log.close()
})

test("polling goes on while a stream is tried again", async () => {
  const rig = rigOf((url) => (url.pathname === "/events/stream" ? never : Response.json({ events: [] })), { connectTimeout: 30, pollWait: 0, streamAgain: 50 })
  await until("it polls", () => status(rig) === "live")
  const before = rig.states.length
  await until("a stream is tried twice more", () => rig.urls.filter((u) => u.pathname === "/events/stream").length >= 3)
  assert.deepEqual(rig.states.slice(before).map((s) => s.status), [])
  rig.log.close()
})

test("a listener that throws harms nobody else", async () => {
  const rig = rigOf((url) => (url.pathname === "/events" ? Response.json({ events: [], latest_event_id: eventId(10) }) : undefined))
  let thrown = 0
  const before = process.listeners("uncaughtException")
  process.removeAllListeners("uncaughtException")
  process.on("uncaughtException", () => { thrown++ })
  rig.log.follow({ session: "s" }, eventId(10), { event: () => { throw new Error("mine") }, gone: () => {} })
  await until("it is live", () => status(rig) === "live" && rig.streams.length > 0)
  rig.streams.at(-1)!.send(frame(event(11)) + frame(event(12)))
  await until("the other listener has both", () => rig.seen.length === 2)
  process.removeAllListeners("uncaughtException")
  for (const l of before) process.on("uncaughtException", l)
  assert.equal(thrown, 2)
  rig.log.close()
})
