// One connection to the log for any number of followers.

import { NoStream } from "./events.ts"
import { ConnectionError, type LoquatError, ProblemError, isProblem } from "./problem.ts"
import { Store } from "./store.ts"
import { backoff, sleep } from "./time.ts"
import type { ConnectionState, EventLog, Listener, Topic } from "./log.ts"
import type { Loquat } from "./loquat.ts"
import type { EventId, LogEvent } from "./types.ts"

export interface ConnectionOptions {
  /** The milliseconds of silence after which a stream counts as broken: three heartbeats. Default: 45,000. */
  silence?: number
  /** The milliseconds in which an answer has to begin. Default: 15,000. */
  connectTimeout?: number
  /** The milliseconds in which the first bytes of a stream have to come. If they do not, a proxy holds streams back. Default: 5,000. */
  openTimeout?: number
  /** The seconds that one poll waits. Default: 25. */
  pollWait?: number
  /** How events come. Default: as a stream, and by polling where streams do not work. */
  transport?: "auto" | "stream" | "poll"
  /** The pause of timers, in milliseconds, after which the machine counts as having slept. Default: 20,000. */
  sleepAfter?: number
  /** The pauses between attempts, in milliseconds. Default: 250 to 10,000. */
  backoff?: { first?: number; max?: number }
  /** The milliseconds of polling after which a stream is tried again. Default: 300,000. */
  streamAgain?: number
}

interface Follower {
  readonly topic: Topic
  readonly listener: Listener
  /** The id up to which the follower has every event of its topic. */
  position: EventId
  /** Whether `position` is that of an event, so that it may lie between the increments of one reply, which a stream may merge. */
  resumed: boolean
  /** `new`: no connection includes the topic; `filling`: events before the connection are being read; `ended`: nothing follows. */
  phase: "new" | "filling" | "live" | "ended"
  /** The events of the connection that wait until the earlier ones have been read. */
  pending: LogEvent[]
  /** Counts the reads of earlier events. One that is no longer the newest stops. */
  fills: number
}

const maxPending = 50_000
const maxBack = 20 // how many events a connection may read again
const maxCreated = 8 // the sessions that were created during a connection, and of which it keeps the events,
const maxKept = 200 // and how many events of each
const maxUnneeded = 100 // the events that nothing follows, after which a connection that gets all is replaced
const maxSessions = 100 // that one call of the API can name; for more, all events come
const recheck = 20_000 // the age of the last bytes after which a page that comes back connects again
const triedFor = 2_000 // how long a stream may take to open that is tried while polling works

const aborted = { topics: "other topics", retry: "another attempt", slept: "the machine slept", closed: "closed" } as const

/**
 * One connection to the log for any number of followers: Server-Sent Events over fetch, or long
 * polls. It follows over any number of connections, and delivers each event of a topic once and in
 * order. When topics are added, it connects again at the event that came last.
 */
export class Connection implements EventLog {
  readonly #client: Loquat
  readonly #options: Required<Omit<ConnectionOptions, "backoff">> & Pick<ConnectionOptions, "backoff">
  readonly #state = new Store<ConnectionState>({ status: "idle", transport: "stream", since: Date.now(), retryAt: undefined, failures: 0, error: undefined })
  readonly #followers = new Set<Follower>()
  readonly #closing = new AbortController()
  readonly #cleanup: (() => void)[] = []
  /** Every live follower has all events up to this one. */
  #position: EventId | undefined
  #running = false
  #attempt = new AbortController()
  #pause: AbortController | undefined
  #failures = 0
  #polling: boolean
  #pollingSince = 0
  #trying = false // a stream, although polling works
  #all = false // the server cannot select several sessions: every event comes
  #named: ReadonlySet<string> = new Set() // the sessions of the connection's query
  #expecting = false // the next connection with a list gets the events of all sessions
  /** The events of each session that was created during such a connection and that nothing has followed yet. */
  #created: Map<string, LogEvent[]> | undefined
  #unneeded = 0
  #heard = 0
  #changed: ReturnType<typeof setTimeout> | undefined

  constructor(client: Loquat, options: ConnectionOptions = {}) {
    this.#client = client
    this.#options = { silence: 45_000, connectTimeout: 15_000, openTimeout: 5_000, pollWait: 25, transport: "auto", sleepAfter: 20_000, streamAgain: 300_000, ...options }
    this.#polling = this.#options.transport === "poll"
    this.#watch()
  }

  get state(): Store<ConnectionState> { return this.#state }

  follow(topic: Topic, since: EventId, listener: Listener, resume = false): () => void {
    const follower: Follower = { topic, listener, position: since, resumed: resume, phase: "new", pending: [], fills: 0 }
    this.#followers.add(follower)
    if (this.#brings(follower)) queueMicrotask(() => this.#adopt(follower))
    else this.#topicsChanged()
    return () => this.#drop(follower)
  }

  expectSession(): void {
    if (this.#expecting || this.#created || this.#closing.signal.aborted) return
    this.#expecting = true
    if (this.#running && this.#widens()) this.#topicsChanged()
  }

  report(error: LoquatError, retryAt?: number): void {
    if (!this.#running && !this.#closing.signal.aborted) this.#enter(retryAt === undefined ? "stopped" : "waiting", { error, retryAt })
  }

  retryNow(): void {
    if (this.#closing.signal.aborted) return
    this.#pause?.abort()
    const { status } = this.#state.get()
    if (!this.#running && this.#followers.size === 0) return this.#enter("idle") // those who wait for the state go on
    if (status === "connecting") this.#attempt.abort(aborted.retry)
    if (status === "live" && Date.now() - this.#heard > recheck) this.#attempt.abort(aborted.retry)
    if (status === "stopped") {
      this.#failures = 0
      this.#start()
    }
  }

  close(): void {
    for (const f of this.#followers) f.phase = "ended"
    this.#followers.clear()
    clearTimeout(this.#changed)
    this.#closing.abort(aborted.closed)
    this.#attempt.abort(aborted.closed)
    this.#pause?.abort()
    for (const end of this.#cleanup.splice(0)) end()
    this.#enter("stopped")
  }

  #enter(status: ConnectionState["status"], more: Partial<ConnectionState> = {}): void {
    const old = this.#state.get(), transport = this.#polling ? "poll" : "stream"
    const next = { status, transport, failures: this.#failures, retryAt: undefined, error: undefined, ...more } as const
    const same = old.status === status && old.transport === transport && old.retryAt === next.retryAt && old.error === next.error && old.failures === next.failures
    if (!same) this.#state.set({ ...next, since: old.status === status ? old.since : Date.now() })
  }

  #drop(follower: Follower): void {
    follower.phase = "ended"
    follower.pending = []
    if (!this.#followers.delete(follower)) return
    // Others need no new connection. Events of the topic are ignored until there is one.
    if (this.#followers.size === 0) this.#topicsChanged()
  }

  // #topicsChanged connects again soon: several followers that come at once need one connection.
  #topicsChanged(): void {
    this.#changed ??= setTimeout(() => {
      this.#changed = undefined
      if (this.#closing.signal.aborted) return
      if (this.#running) {
        const missing = [...this.#followers].some((f) => f.phase === "new")
        if (missing || this.#widens() || this.#followers.size === 0) this.#attempt.abort(aborted.topics)
      } else this.#start()
    }, 0)
  }

  #start(): void {
    if (!this.#running && this.#followers.size > 0) void this.#run()
  }

  async #run(): Promise<void> {
    this.#running = true
    try {
      while (this.#followers.size > 0 && !this.#closing.signal.aborted) {
        this.#attempt = new AbortController()
        if (this.#state.get().status !== "live") this.#enter("connecting")
        const wide = this.#widens()
        try {
          await this.#connect(this.#attempt.signal, wide).finally(() => { this.#created = undefined })
          if (this.#trying) continue
          this.#enter("connecting") // the server or a proxy ended the stream
          await this.#wait(backoff(this.#failures++, this.#options.backoff))
        } catch (error) {
          if (this.#closing.signal.aborted) return
          if (this.#attempt.signal.aborted) continue // the topics changed, or a new attempt was asked for
          if (wide && isProblem(error, "gone", "not_found", "forbidden")) continue // what concerns all events need not concern the topics
          if (!(await this.#recover(error))) return
        } finally {
          this.#attempt.abort()
        }
      }
      this.#position = undefined
      this.#enter("idle")
    } finally {
      this.#running = false
      if (this.#followers.size > 0 && this.#state.get().status !== "stopped") this.#start()
    }
  }

  // #recover prepares the next attempt after a failure. It returns false if there is none.
  async #recover(error: unknown): Promise<boolean> {
    if (error instanceof ProblemError || error instanceof ConnectionError) {
      if (isProblem(error, "gone") || (isProblem(error, "not_found") && error.call === "")) {
        this.#gone()
        await this.#wait(this.#failures++ === 0 ? 0 : backoff(this.#failures, this.#options.backoff))
        return true
      }
      if (isProblem(error, "invalid") && !this.#all && error.errors.some((e) => e.location === "query.session_id")) {
        this.#all = true
        return true
      }
      if (isProblem(error, "unauthorized", "forbidden", "invalid")) {
        this.#enter("stopped", { error })
        return false
      }
    } else {
      error = new ConnectionError("the stream could not be read", { cause: error })
    }
    const asked = error instanceof ProblemError ? (error.retryAfter ?? 0) * 1000 : 0
    const pause = Math.max(asked, backoff(this.#failures++, this.#options.backoff))
    this.#enter("waiting", { error: error as ConnectionError, retryAt: Date.now() + pause })
    await this.#wait(pause)
    return true
  }

  async #wait(ms: number): Promise<void> {
    this.#pause = new AbortController()
    await sleep(ms, this.#pause.signal).catch(() => {})
    this.#pause = undefined
  }

  // #gone has every follower load a snapshot.
  #gone(): void {
    this.#position = undefined
    for (const f of [...this.#followers]) this.#lose(f)
  }

  #lose(f: Follower): void {
    f.phase = "ended"
    f.pending = []
    this.#followers.delete(f)
    f.listener.gone()
  }

  async #connect(signal: AbortSignal, wide: boolean): Promise<void> {
    const joining = [...this.#followers].filter((f) => f.phase === "new")
    this.#choosePosition(joining)
    const query = this.#query(wide)
    this.#named = new Set(query.session_id)
    if (wide) {
      this.#created = new Map()
      this.#expecting = false
      this.#unneeded = 0
    }
    const joined = () => {
      for (const f of joining) if (f.phase === "new") void this.#join(f)
    }
    if (this.#polling) return this.#poll(query, joined, signal)
    try {
      await this.#stream(query, joined, signal)
    } catch (error) {
      this.#trying = false
      if (!(error instanceof NoStream) || signal.aborted || this.#options.transport === "stream") throw error
      this.#polling = true
      this.#pollingSince = Date.now()
      return this.#poll(query, joined, signal)
    }
  }

  // #widens reports whether the next connection gets the events of all sessions. Without a list, the position may be
  // old, and all events since then would come.
  #widens(): boolean {
    return this.#expecting && [...this.#followers].some((f) => "list" in f.topic)
  }

  // #choosePosition sets the event after which the connection starts. A stream may merge the
  // increments of a reply, so it must not start before an event in the middle of a reply that a
  // new follower has. Then the others read what they lack like a new follower.
  #choosePosition(joining: Follower[]): void {
    const at = this.#position
    if (at !== undefined && !joining.some((f) => f.resumed && f.position > at)) {
      this.#goBack(at, joining)
      return
    }
    const known = at === undefined && (joining.find((f) => "list" in f.topic) ?? (joining.length === 1 ? joining[0] : undefined))
    if (known && !joining.some((f) => f.resumed)) {
      this.#position = known.position
      return
    }
    for (const f of this.#followers) {
      if (f.phase !== "live" && f.phase !== "filling") continue
      if (f.phase === "live" && at !== undefined && f.position < at) f.position = at
      f.phase = "new"
      f.pending = []
      joining.push(f)
    }
    this.#position = joining.reduce((most, f) => (f.position > most ? f.position : most), at ?? "")
  }

  // #goBack lets the connection start a little earlier, so that new followers need no poll to catch up. It does
  // so only if all others follow a list: a list skips events that it has, because the server merges none of them.
  // A new follower in the middle of a reply could not skip them.
  #goBack(at: EventId, joining: Follower[]): void {
    const first = joining.reduce((least, f) => (f.position < least ? f.position : least), at)
    const others = [...this.#followers].filter((f) => !joining.includes(f))
    if (first === at || Number(at) - Number(first) > maxBack || !others.every((f) => "list" in f.topic && f.phase === "live")) return
    if (joining.some((f) => "session" in f.topic && f.resumed && f.position > first)) return
    for (const f of others) if (f.position < at) f.position = at
    this.#position = first
  }

  #query(wide: boolean): { session_id?: string[]; list?: boolean; session: "omit" } {
    const sessions = new Set<string>()
    let list = false
    for (const f of this.#followers) {
      if (f.phase === "ended") continue
      if ("list" in f.topic) list = true
      else sessions.add(f.topic.session)
    }
    if (wide || sessions.size > maxSessions || (this.#all && (list || sessions.size > 1))) return { session: "omit" }
    return { session: "omit", ...(sessions.size > 0 ? { session_id: [...sessions] } : {}), ...(list ? { list } : {}) }
  }

  #isLive(): void {
    this.#heard = Date.now()
    this.#enter("live", { failures: 0 })
  }

  async #stream(query: object, joined: () => void, signal: AbortSignal): Promise<void> {
    const { silence } = this.#options, most = this.#trying ? triedFor : Infinity
    const connectTimeout = Math.min(this.#options.connectTimeout, most), openTimeout = Math.min(this.#options.openTimeout, most)
    const limit = new AbortController()
    const end = () => limit.abort(signal.reason)
    signal.addEventListener("abort", end)
    let held = false, began = 0
    const within = (ms: number) => setTimeout(() => {
      held = true
      limit.abort()
    }, ms)
    let timer = within(connectTimeout) // something in between may hold back the headers, too
    const onOpen = () => {
      clearTimeout(timer)
      timer = within(openTimeout)
    }
    try {
      if (signal.aborted) throw signal.reason
      for await (const e of this.#client.events.stream({ ...query, since_id: this.#position }, { signal: limit.signal, timeout: silence, onOpen })) {
        if (signal.aborted) throw signal.reason
        this.#heard = Date.now()
        if (began === 0) {
          clearTimeout(timer)
          this.#trying = false
          began = Date.now()
          joined()
          this.#isLive()
        }
        if (e.name === "gone") throw goneProblem(e.data)
        if (e.name !== "" || e.data === "") continue
        this.#deliver(JSON.parse(e.data) as LogEvent)
        this.#failures = 0
      }
    } catch (error) {
      if (held && this.#options.transport === "auto") throw new NoStream()
      if (error instanceof ProblemError || error instanceof ConnectionError) throw isNoRoute(error) ? new NoStream() : error
      throw new ConnectionError(began === 0 ? "the server cannot be reached" : "the connection to the server broke", { cause: error })
    } finally {
      if (began !== 0 && Date.now() - began > 5_000) this.#failures = 0
      clearTimeout(timer)
      signal.removeEventListener("abort", end)
    }
  }

  async #poll(query: object, joined: () => void, signal: AbortSignal): Promise<void> {
    const { connectTimeout, pollWait } = this.#options
    let wait = 0 // the first poll shows at once whether the server is there
    for (;;) {
      const asked = Date.now()
      let events: LogEvent[]
      try {
        ({ events } = await this.#client.events.poll({ ...query, since_id: this.#position, wait }, { signal, retries: 0, timeout: connectTimeout + wait * 1000 }))
      } catch (error) {
        if (isProblem(error, "gone", "not_found")) throw goneProblem("", error.message)
        if (!signal.aborted && this.#options.transport !== "poll") this.#polling = false // aborted: other topics
        throw error
      }
      joined()
      this.#failures = 0
      this.#isLive()
      for (const e of events) this.#deliver(e)
      if (events.length === 0 && wait > 0 && Date.now() - asked < 1000) await sleep(1000, signal) // something in between does not wait
      wait = pollWait
      if (this.#options.transport === "auto" && Date.now() - this.#pollingSince > this.#options.streamAgain) {
        this.#polling = false // perhaps streams work by now
        this.#trying = true
        return
      }
    }
  }

  #deliver(event: LogEvent): void {
    if (this.#position !== undefined && event.event_id <= this.#position) return
    this.#position = event.event_id
    const concerned = [...this.#followers].filter((f) => concerns(f.topic, event))
    if (this.#created) this.#keep(this.#created, event, concerned.length > 0)
    for (const f of concerned) {
      if (f.phase === "live") this.#give(f, event)
      else if (f.phase === "filling") {
        f.pending.push(event)
        if (f.pending.length > maxPending) this.#lose(f)
      }
    }
    if (event.type === "session_deleted") this.#leave(event) // nothing may follow it any longer
  }

  // #leave connects again without a session that was deleted: the server ends a stream that names it.
  #leave({ session_id }: LogEvent): void {
    if (this.#named.has(session_id)) this.#attempt.abort(aborted.topics)
  }

  #give(f: Follower, event: LogEvent): void {
    if (event.event_id <= f.position || f.phase === "ended") return
    f.position = event.event_id
    f.resumed = true
    if (event.type === "session_deleted" && "session" in f.topic) {
      f.phase = "ended"
      this.#followers.delete(f)
      this.#leave(event)
    }
    try {
      f.listener.event(event)
    } catch (error) {
      queueMicrotask(() => { throw error })
    }
  }

  // #keep keeps an event of a session that was created during the connection. If the connection brings too much that
  // nothing follows, another one takes over, which gets less.
  #keep(created: Map<string, LogEvent[]>, event: LogEvent, concerned: boolean): void {
    const session = event.session_id
    if (event.type === "session_created") {
      created.set(session, [])
      if (created.size > maxCreated) created.delete(created.keys().next().value!)
    }
    const kept = created.get(session)
    if (kept && kept.push(event) > maxKept) created.delete(session)
    if (!kept && !concerned && ++this.#unneeded === maxUnneeded) this.#attempt.abort(aborted.topics)
  }

  // #brings reports whether the connection gets all events that a follower lacks: it has kept them, or they will come.
  #brings({ topic, position, resumed }: Follower): boolean {
    return this.#created !== undefined && "session" in topic && !resumed && (this.#created.has(topic.session) || position >= this.#position!)
  }

  // #adopt lets a follower take part in the connection, after what has been kept for it.
  #adopt(f: Follower): void {
    if (f.phase !== "new") return
    if (!this.#brings(f)) return this.#topicsChanged()
    const { session } = f.topic as { session: string }
    f.phase = "live"
    for (const event of this.#created!.get(session) ?? []) this.#give(f, event)
    this.#created!.delete(session)
  }

  // #join gives a follower the events between its position and the start of the connection, then
  // those of the connection.
  async #join(f: Follower): Promise<void> {
    const start = this.#position!, fill = ++f.fills
    const current = () => f.phase === "filling" && f.fills === fill
    f.phase = "filling"
    for (let failures = 0; f.position < start; failures++) {
      try {
        await this.#fill(f, start, current)
        break
      } catch (error) {
        if (!current() || this.#closing.signal.aborted) return
        if (isProblem(error, "gone", "not_found")) return this.#lose(f)
        if (isProblem(error, "unauthorized", "forbidden")) {
          this.#attempt.abort(aborted.retry) // the next attempt says so, and stops
        }
        await sleep(backoff(failures, this.#options.backoff))
      }
    }
    if (!current()) return
    f.phase = "live"
    for (const event of f.pending.splice(0)) this.#give(f, event)
  }

  // #fill reads the events of a topic up to and including end. In a window that goes beyond the end,
  // increments of a reply from both sides may be merged, or left out because of an event behind the
  // end. Such a window is not used, and smaller ones follow.
  async #fill(f: Follower, end: EventId, current: () => boolean): Promise<void> {
    const topic = "list" in f.topic ? (this.#all ? {} : { list: true }) : { session_id: f.topic.session }
    for (let limit = 1000; f.position < end && current();) {
      const { events } = await this.#client.events.poll({ ...topic, session: "omit", since_id: f.position, limit })
      if (!current()) return
      const last = events.at(-1)
      if (!last) break
      if (last.event_id <= end) {
        for (const e of events) if (concerns(f.topic, e)) this.#give(f, e)
        if (last.event_id > f.position) f.position = last.event_id
        limit = Math.min(1000, limit * 4)
      } else if (limit === 1) break
      else limit = limit === 1000 ? 1 : Math.max(1, Math.floor(limit / 4))
    }
    if (f.position < end && current()) f.position = end
  }

  // #watch notices that the machine slept, and that the page or the network came back.
  #watch(): void {
    let last = Date.now()
    const timer = setInterval(() => {
      const paused = Date.now() - last > this.#options.sleepAfter
      last = Date.now()
      if (!paused) return
      this.#pause?.abort()
      this.#attempt.abort(aborted.slept)
    }, this.#options.sleepAfter / 4)
    ;(timer as { unref?: () => void }).unref?.()
    this.#cleanup.push(() => clearInterval(timer))
    const listen = (target: EventTarget | undefined, name: string, handle: () => void) => {
      target?.addEventListener(name, handle)
      this.#cleanup.push(() => target?.removeEventListener(name, handle))
    }
    const page = typeof document === "object" ? document : undefined
    const scope = typeof self === "object" && typeof self.addEventListener === "function" ? self : undefined
    const back = () => { if (this.#state.get().status !== "stopped" && this.#state.get().status !== "connecting") this.retryNow() }
    listen(page, "visibilitychange", () => { if (page?.visibilityState === "visible") back() })
    listen(scope, "online", back)
    listen(scope, "pageshow", back)
    listen(scope, "offline", () => void this.#probe())
  }

  // #probe connects again if the server does not answer. A browser that is offline may still reach a server on the same machine.
  async #probe(): Promise<void> {
    if (this.#state.get().status !== "live") return
    const attempt = this.#attempt
    await this.#client.server.health({ timeout: 3_000, retries: 0 }).catch((error) => {
      if (error instanceof ConnectionError) attempt.abort(aborted.retry)
    })
  }
}

const concerns = (topic: Topic, e: LogEvent): boolean => "session" in topic ? e.session_id === topic.session : e.type !== "partial" && e.type !== "tool_partial"

function goneProblem(data: string, detail?: string): ProblemError {
  let problem: object = { code: "gone", detail }
  try {
    problem = JSON.parse(data) as object
  } catch { /* the server said only that it is gone */ }
  return new ProblemError(problem, { status: 410 })
}

// isNoRoute reports whether an error says that there is no route for streams.
const isNoRoute = (error: Error): boolean => error instanceof ProblemError && [404, 405, 406, 501].includes(error.status)
