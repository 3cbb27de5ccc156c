// One connection to the log for all tabs of a browser.
//
// Where there is a SharedWorker, it holds the connection. Elsewhere one of the tabs does: the one that
// holds a Web Lock. Its followers and those of the other tabs are equal. When the holder ends, another
// takes over, and every tab follows again from the event that it has.

import { Connection, type ConnectionOptions } from "./connection.ts"
import { Store } from "./store.ts"
import { Loquat, type LoquatOptions } from "./loquat.ts"
import { ConnectionError, type LoquatError, ProblemError } from "./problem.ts"
import type { ConnectionState, EventLog, Listener, Topic } from "./log.ts"
import type { EventId, LogEvent } from "./types.ts"

/** What tabs send to the holder of the connection. */
type ToHub =
  | { kind: "hello"; tab: string; server: HubOptions }
  | { kind: "follow"; tab: string; id: number; topic: Topic; since: EventId; resume: boolean }
  | { kind: "unfollow"; tab: string; id: number }
  | { kind: "expect"; tab: string }
  | { kind: "retry"; tab: string }
  | { kind: "alive"; tab: string; seen: number }
  | { kind: "bye"; tab: string }

/** What the holder sends to a tab. */
type ToTab =
  | { kind: "welcome"; hub: string }
  | { kind: "here"; hub: string }
  | { kind: "event"; hub: string; n: number; id: number; event: LogEvent }
  | { kind: "gone"; id: number }
  | { kind: "state"; state: StoredState }
  | { kind: "behind" }

interface StoredState extends Omit<ConnectionState, "error"> {
  error: { name: string; code: string; message: string; status: number } | undefined
}

interface HubOptions {
  baseURL: string
  token: string | undefined
  credentials: RequestCredentials | undefined
  connection: ConnectionOptions
}

const beat = 5_000 // between signs of life of a tab
const silent = 150_000 // after which a tab counts as closed or frozen; timers of hidden tabs run once a minute
const unseen = 4_000 // events that a tab may not have read
const renewAfter = 10_000 // between two tokens that the server refuses
const answerWithin = 4_000 // the time in which a holder answers a tab

/** The tabs of one holder. It makes the only connection. */
export class Hub {
  readonly id = crypto.getRandomValues(new Uint32Array(2)).join("-")
  readonly #tabs = new Map<string, HubTab>()
  readonly #sweep: ReturnType<typeof setInterval>
  readonly #fetch: LoquatOptions["fetch"]
  #client: Loquat | undefined
  #log: Connection | undefined

  constructor(options: { fetch?: LoquatOptions["fetch"] } = {}) {
    this.#fetch = options.fetch
    this.#sweep = setInterval(() => {
      for (const [name, tab] of this.#tabs) if (Date.now() - tab.heard > silent) this.#remove(name)
    }, silent / 4)
    ;(this.#sweep as { unref?: () => void }).unref?.()
  }

  /** Handles a message of a tab. `send` answers it. */
  handle(message: ToHub, send: (message: ToTab) => void): void {
    if (message.kind === "hello") return this.#hello(message, send)
    const tab = this.#tabs.get(message.tab)
    if (message.kind === "bye") return this.#remove(message.tab)
    if (!tab) return send({ kind: "behind" }) // it was frozen for long: it follows again from what it has
    tab.heard = Date.now()
    switch (message.kind) {
      case "alive":
        tab.seen = message.seen
        send({ kind: "here", hub: this.id })
        break
      case "follow": this.#follow(tab, message.id, message.topic, message.since, message.resume); break
      case "unfollow":
        tab.follows.get(message.id)?.()
        tab.follows.delete(message.id)
        break
      case "expect": this.#log?.expectSession(); break
      case "retry": this.#log?.retryNow(); break
    }
  }

  close(): void {
    clearInterval(this.#sweep)
    for (const name of [...this.#tabs.keys()]) this.#remove(name)
    this.#log?.close()
  }

  #hello({ tab: name, server }: Extract<ToHub, { kind: "hello" }>, send: (message: ToTab) => void): void {
    this.#remove(name)
    this.#client ??= new Loquat({ baseURL: server.baseURL, token: server.token, credentials: server.credentials, fetch: this.#fetch })
    this.#client.setToken(server.token)
    this.#log ??= this.#client.connect(server.connection)
    const tab: HubTab = { send, heard: Date.now(), sent: 0, seen: 0, follows: new Map() }
    tab.follows.set(-1, this.#log.state.subscribe((state) => send({ kind: "state", state: storable(state) })))
    this.#tabs.set(name, tab)
    send({ kind: "welcome", hub: this.id })
    send({ kind: "state", state: storable(this.#log.state.get()) })
    if (this.#log.state.get().status === "stopped") this.#log.retryNow() // this tab may have signed in
  }

  #follow(tab: HubTab, id: number, topic: Topic, since: EventId, resume: boolean): void {
    const end = this.#log!.follow(topic, since, {
      event: (event) => {
        if (tab.sent - tab.seen >= unseen) return this.#behind(tab)
        tab.send({ kind: "event", hub: this.id, n: ++tab.sent, id, event })
      },
      gone: () => {
        tab.follows.delete(id)
        tab.send({ kind: "gone", id })
      },
    }, resume)
    tab.follows.get(id)?.()
    tab.follows.set(id, end)
  }

  // #behind ends the follows of a tab that does not read, for example because the browser froze it.
  #behind(tab: HubTab): void {
    for (const [name, known] of this.#tabs) if (known === tab) this.#remove(name)
    tab.send({ kind: "behind" })
  }

  #remove(name: string): void {
    const tab = this.#tabs.get(name)
    if (!tab) return
    this.#tabs.delete(name)
    for (const end of tab.follows.values()) end()
  }
}

interface HubTab {
  readonly send: (message: ToTab) => void
  readonly follows: Map<number, () => void>
  heard: number
  /** The number of events that were sent, and of those that the tab has read. */
  sent: number
  seen: number
}

const storable = ({ error, ...state }: ConnectionState): StoredState => ({
  ...state, error: error && { name: error.name, code: error.code, message: error.message, status: error instanceof ProblemError ? error.status : 0 },
})

const restored = ({ error, ...state }: StoredState): ConnectionState => ({
  ...state,
  error: error && (error.name === "ProblemError" ? new ProblemError({ code: error.code, detail: error.message }, { status: error.status }) : new ConnectionError(error.message)),
})

/** A way to the holder of the connection. */
interface Link {
  send(message: ToHub): void
  close(): void
  /** Called when the holder does not answer. It finds another holder, or returns false. */
  replace?(): boolean
}

export interface SharedOptions extends ConnectionOptions {
  /**
   * Makes the SharedWorker, whose code is the module `@loquat/client/shared-worker`. Without it, or
   * in a browser that has no SharedWorker, one of the tabs holds the connection.
   */
  worker?: ((name: string) => SharedWorker) | undefined
  /** The name that the tabs share. Default: made of the server's address and the token. */
  name?: string | undefined
  /** Default: the Web Locks of the browser. */
  locks?: Pick<LockManager, "request"> | undefined
}

interface SharedFollower {
  readonly topic: Topic
  readonly listener: Listener
  position: EventId
  resume: boolean
}

/**
 * Connects to the log over one connection for all tabs. It is used like a `Connection`. Without a
 * SharedWorker and without Web Locks, which only secure pages have, each tab has its own connection.
 */
export function connectShared(client: Loquat, options: SharedOptions = {}): SharedConnection {
  return new SharedConnection(client, options)
}

export class SharedConnection implements EventLog {
  readonly #client: Loquat
  readonly #options: SharedOptions
  readonly #tab = crypto.getRandomValues(new Uint32Array(4)).join("-")
  readonly #state = new Store<ConnectionState>({ status: "idle", transport: "stream", since: Date.now(), retryAt: undefined, failures: 0, error: undefined })
  readonly #followers = new Map<number, SharedFollower>()
  readonly #cleanup: (() => void)[] = []
  #link: Link | undefined
  #token: string | undefined
  #ids = 0
  #seen = 0
  #unread = 0
  #hub = ""
  #asked = 0 // when the holder was asked for a sign of life that has not come
  #unanswered = 0
  #noWorker = false
  #expecting = false // to be said to the next holder
  #renewed = 0
  #closed = false

  constructor(client: Loquat, options: SharedOptions = {}) {
    this.#client = client
    this.#options = options
    const timer = setInterval(() => this.#beat(), beat)
    ;(timer as { unref?: () => void }).unref?.()
    this.#cleanup.push(() => clearInterval(timer))
    if (typeof addEventListener === "function") {
      const hide = () => this.#link?.send({ kind: "bye", tab: this.#tab })
      const show = (e: Event) => { if ((e as PageTransitionEvent).persisted) this.#hello() }
      addEventListener("pagehide", hide)
      addEventListener("pageshow", show)
      this.#cleanup.push(() => { removeEventListener("pagehide", hide); removeEventListener("pageshow", show) })
    }
    void this.#open()
  }

  get state(): Store<ConnectionState> { return this.#state }

  follow(topic: Topic, since: EventId, listener: Listener, resume = false): () => void {
    const id = ++this.#ids
    this.#followers.set(id, { topic, listener, position: since, resume })
    if (this.#hub) this.#link?.send({ kind: "follow", tab: this.#tab, id, topic, since, resume })
    return () => {
      if (this.#followers.delete(id)) this.#link?.send({ kind: "unfollow", tab: this.#tab, id })
    }
  }

  expectSession(): void {
    if (this.#hub) this.#link?.send({ kind: "expect", tab: this.#tab })
    else this.#expecting = true
  }

  retryNow(): void {
    const { status } = this.#state.get()
    if (this.#followers.size === 0 && (status === "waiting" || status === "stopped")) this.#state.set({ ...this.#state.get(), status: "idle", error: undefined, retryAt: undefined })
    this.#link?.send({ kind: "retry", tab: this.#tab })
  }

  report(error: LoquatError, retryAt?: number): void {
    const { status } = this.#state.get()
    if (status !== "live" && this.#followers.size === 0) this.#state.set({ ...this.#state.get(), status: retryAt === undefined ? "stopped" : "waiting", error, retryAt, since: Date.now() })
  }

  /** Uses another token. The tabs with this token share a connection of their own. */
  setToken(token: string | undefined): void {
    if (token === this.#token) return
    this.#client.setToken(token)
    this.#link?.send({ kind: "bye", tab: this.#tab })
    this.#reopen()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#link?.send({ kind: "bye", tab: this.#tab })
    this.#link?.close()
    this.#followers.clear()
    for (const end of this.#cleanup.splice(0)) end()
    this.#state.set({ ...this.#state.get(), status: "stopped", error: undefined, retryAt: undefined })
  }

  async #open(): Promise<void> {
    const { token } = this.#client.http
    this.#token = typeof token === "function" ? await token() : token
    if (this.#closed) return
    const name = this.#options.name ?? `loquat:${this.#client.baseURL}:${digest(this.#token ?? "")}`
    const receive = (message: ToTab) => this.#receive(message)
    const { worker, locks = browserLocks() } = this.#options, { fetch } = this.#client.http
    if (worker && !this.#noWorker && typeof SharedWorker === "function") {
      this.#link = workerLink(worker(name), receive, () => this.#withoutWorker())
    } else if (locks && typeof BroadcastChannel === "function") this.#link = tabLink(name, this.#tab, locks, fetch, receive)
    else this.#link = ownLink(fetch, receive)
    this.#hello()
  }

  // #withoutWorker goes on without a worker whose code cannot be loaded.
  #withoutWorker(): void {
    if (this.#closed || this.#noWorker) return
    this.#noWorker = true
    this.#reopen()
  }

  #reopen(): void {
    this.#link?.close()
    this.#link = undefined
    this.#hub = ""
    void this.#open()
  }

  // #renew goes on with another token, if the function that returns tokens has one.
  async #renew(): Promise<void> {
    const { token } = this.#client.http
    if (typeof token !== "function" || Date.now() - this.#renewed < renewAfter) return
    this.#renewed = Date.now()
    const now = await (async () => token())().catch(() => this.#token)
    if (now === this.#token || this.#closed) return
    this.#link?.send({ kind: "bye", tab: this.#tab })
    this.#reopen()
  }

  #hello(): void {
    if (this.#closed || !this.#link) return
    const { worker: _, name: __, locks: ___, ...connection } = this.#options
    this.#hub = ""
    this.#ask({ kind: "hello", tab: this.#tab, server: { baseURL: this.#client.baseURL, token: this.#token, credentials: this.#client.http.credentials, connection } })
  }

  // #beat shows that the tab reads. If the holder does not answer, the tab looks for another.
  #beat(): void {
    if (this.#closed || !this.#link) return
    const now = Date.now()
    if (this.#asked !== 0 && now - this.#asked > answerWithin) {
      this.#asked = 0
      if (++this.#unanswered === 1) return this.#hello() // it may know the tab no more
      if (this.#unanswered === 2 && this.#link.replace) this.#link.replace()
      else if (this.#unanswered > 3) this.#withoutWorker()
      return this.#hello()
    }
    if (this.#hub === "") return this.#hello()
    this.#ask({ kind: "alive", tab: this.#tab, seen: this.#seen })
    this.#unread = 0
  }

  #ask(message: ToHub): void {
    this.#asked ||= Date.now()
    this.#link?.send(message)
  }

  #receive(message: ToTab): void {
    if (this.#closed) return
    this.#asked = this.#unanswered = 0
    switch (message.kind) {
      case "welcome":
        if (message.hub === this.#hub) return
        this.#hub = message.hub
        this.#seen = 0
        if (this.#expecting) this.expectSession()
        this.#expecting = false
        for (const [id, f] of this.#followers) this.#link?.send({ kind: "follow", tab: this.#tab, id, topic: f.topic, since: f.position, resume: f.resume })
        return
      case "behind": return this.#hello()
      case "state": {
        // That the other tabs follow nothing is no news for what this tab has reported.
        if (message.state.status === "idle" && this.#followers.size === 0 && this.#state.get().error) return
        this.#state.set(restored(message.state))
        if (message.state.error?.code === "unauthorized") void this.#renew()
        return
      }
      case "gone": {
        const f = this.#followers.get(message.id)
        this.#followers.delete(message.id)
        return f?.listener.gone()
      }
      case "here":
        if (message.hub !== this.#hub) this.#hello() // an earlier holder, which had been frozen, said welcome
        return
      case "event": {
        if (message.hub !== this.#hub) return // of an earlier holder; this one sends it again
        this.#seen = message.n
        if (++this.#unread >= 500) this.#beat()
        const f = this.#followers.get(message.id)
        if (!f || message.event.event_id <= f.position) return
        f.position = message.event.event_id
        f.resume = true
        if (message.event.type === "session_deleted" && "session" in f.topic) this.#followers.delete(message.id)
        f.listener.event(message.event)
      }
    }
  }
}

/** A short digest of a text. It only tells names apart. */
function digest(text: string): string {
  let a = 0x811c9dc5, b = 0x9dc5811c
  for (let i = 0; i < text.length; i++) {
    a = Math.imul(a ^ text.charCodeAt(i), 0x01000193)
    b = Math.imul(b ^ text.charCodeAt(i), 0x85ebca6b)
  }
  return text && (a >>> 0).toString(36) + (b >>> 0).toString(36)
}

const browserLocks = (): LockManager | undefined => (typeof navigator === "object" ? (navigator as { locks?: LockManager }).locks : undefined)

function workerLink(worker: SharedWorker, receive: (message: ToTab) => void, failed: () => void): Link {
  worker.onerror = failed
  worker.port.onmessage = (e) => { for (const message of e.data as ToTab[]) receive(message) }
  worker.port.start()
  return { send: (message) => worker.port.postMessage(message), close: () => worker.port.close() }
}

// ownLink holds a connection for this tab alone.
function ownLink(fetch: LoquatOptions["fetch"], receive: (message: ToTab) => void): Link {
  const hub = new Hub({ fetch })
  return { send: (message) => hub.handle(message, (answer) => queueMicrotask(() => receive(answer))), close: () => hub.close() }
}

// tabLink elects one of the tabs: the one that gets the lock holds the connection until it ends.
function tabLink(name: string, tab: string, locks: Pick<LockManager, "request">, fetch: LoquatOptions["fetch"], receive: (message: ToTab) => void): Link {
  const channel = new BroadcastChannel(name)
  ;(channel as { unref?: () => void }).unref?.()
  const closing = new AbortController()
  let hub: Hub | undefined
  let release = () => {}
  const answer = (to: string) => (message: ToTab) => {
    if (to === tab) queueMicrotask(() => receive(message))
    else if (!closing.signal.aborted) channel.postMessage({ to, message })
  }
  channel.onmessage = (e) => {
    const { to, message, elected } = e.data as { to: string; message: ToHub | ToTab; elected?: boolean }
    if (elected) receive({ kind: "behind" }) // a new holder: follow there from what this tab has
    else if (to === tab) receive(message as ToTab)
    else if (to === "hub") hub?.handle(message as ToHub, answer((message as ToHub).tab))
  }
  const hold = (): Promise<void> => {
    hub = new Hub({ fetch })
    channel.postMessage({ elected: true })
    receive({ kind: "behind" })
    return new Promise<void>((resolve) => { release = resolve })
  }
  const elect = (options: LockOptions): void => {
    locks.request(name, options, hold).catch(() => { // it was closed, or another tab took the lock from this one, which was frozen
      hub?.close()
      hub = undefined
      if (!closing.signal.aborted) elect({ signal: closing.signal })
    })
  }
  elect({ signal: closing.signal })
  return {
    send: (message) => {
      if (hub) hub.handle(message, answer(tab))
      else channel.postMessage({ to: "hub", message })
    },
    replace: () => {
      if (hub || (typeof document === "object" && document.visibilityState === "hidden")) return false
      elect({ steal: true }) // the holder is frozen
      return true
    },
    close: () => {
      hub?.close()
      hub = undefined
      closing.abort()
      release()
      channel.close()
    },
  }
}

// together posts the messages of one piece of the stream at once: the tab shows its events together, and
// several followers share one copy of an event.
function together(post: (messages: ToTab[]) => void): (message: ToTab) => void {
  const waiting: ToTab[] = []
  return (message) => {
    if (waiting.push(message) === 1) setTimeout(() => post(waiting.splice(0)))
  }
}

/** Serves the tabs of a SharedWorker. The module `@loquat/client/shared-worker` calls it. */
export function serveTabs(scope: { onconnect: ((e: MessageEvent) => void) | null }, hub = new Hub()): void {
  scope.onconnect = (e) => {
    const port = e.ports[0]!
    const send = together((messages) => port.postMessage(messages))
    port.onmessage = (m) => hub.handle(m.data as ToHub, send)
    port.start()
  }
}
