import assert from "node:assert/strict"
import { test } from "node:test"
import { isDeepStrictEqual } from "node:util"
import { type Connection, type LogEvent, type SessionFollower, Loquat, type SessionState, type SessionSummary, type Snapshot } from "../src/index.ts"
import { Proxy } from "./proxy.ts"
import { TestServer, hasServer, scripted, until } from "./server.ts"

const rounds = Number(process.env.LOQUAT_CLIENT_ROUNDS ?? 40)
const seed = Number(process.env.LOQUAT_CLIENT_SEED ?? Date.now() % 2 ** 31)

let state = seed
function random(n: number): number { // mulberry32, so that a seed repeats a run
  state = (state + 0x6d2b79f5) | 0
  let t = Math.imul(state ^ (state >>> 15), 1 | state)
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
  return ((t ^ (t >>> 14)) >>> 0) % n
}
const pick = <T>(list: readonly T[]): T => list[random(list.length)]!
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

const words = Array.from({ length: 400 }, (_, i) => `w${i}`).join(" ")

/** A follower that checks what it gets. */
class Witness {
  readonly seen: LogEvent[] = []
  readonly faults: string[] = []
  readonly follower: SessionFollower
  starts: string[] = [] // the cursors of the snapshots

  constructor(client: Loquat, readonly log: Connection, readonly sessionId: string, snapshot?: Snapshot) {
    this.follower = client.followSession(log, sessionId, snapshot)
    this.follower.onUpdate(({ event, state }) => {
      if (!event) this.starts.push(state.cursor)
      else if (event.event_id <= (this.seen.at(-1)?.event_id ?? this.starts[0]!)) this.faults.push(`${event.event_id} came after ${this.seen.at(-1)?.event_id}`)
      else this.seen.push(event)
      const draft = state.draft?.content
      if (draft !== undefined && !words.startsWith(draft)) this.faults.push(`the draft ${draft.slice(0, 60)}… is no beginning of the reply`)
    })
  }

  get state(): SessionState | undefined { return this.follower.get().state }

  /** Compares with the log: everything but increments was seen, once. */
  check(log: LogEvent[]): void {
    assert.deepEqual(this.faults, [])
    assert.equal(this.starts.length, 1, "the session was loaded again")
    const whole = (e: LogEvent) => e.type !== "partial" && e.type !== "tool_partial"
    const want = log.filter((e) => e.session_id === this.sessionId && e.event_id > this.starts[0]! && whole(e)).map((e) => `${e.event_id} ${e.type}`)
    assert.deepEqual(this.seen.filter(whole).map((e) => `${e.event_id} ${e.type}`), want)
  }
}

async function wholeLog(client: Loquat): Promise<LogEvent[]> {
  const all: LogEvent[] = []
  for (let since = "0"; ;) {
    const { events } = await client.events.poll({ since_id: since, session: "omit", limit: 5000 })
    if (events.length === 0) return all
    all.push(...events)
    since = events.at(-1)!.event_id
  }
}

test("followers lose and repeat nothing, whatever breaks", { skip: !hasServer && "there is no server", timeout: rounds * 5_000 + 120_000 }, async (t) => {
  t.diagnostic(`seed ${seed}, ${rounds} rounds; LOQUAT_CLIENT_SEED repeats them`)
  const proxy = await Proxy.start()
  const server = await TestServer.start({ server: { allowed_origins: [proxy.url] } })
  proxy.target = server.port
  const direct = new Loquat({ baseURL: server.url, retries: 30, maxRetryDelay: 2_000 }), client = new Loquat({ baseURL: proxy.url, timeout: 3_000 })
  const options = { silence: 1_500, connectTimeout: 1_500, openTimeout: 1_000, sleepAfter: 600, backoff: { first: 20, max: 200 } }
  const stream = client.connect(options), poll = client.connect({ ...options, transport: "poll", pollWait: 1 })
  const done: Record<string, number> = {}
  try {
    const ids: string[] = []
    for (let i = 0; i < 4; i++) ids.push((await direct.sessions.create({ metadata: scripted(words, 300) })).session_id)
    const list = client.followList(stream)
    const kept = [...ids.map((id) => new Witness(client, stream, id)), ...ids.map((id) => new Witness(client, poll, id))]
    const guests: Witness[] = []
    const breaks: Record<string, () => Promise<void>> = {
      cut: async () => { for (let i = random(3); i >= 0; i--) { proxy.cut(); await pause(random(150)) } },
      freeze: async () => { proxy.freeze(true); await pause(random(2_500)); proxy.freeze(false) },
      refuse: async () => { proxy.refuse(true); await pause(random(600)); proxy.refuse(false) },
      kill: async () => { await server.kill(); await pause(random(300)); await server.restart() },
      stop: async () => { server.pause(); await pause(random(2_000)); server.resume() },
      sleep: async () => { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 700 + random(300)) },
      join: async () => { guests.push(new Witness(client, pick([stream, poll]), pick(ids))) },
      create: async () => {
        const on = pick([stream, poll])
        on.expectSession()
        await pause(random(100))
        const breaking = random(2) === 1 && breaks[pick(["cut", "refuse"])]!()
        const made = await direct.sessions.create({ metadata: scripted(words, 300), send: { content: "go" } })
        await pause(random(3) && random(200))
        ids.push(made.session_id)
        guests.push(new Witness(client, on, made.session_id, made))
        await breaking
      },
      leave: async () => { guests.splice(random(guests.length || 1), 1)[0]?.follower.close() },
    }
    const acts = {
      send: (id: string) => direct.send(id, { content: "go on", on_busy: pick(["queue", "interrupt", "steer"]) }),
      append: (id: string) => direct.messages.append(id, { role: "user", content: "x" }),
      title: (id: string) => direct.sessions.patch(id, { metadata: { title: `t${random(100)}` } }),
      remove: (id: string) => direct.messages.delete(id, [0]),
      modify: (id: string) => direct.messages.modify(id, 0, { content: `m${random(100)}` }),
    }
    for (let round = 0; round < rounds; round++) {
      const work = Array.from({ length: 3 }, () => acts[pick(["send", "send", "append", "title", "remove", "modify"] as const)](pick(ids)).catch(() => {}))
      const name = pick(Object.keys(breaks))
      done[name] = (done[name] ?? 0) + 1
      await pause(random(200))
      await breaks[name]!()
      await Promise.all(work)
    }
    for (const id of ids) for (const q of (await direct.queue.get(id)).queue) await direct.cancel(q.request_id)
    await until("the requests end", async () => {
      for (const id of ids) if ((await direct.sessions.get(id)).active_request_id) return false
      return true
    }, 60_000)
    const log = await wholeLog(direct)
    const witnesses = [...kept, ...guests.filter((w) => w.follower.get().status !== "loading")]
    for (const w of witnesses) {
      const stored = await direct.sessions.get(w.sessionId)
      const last = log.findLast((e) => e.session_id === w.sessionId)!.event_id
      await until(`${w.sessionId} is up to date`, () => w.state && w.state.cursor >= last, 30_000).catch((error: Error) => {
        throw new Error(`${error.message}: ${w.state?.cursor} of ${last}, follower ${JSON.stringify({ ...w.follower.get(), state: 0 })}, connection ${JSON.stringify(w.log.state.get())}`)
      })
      w.check(log)
      assert.deepEqual(w.state!.messages, stored.messages)
      assert.deepEqual(w.state!.session.metadata, stored.metadata)
      assert.equal(w.state!.draft, undefined)
    }
    const inList = (sessions: readonly SessionSummary[] = []) => sessions.map((s) => ({ id: s.session_id, metadata: s.metadata, count: s.message_count, at: s.updated_at }))
    const stored = inList((await direct.sessions.page({ limit: 200 })).sessions)
    await until("the list is up to date", () => isDeepStrictEqual(inList(list.get().list?.sessions), stored)).catch(() => {
      assert.deepEqual(inList(list.get().list?.sessions), stored, `the list at ${list.get().list?.cursor} of ${log.at(-1)!.event_id}`)
    })
    const events = witnesses.reduce((n, w) => n + w.seen.length, 0)
    t.diagnostic(`${witnesses.length} followers saw ${events} events of ${log.length} in the log, over ${proxy.connections} connections; ${JSON.stringify(done)}`)
  } finally {
    stream.close()
    poll.close()
    await proxy.close()
    await server.close()
  }
})
