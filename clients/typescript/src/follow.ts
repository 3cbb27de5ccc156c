// Followers: a session and the list of sessions, as they are now.

import { type SessionState, fold, fromSnapshot, withQueue } from "./fold.ts"
import { type ListFilter, type ListState, addPage, foldList, fromPage } from "./list.ts"
import { ConnectionError, type LoquatError, ProblemError, isProblem } from "./problem.ts"
import { Store, type Readable, emit } from "./store.ts"
import { backoff, sleep } from "./time.ts"
import type { Loquat } from "./loquat.ts"
import type { EventLog } from "./log.ts"
import type { LogEvent, SessionList, Snapshot } from "./types.ts"

export interface FollowedSession {
  /**
   * - `loading`: there is no state yet
   * - `ready`: `state` is the session as the log has it so far
   * - `missing`: there is no such session; `deleted`: it was deleted meanwhile
   * - `failed`: `error` says why it cannot be loaded
   */
  readonly status: "loading" | "ready" | "missing" | "deleted" | "failed"
  readonly state: SessionState | undefined
  readonly error: LoquatError | undefined
}

/** What a listener of events gets: an event with the state after it, or a state that was loaded. */
export interface Update {
  readonly event: LogEvent | undefined
  readonly state: SessionState
}

/** Keeps the state of one session. */
export class SessionFollower implements Readable<FollowedSession> {
  readonly sessionId: string
  readonly #client: Loquat
  readonly #log: EventLog
  readonly #store = new Store<FollowedSession>({ status: "loading", state: undefined, error: undefined })
  readonly #updates = new Set<(update: Update) => void>()
  readonly #closing = new AbortController()
  #unfollow: () => void = () => {}
  #loads = 0 // only the newest counts

  /** `snapshot` is the session as a call has just returned it. Without it, the session is loaded. */
  constructor(client: Loquat, log: EventLog, sessionId: string, snapshot?: Snapshot) {
    this.#client = client
    this.#log = log
    this.sessionId = sessionId
    void this.#load(snapshot)
  }

  get = (): FollowedSession => this.#store.get()
  subscribe = (listener: (value: FollowedSession) => void): (() => void) => this.#store.subscribe(listener)

  /** Calls the listener with every event, once and in order, and with each state that was loaded. */
  onUpdate(listener: (update: Update) => void): () => void {
    this.#updates.add(listener)
    return () => { this.#updates.delete(listener) }
  }

  /** Loads the session again, for example after `failed`. */
  reload(): void {
    this.#unfollow()
    void this.#load()
  }

  close(): void {
    this.#closing.abort()
    this.#unfollow()
    this.#updates.clear()
  }

  async #load(known?: Snapshot): Promise<void> {
    const { signal } = this.#closing, n = ++this.#loads
    const snapshot = await (known ?? loadUntil(() => this.#client.sessions.get(this.sessionId, { signal, retries: 0 }), this.#log, signal, (error) => {
      if (n === this.#loads) this.#store.set({ ...this.get(), error })
    }).catch((error: LoquatError) => {
      if (signal.aborted || n !== this.#loads) return
      const missing = isProblem(error, "not_found")
      const was = this.get()
      this.#store.set({ status: missing ? (was.state ? "deleted" : "missing") : "failed", state: was.state, error })
    }))
    if (!snapshot || signal.aborted || n !== this.#loads) return
    const state = fromSnapshot(snapshot)
    this.#unfollow = this.#log.follow({ session: this.sessionId }, state.cursor, {
      event: (event) => this.#take(event),
      gone: () => void this.#load(),
    })
    this.#store.set({ status: "ready", state, error: undefined })
    emit(this.#updates, { event: undefined, state })
  }

  #take(event: LogEvent): void {
    const old = this.get().state
    if (this.#closing.signal.aborted || !old) return
    const state = fold(old, event)
    if (state === old) return
    this.#store.set({ status: state.deleted ? "deleted" : "ready", state, error: undefined })
    emit(this.#updates, { event, state })
    if (state.queueOmitted && !old.queueOmitted) void this.#loadQueue()
  }

  // #loadQueue loads a queue that an event left out. If it changes meanwhile, a later event says so.
  async #loadQueue(): Promise<void> {
    const { signal } = this.#closing
    const loaded = await loadUntil(() => this.#client.queue.get(this.sessionId, { signal, retries: 0 }), this.#log, signal, () => {}).catch(() => undefined)
    const { status, state } = this.get()
    if (!loaded || !state?.queueOmitted || status !== "ready") return
    const now = withQueue(state, loaded.queue)
    this.#store.set({ status, state: now, error: undefined })
    emit(this.#updates, { event: undefined, state: now })
  }
}

export interface FollowedList {
  readonly status: "loading" | "ready" | "failed"
  readonly list: ListState | undefined
  /** Whether there are further sessions: see `loadMore`. */
  readonly more: boolean
  readonly error: LoquatError | undefined
}

const mostSessions = 200 // of a page

/** Keeps the list of sessions. */
export class ListFollower implements Readable<FollowedList> {
  readonly #client: Loquat
  readonly #log: EventLog
  readonly #filter: ListFilter
  readonly #limit: number
  readonly #store = new Store<FollowedList>({ status: "loading", list: undefined, more: false, error: undefined })
  readonly #closing = new AbortController()
  #unfollow: () => void = () => {}
  #loads = 0 // only the newest counts
  #more: Promise<void> | undefined
  #again: ReturnType<typeof setTimeout> | undefined

  constructor(client: Loquat, log: EventLog, options: { filter?: ListFilter; pageSize?: number } = {}) {
    this.#client = client
    this.#log = log
    this.#filter = options.filter ?? {}
    this.#limit = options.pageSize ?? 50
    void this.#load()
  }

  get = (): FollowedList => this.#store.get()
  subscribe = (listener: (value: FollowedList) => void): (() => void) => this.#store.subscribe(listener)

  /** Loads the next page. Calls at the same time share it. */
  loadMore(): Promise<void> {
    const { list } = this.get()
    if (!list?.next) return Promise.resolve()
    this.#more ??= this.#page(list.next).then((page) => {
      const now = this.get().list
      if (now) this.#set(addPage(now, page))
    }).finally(() => { this.#more = undefined })
    return this.#more
  }

  reload(): void {
    this.#unfollow()
    void this.#load()
  }

  close(): void {
    this.#closing.abort()
    this.#unfollow()
    clearTimeout(this.#again)
  }

  #page(token?: string, limit = this.#limit): Promise<SessionList> {
    return this.#client.sessions.page({ ...this.#filter, limit, ...(token === undefined ? {} : { page_token: token }) }, { signal: this.#closing.signal })
  }

  async #load(): Promise<void> {
    const { signal } = this.#closing, n = ++this.#loads
    const limit = Math.min(mostSessions, Math.max(this.#limit, this.get().list?.sessions.length ?? 0))
    const loaded = await loadUntil(async () => {
      const page = await this.#client.sessions.page({ ...this.#filter, limit }, { signal, retries: 0 })
      if (page.cursor_event_id !== undefined) return { page, cursor: page.cursor_event_id }
      const cursor = await this.#client.events.latest({ signal, retries: 0 }) // before the page that counts
      return { page: await this.#client.sessions.page({ ...this.#filter, limit }, { signal, retries: 0 }), cursor }
    }, this.#log, signal, (error) => this.#store.set({ ...this.get(), error })).catch((error: LoquatError) => {
      if (!signal.aborted && n === this.#loads) this.#store.set({ ...this.get(), status: "failed", error })
    })
    if (!loaded || signal.aborted || n !== this.#loads) return
    this.#unfollow = this.#log.follow({ list: true }, loaded.cursor, {
      event: (event) => {
        const { list } = this.get()
        if (list && !signal.aborted) this.#set(foldList(list, event))
      },
      gone: () => void this.#load(),
    })
    this.#set(fromPage(loaded.page, this.#filter, loaded.cursor))
  }

  #set(list: ListState): void {
    this.#store.set({ status: "ready", list, more: list.next !== undefined, error: undefined })
    if (list.unknown.size === 0 || this.#again !== undefined) return
    this.#again = setTimeout(() => { // many changes at once need one page
      const now = this.get().list ?? list
      if (now.unknown.size > mostSessions) {
        this.#again = undefined
        return this.reload()
      }
      const pinned = now.sessions.filter((s) => s.metadata.pinned === true) // which come first
      void this.#page(undefined, Math.min(mostSessions, Math.max(this.#limit, pinned.length + now.unknown.size))).then((page) => {
        this.#again = undefined
        const now = this.get().list
        if (now && !this.#closing.signal.aborted) this.#set(addPage(now, page, true))
      }, () => { this.#again = undefined }) // the next change tries again
    }, 200)
  }
}

// loadUntil loads again until it succeeds or fails for good. It reports failures to the log, whose
// state is what a user sees. After 401 it waits until the log goes on.
async function loadUntil<T>(load: () => Promise<T>, log: EventLog, signal: AbortSignal, failed: (error: LoquatError) => void): Promise<T> {
  for (let failures = 0; ; failures++) {
    try {
      return await load()
    } catch (error) {
      if (signal.aborted || !(error instanceof ProblemError || error instanceof ConnectionError)) throw error
      const temporary = error instanceof ConnectionError || isProblem(error, "unavailable", "rate_limited")
      if (!temporary && !isProblem(error, "unauthorized")) throw error
      const asked = error instanceof ProblemError ? (error.retryAfter ?? 0) * 1000 : 0
      const pause = temporary ? Math.max(asked, backoff(failures)) : undefined
      failed(error)
      log.report(error, pause === undefined ? undefined : Date.now() + pause)
      await wake(log, signal, pause)
    }
  }
}

// wake waits for a time, or until the connection to the log goes on.
async function wake(log: EventLog, signal: AbortSignal, ms = 2 ** 31 - 1): Promise<void> {
  const waiting = new AbortController()
  const end = () => waiting.abort()
  const unsubscribe = log.state.subscribe(({ status }) => { if (status !== "waiting" && status !== "stopped") end() })
  signal.addEventListener("abort", end)
  await sleep(ms, waiting.signal).catch(() => {})
  unsubscribe()
  signal.removeEventListener("abort", end)
  if (signal.aborted) throw signal.reason
}
