import assert from "node:assert/strict"
import { test } from "node:test"
import { ConnectionError, Loquat, ProblemError, isProblem } from "../src/index.ts"

type Answer = Response | Error | ((init: RequestInit) => Promise<Response>)

function serverOf(...answers: Answer[]): { client: Loquat; calls: RequestInit[] } {
  const calls: RequestInit[] = []
  const client = new Loquat({
    baseURL: "http://server.example/", timeout: 300,
    fetch: async (_, init) => {
      calls.push(init)
      const answer = answers[Math.min(calls.length, answers.length) - 1]!
      if (answer instanceof Error) throw answer
      return answer instanceof Response ? answer.clone() : answer(init)
    },
  })
  return { client, calls }
}

const problem = (status: number, code: string, more: object = {}, headers = {}): Response =>
  new Response(JSON.stringify({ type: "about:blank", title: "T", status, code, detail: `it is ${code}`, ...more }), { status, headers: { "Content-Type": "application/problem+json", ...headers } })
const ok = new Response("{}")
const broken = new TypeError("fetch failed")
const keyOf = (init: RequestInit) => (init.headers as Record<string, string>)["Idempotency-Key"]

test("what may be repeated is repeated, with the same key; what may not is not", async () => {
  for (const [name, answers, call, attempts, fails] of [
    ["a read after a lost connection", [broken, ok], (c) => c.sessions.get("s"), 2, false],
    ["a change with a key", [broken, problem(503, "unavailable"), ok], (c) => c.sessions.create(), 3, false],
    ["a change without a key", [broken, ok], (c) => c.actions.run("s", "a", {}), 1, true],
    ["a change without a key, refused by 503", [problem(503, "unavailable"), ok], (c) => c.tokens.create({ name: "n" }), 1, true],
    ["a change without a key, refused for the rate", [problem(429, "rate_limited", {}, { "Retry-After": "0" }), ok], (c) => c.tokens.create({ name: "n" }), 2, false],
    ["too many waiting sends have no time", [problem(429, "rate_limited"), ok], (c) => c.send("s"), 1, true],
    ["a proxy without the server", [new Response("<html>", { status: 502 }), ok], (c) => c.sessions.get("s"), 2, false],
    ["a conflict", [problem(409, "busy"), ok], (c) => c.send("s"), 1, true],
    ["a wait that is too long", [problem(503, "unavailable", {}, { "Retry-After": "3600" }), ok], (c) => c.sessions.get("s"), 1, true],
    ["never more than four attempts", [broken], (c) => c.sessions.get("s"), 4, true],
    ["an import", [broken, ok], (c) => c.sessions.import("{}"), 1, true],
  ] as [string, Answer[], (c: Loquat) => Promise<unknown>, number, boolean][]) {
    const { client, calls } = serverOf(...answers)
    await (fails ? assert.rejects(call(client), name) : call(client))
    assert.equal(calls.length, attempts, name)
    assert.equal(new Set(calls.map(keyOf)).size, 1, name)
    assert.equal(keyOf(calls[0]!) !== undefined, /a change with a key|waiting sends|a conflict/.test(name), `the key of ${name}`)
  }
})

test("problems and lost connections are told apart", async () => {
  const errors = [{ location: "body.content", message: "is wrong" }]
  const { client } = serverOf(problem(409, "busy", { request_id: "r", errors }, { "Retry-After": "7" }))
  await assert.rejects(client.send("s"), (e: ProblemError) => {
    assert.ok(isProblem(e, "conflict", "busy"))
    assert.equal(isProblem(e as Error, "gone"), false)
    assert.deepEqual([e.code, e.status, e.message, e.requestId, e.retryAfter, e.at("body.content")?.message, e.call], ["busy", 409, "it is busy", "r", 7, "is wrong", "POST /sessions/s/send"])
    return true
  })
  await assert.rejects(serverOf(broken).client.actions.run("s", "a", {}), (e: ConnectionError) => e instanceof ConnectionError && e.mayBeDone && e.cause === broken)
  await assert.rejects(serverOf(broken).client.sessions.get("s"), (e: ConnectionError) => e instanceof ConnectionError && !e.mayBeDone)
  await assert.rejects(serverOf(new Response("<html>")).client.sessions.get("s", { retries: 0 }), ConnectionError)
  await assert.rejects(serverOf(new Response("no", { status: 404 })).client.sessions.get("s"), (e: ProblemError) => e.code === "not_found")
})

test("silence ends a call, before and in the answer; the caller can end it, too", async () => {
  const never = (init: RequestInit) => new Promise<Response>((_, reject) => init.signal!.addEventListener("abort", () => reject(init.signal!.reason)))
  const stalls = (init: RequestInit) => Promise.resolve(new Response(new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode("{"))
      init.signal!.addEventListener("abort", () => c.error(init.signal!.reason))
    },
  })))
  for (const answer of [never, stalls]) {
    await assert.rejects(serverOf(answer).client.sessions.get("s", { retries: 0, timeout: 50 }), (e: Error) => e instanceof ConnectionError && /in time/.test(e.message))
    const stop = new AbortController()
    const { client, calls } = serverOf(answer)
    setTimeout(() => stop.abort(new Error("enough")), 20)
    await assert.rejects(client.sessions.get("s", { signal: stop.signal }), /enough/)
    assert.equal(calls.length, 1)
  }
})

test("a call with a signal that lives long leaves nothing on it, whatever becomes of its answer", async () => {
  const stop = new AbortController(), { signal } = stop
  let listeners = 0
  const count = (name: "addEventListener" | "removeEventListener", by: number) => {
    const real = signal[name].bind(signal) as (...all: unknown[]) => void
    Object.assign(signal, { [name]: (...all: unknown[]) => { listeners += by; real(...all) } })
  }
  count("addEventListener", 1)
  count("removeEventListener", -1)
  const late = (init: RequestInit) => Promise.resolve(new Response(new ReadableStream({
    start(c) {
      c.enqueue(new TextEncoder().encode("be"))
      init.signal!.addEventListener("abort", () => c.error(init.signal!.reason))
    },
  })))
  const none = async (what: string) => {
    for (let i = 0; i < 100 && listeners; i++) await new Promise((resolve) => setImmediate(resolve))
    assert.equal(listeners, 0, what)
  }
  const whole = (...headers: [string, string][]) => serverOf(new Response("whole", { status: 206, headers })).client
  const answer = await whole(["X-Of", "it"]).sessions.export("s", "json", { signal })
  assert.deepEqual([answer.status, answer.headers.get("X-Of"), await answer.text()], [206, "it", "whole"])
  await none("it was read")
  await (await serverOf(late).client.assets.get("s", "a", { signal })).body!.cancel()
  await none("it was cancelled")
  await serverOf(new Response(null, { status: 204 })).client.sessions.export("s", "json", { signal })
  await none("it has no body")
  await serverOf(new Response("{}")).client.sessions.get("s", { signal })
  await assert.rejects(serverOf(problem(404, "not_found")).client.sessions.export("s", "json", { signal }))
  await none("it was JSON, or a problem")
  const reader = (await serverOf(late).client.sessions.export("s", "json", { signal })).body!.getReader()
  assert.equal(new TextDecoder().decode((await reader.read()).value), "be")
  stop.abort(new Error("enough"))
  await assert.rejects(reader.read(), /enough/, "the signal still ends an answer that is being read")
})

test("a token may be a function, and may change; addresses are checked", async () => {
  const { client, calls } = serverOf(ok)
  client.setToken(async () => "one")
  await client.sessions.get("s")
  client.setToken(undefined)
  await client.sessions.get("s")
  assert.deepEqual(calls.map((c) => (c.headers as Record<string, string>).Authorization), ["Bearer one", undefined])
  assert.throws(() => new Loquat(), /baseURL is missing/)
  assert.throws(() => new Loquat({ baseURL: "ftp://a" }), /does not begin with http/)
  assert.equal(new Loquat({ baseURL: "http://a/loquat/" }).assets.url("s", "i"), "http://a/loquat/sessions/s/assets/i")
})

test("pages become one list", async () => {
  const { client } = serverOf(new Response('{"sessions": [{"session_id": "a"}], "next_page_token": "t"}'), new Response('{"sessions": [{"session_id": "b"}]}'))
  const ids = []
  for await (const s of client.sessions.list({ limit: 1 })) ids.push(s.session_id)
  assert.deepEqual(ids, ["a", "b"])
})

test("a session says which checkpoint it has, also when a proxy has compressed the answer", async () => {
  for (const etag of ['"0000000000000007"', 'W/"0000000000000007"']) {
    const { client } = serverOf(new Response('{"session_id":"s"}', { headers: { ETag: etag } }))
    for (const session of [await client.sessions.get("s"), await client.sessions.create(), await client.sessions.fork("s")]) assert.equal(session.checkpoint, "0000000000000007")
  }
  assert.equal("checkpoint" in (await serverOf(new Response("{}")).client.sessions.get("s")), false)
})

test("an upload may take long while its bytes flow, and ends when they do not", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] })
  class SlowXHR {
    static newest: SlowXHR
    upload: { onprogress?: (e: object) => void } = {}
    status = 200; responseText = '{"imported":1}'; withCredentials = false
    onload = () => {}; onerror = () => {}; onabort = () => {}; onloadend = () => {}
    constructor() { SlowXHR.newest = this }
    open() {}
    setRequestHeader() {}
    getAllResponseHeaders() { return "" }
    abort() { this.onabort(); this.onloadend() }
    send() {}
  }
  Object.assign(globalThis, { XMLHttpRequest: SlowXHR })
  t.after(() => { delete (globalThis as { XMLHttpRequest?: unknown }).XMLHttpRequest })
  const client = new Loquat({ baseURL: "http://server.example" }), turn = () => new Promise((resolve) => setImmediate(resolve))
  const send = async () => {
    const before = SlowXHR.newest, report = client.sessions.import("{}", {}, { onProgress: () => {} })
    while (SlowXHR.newest === before) await turn()
    return [report, SlowXHR.newest] as const
  }
  const [report, flows] = await send()
  for (let loaded = 1; loaded <= 5; loaded++) {
    t.mock.timers.tick(500_000)
    flows.upload.onprogress?.({ loaded, total: 5, lengthComputable: true })
  }
  t.mock.timers.tick(500_000)
  flows.onload()
  flows.onloadend()
  assert.deepEqual(await report, { imported: 1 })
  const [stuck, stalls] = await send(), failed = assert.rejects(stuck, (e: ConnectionError) => /in time/.test(e.message))
  stalls.upload.onprogress?.({ loaded: 1, total: 5, lengthComputable: true })
  t.mock.timers.tick(600_000)
  await failed
})

test("an upload with progress is made and fails as other calls are and do", async (t) => {
  const sent: string[] = []
  let answer: { status: number; text: string } | undefined
  class FakeXHR { // as browsers have it
    upload: { onprogress?: (e: object) => void } = {}
    status = 0; responseText = ""; withCredentials = false
    onload = () => {}; onerror = () => {}; onabort = () => {}; onloadend = () => {}
    open(method: string, url: string) { sent.push(`${method} ${url}`) }
    setRequestHeader(name: string, value: string) { sent.push(`${name.toLowerCase()}: ${value}`) }
    getAllResponseHeaders() { return "content-type: application/problem+json\r\nretry-after: 7\r\n" }
    abort() { this.onabort(); this.onloadend() }
    send() {
      this.upload.onprogress?.({ loaded: 1, total: 2, lengthComputable: true })
      if (answer === undefined) return
      Object.assign(this, { status: answer.status, responseText: answer.text })
      if (answer.status) this.onload()
      else this.onerror()
      this.onloadend()
    }
  }
  Object.assign(globalThis, { XMLHttpRequest: FakeXHR })
  t.after(() => { delete (globalThis as { XMLHttpRequest?: unknown }).XMLHttpRequest })
  const client = new Loquat({ baseURL: "http://server.example", token: "secret-token", retries: 0 }), progress: number[][] = []
  const onProgress = (...seen: number[]) => { progress.push(seen) }
  answer = { status: 200, text: '{"imported":1}' }
  assert.deepEqual(await client.sessions.import("{}", { new_ids: true }, { onProgress }), { imported: 1 })
  assert.deepEqual([sent[0], sent.includes("authorization: Bearer secret-token"), progress], ["POST http://server.example/sessions/import?new_ids=true", true, [[1, 2]]])
  answer = { status: 503, text: '{"code":"unavailable","detail":"not now"}' }
  await assert.rejects(client.sessions.import("{}", {}, { onProgress }), (error) => isProblem(error, "unavailable") && error.message.includes("not now") && (error as ProblemError).retryAfter === 7)
  answer = { status: 0, text: "" }
  await assert.rejects(client.assets.upload("s", new Blob(["x"]), { onProgress }), (error) => error instanceof ConnectionError && error.mayBeDone)
  answer = undefined
  const stop = new AbortController()
  setTimeout(() => stop.abort(new Error("the user has left")), 5)
  await assert.rejects(client.sessions.import("{}", {}, { onProgress, signal: stop.signal }), /the user has left/)
})
