import assert from "node:assert/strict"
import { afterEach, test } from "node:test"
import { type LogEvent, Loquat, type SessionFollower } from "../src/index.ts"
import { Hub, type SharedConnection, type SharedOptions, connectShared, serveTabs } from "../src/shared.ts"
import { Locks } from "./locks.ts"
import { TestServer, hasServer, scripted, until } from "./server.ts"

const skip = !hasServer && "there is no server"
const words = Array.from({ length: 200 }, (_, i) => `w${i}`).join(" ")

let streams = 0, most = 0

/** A fetch that counts the streams that are open. */
const counting = async (input: string, init: RequestInit): Promise<Response> => {
  if (!input.includes("/events/stream")) return fetch(input, init)
  most = Math.max(most, ++streams)
  const end = () => { streams-- }
  init.signal?.addEventListener("abort", end, { once: true })
  return fetch(input, init)
}

class Tab {
  readonly client: Loquat
  readonly log: SharedConnection
  readonly seen: LogEvent[] = []
  readonly follower: SessionFollower

  constructor(url: string, session: string, options: SharedOptions) {
    this.client = new Loquat({ baseURL: url, fetch: counting })
    this.log = connectShared(this.client, options)
    this.follower = this.client.followSession(this.log, session)
    this.follower.onUpdate(({ event }) => { if (event) this.seen.push(event) })
  }

  get text(): string { return this.follower.get().state?.messages.at(-1)?.content ?? "" }

  close(): void {
    this.follower.close()
    this.log.close()
  }
}

const tabs: Tab[] = []
afterEach(() => { for (const tab of tabs.splice(0)) tab.close() })

function checkOnce(all: readonly Tab[]): void {
  const whole = (t: Tab) => t.seen.filter((e) => e.type !== "partial").map((e) => `${e.event_id} ${e.type}`)
  for (const tab of all) {
    assert.deepEqual(whole(tab), whole(all[0]!))
    const ids = tab.seen.map((e) => e.event_id)
    assert.deepEqual(ids, [...new Set(ids)].sort())
    let draft = ""
    for (const e of tab.seen) if (e.type === "partial") {
      draft += e.message.content
      assert.ok(words.startsWith(draft), `the increments of the reply do not join at ${e.event_id}: ${JSON.stringify(tab.seen.map((s) => [s.event_id.slice(-4), s.type, s.type === "partial" ? s.message.content : ""]))}`)
    }
  }
}

test("20 tabs share one connection; holders die and others take over without a loss", { skip, timeout: 120_000 }, async (t) => {
  const server = await TestServer.start()
  try {
    const direct = new Loquat({ baseURL: server.url })
    const { session_id } = await direct.sessions.create({ metadata: scripted(words, 60) })
    const locks = new Locks()
    streams = most = 0
    for (let i = 0; i < 20; i++) tabs.push(new Tab(server.url, session_id, { locks, name: `t${session_id}` }))
    await until("all tabs are live", () => tabs.every((tab) => tab.log.state.get().status === "live" && tab.follower.get().status === "ready"))
    await direct.send(session_id, { content: "go" })
    const began = Date.now()
    for (let i = 0; i < 5; i++) { // the first tab holds the connection; it goes without a word
      await new Promise((resolve) => setTimeout(resolve, 300))
      tabs.shift()!.close()
      if (process.env.DEBUG) console.log(Date.now() - began, tabs.map((x) => x.log.state.get().status + x.seen.length).join(" "))
    }
    await until("all tabs have the reply", () => tabs.every((tab) => tab.text === words))
    checkOnce(tabs)
    assert.ok(most <= 2, `${most} connections were open at once`)
    assert.equal(streams, 1)
    t.diagnostic(`15 tabs saw ${tabs[0]!.seen.length} events each; at most ${most} streams, ${streams} at the end`)
  } finally {
    for (const tab of tabs.splice(0)) tab.close()
    await server.close()
  }
})

test("a session that is expected before there is a holder is expected of it, and a token that has expired is asked for again", async () => {
  let token = "one", valid = "one", asked = 0
  const urls: URL[] = []
  const answer = async (input: string, init: RequestInit): Promise<Response> => {
    urls.push(new URL(input))
    if (new Headers(init.headers).get("Authorization") !== `Bearer ${valid}`) return Response.json({ code: "unauthorized" }, { status: 401, headers: { "Content-Type": "application/problem+json" } })
    const body = new ReadableStream<Uint8Array>({ start: (c) => {
      c.enqueue(new TextEncoder().encode("id: 0000000000000001\n\n"))
      init.signal!.addEventListener("abort", () => { try { c.error(init.signal!.reason) } catch { /* it has ended */ } })
      end = () => c.close()
    } })
    return new Response(body, { headers: { "Content-Type": "text/event-stream" } })
  }
  let end = () => {}
  const client = new Loquat({ baseURL: "http://server.example", fetch: answer, token: () => (asked++, token) })
  const log = connectShared(client, { locks: new Locks(), name: "renewed" })
  try {
    log.expectSession()
    log.follow({ list: true }, "0000000000000001", { event: () => {}, gone: () => {} })
    await until("it is live", () => log.state.get().status === "live")
    assert.deepEqual([...urls.at(-1)!.searchParams.keys()].sort(), ["session", "since_id"])
    valid = token = "two"
    end()
    await until("it is live with the new token", () => log.state.get().status === "live" && urls.length > 2)
    valid = "three" // the function has none that is valid
    end()
    await until("it stops", () => log.state.get().status === "stopped")
    const before = asked
    await new Promise((resolve) => setTimeout(resolve, 100))
    assert.equal(asked, before)
  } finally {
    log.close()
  }
})

test("a worker holds the connection; one that ends is replaced, one that cannot be loaded is done without", { skip, timeout: 120_000 }, async () => {
  const server = await TestServer.start()
  const workers = new Map<string, { scope: { onconnect: ((e: MessageEvent) => void) | null }; hub: Hub }>()
  let broken = false
  class FakeWorker { // a SharedWorker in this thread
    onerror: (() => void) | null = null
    port: MessagePort
    constructor(name: string) {
      const { port1, port2 } = new MessageChannel()
      this.port = port1
      if (broken) {
        setTimeout(() => this.onerror?.(), 10)
        return
      }
      let worker = workers.get(name)
      if (!worker) {
        worker = { scope: { onconnect: null }, hub: new Hub({ fetch: counting }) }
        serveTabs(worker.scope, worker.hub)
        workers.set(name, worker)
      }
      worker.scope.onconnect!({ ports: [port2] } as unknown as MessageEvent)
    }
  }
  Object.assign(globalThis, { SharedWorker: FakeWorker })
  try {
    const direct = new Loquat({ baseURL: server.url })
    const { session_id } = await direct.sessions.create({ metadata: scripted(words, 200) })
    streams = most = 0
    const worker = (name: string) => new FakeWorker(name) as unknown as SharedWorker
    for (let i = 0; i < 10; i++) tabs.push(new Tab(server.url, session_id, { worker }))
    await until("all tabs are live", () => tabs.every((tab) => tab.log.state.get().status === "live"))
    assert.equal(streams, 1)
    await direct.send(session_id, { content: "go" })
    await until("all tabs have the reply", () => tabs.every((tab) => tab.text === words))
    checkOnce(tabs)
    assert.deepEqual([most, workers.size], [1, 1])

    tabs[0]!.log.setToken("other") // another token has a connection of its own
    await until("there is a second worker", () => workers.size === 2)

    broken = true
    const alone = new Tab(server.url, session_id, { worker, locks: new Locks(), name: "alone" })
    tabs.push(alone)
    await until("the tab without a worker is live", () => alone.log.state.get().status === "live" && alone.text === words)
  } finally {
    for (const tab of tabs.splice(0)) tab.close()
    for (const { hub } of workers.values()) hub.close()
    Reflect.deleteProperty(globalThis, "SharedWorker")
    await server.close()
  }
})
