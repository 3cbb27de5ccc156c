// Sends that survive a reload.

import { ConnectionError, ProblemError, isProblem } from "./problem.ts"
import { Store, type Readable } from "./store.ts"
import { backoff, newId, sleep } from "./time.ts"
import { type OutboxStorage, defaultStorage, memoryStorage } from "./outbox-storage.ts"
import type { SessionState } from "./fold.ts"
import type { EventId, FieldError, NewSession, Send, SendResult, Snapshot } from "./types.ts"
import type { Loquat } from "./loquat.ts"

/** A send on its way. */
export interface OutboxEntry {
  /** The request_id of the send. A repeat with it has no second effect. */
  readonly id: string
  readonly sessionId: string
  /** Entries of a session are sent in the order of this. */
  readonly order: string
  readonly send: Omit<Send, "request_id">
  /** The session is created with this: in the same call, or before the upload of images. */
  readonly create?: Omit<NewSession, "session_id">
  /** Images that are uploaded first and attached. */
  readonly files?: readonly OutboxFile[]
  /** The checkpoint that the session must have. */
  readonly ifMatch?: EventId
  /**
   * - `queued`: not sent yet; with `error` after a failed attempt, and the next is at `retryAt`
   * - `sending`: an attempt is made
   * - `sent`: the server has it; it is taken out when the session shows it: see `settle`
   * - `failed`: the server refuses it; `error` says why. Later ones of the session wait for `retry`, `edit` or `withdraw`
   */
  readonly status: "queued" | "sending" | "sent" | "failed"
  /** An attempt has begun, so the server may have it. */
  readonly attempted?: boolean
  /** An attempt has ended without an answer of the server, so a later refusal does not mean that the server has not got it. */
  readonly unsure?: boolean
  /** It was withdrawn after an attempt: the server is asked to cancel it. Clients do not show it. */
  readonly withdrawn?: boolean
  readonly error?: OutboxError
  readonly retryAt?: number
  readonly result?: SendResult
}

export interface OutboxFile {
  readonly image: Blob
  readonly name?: string
  readonly assetId?: string
}

/** The entry whose turn it is. `read` returns it as it is stored. */
interface Next {
  readonly id: string
  read(): Promise<OutboxEntry | undefined>
}

/** What failed, in a form that can be stored. */
export interface OutboxError {
  readonly code: string
  readonly message: string
  readonly errors?: readonly FieldError[]
  readonly requestId?: string
}

export interface OutboxOptions {
  /** Where entries are kept. Default: IndexedDB, otherwise memory. */
  storage?: OutboxStorage | undefined
  /** The name that tabs share. Default: the address of the server. */
  name?: string | undefined
  /** Default: the Web Locks of the browser, where there are any. */
  locks?: Pick<LockManager, "request"> | undefined
}

export interface AddOptions {
  create?: Omit<NewSession, "session_id"> | undefined
  files?: readonly { image: Blob; name?: string }[] | undefined
  /** The session's newest checkpoint. If another change comes first, the entry fails with `precondition_failed`, and again at each `retry`. */
  ifMatch?: EventId | undefined
}

/**
 * Sends that survive a reload, a lost connection and a server that restarts. Each is stored before
 * it is sent and has its `request_id`, so that it arrives once, also if two tabs send it. Those of
 * one session arrive in their order.
 */
export class Outbox implements Readable<readonly OutboxEntry[]> {
  readonly #client: Loquat
  readonly #name: string
  #after: unknown // a promise
  readonly #locks: Pick<LockManager, "request"> | undefined
  readonly #store = new Store<readonly OutboxEntry[]>([])
  readonly #closing = new AbortController()
  readonly #pumps = new Map<string, Promise<void>>()
  readonly #attempting = new Set<string>()
  readonly #withdrawn = new Set<string>() // at once; the entries say so when that is stored
  readonly #cleared = new Set<string>()
  #read = false
  readonly #created = new Map<string, Snapshot>()
  readonly #shown = new Map<string, string>() // the cursor of the newest state of each session
  readonly #channel: BroadcastChannel | undefined
  #storage: OutboxStorage
  #pause = new AbortController()
  /** Resolves when the stored entries have been read. */
  readonly ready: Promise<void>

  constructor(client: Loquat, options: OutboxOptions = {}) {
    this.#client = client
    this.#name = `loquat-outbox:${options.name ?? client.baseURL}`
    this.#locks = options.locks ?? (typeof navigator === "object" ? (navigator as { locks?: LockManager }).locks : undefined)
    this.#storage = options.storage ?? defaultStorage(this.#name)
    if (typeof BroadcastChannel === "function" && this.#storage.shared) {
      this.#channel = new BroadcastChannel(this.#name)
      ;(this.#channel as { unref?: () => void }).unref?.()
      this.#channel.onmessage = () => void this.#refresh()
    }
    this.ready = this.#refresh()
    const online = () => this.retryNow()
    if (typeof addEventListener === "function") {
      addEventListener("online", online)
      this.#closing.signal.addEventListener("abort", () => removeEventListener("online", online))
    }
  }

  get = (): readonly OutboxEntry[] => this.#store.get()
  subscribe = (listener: (entries: readonly OutboxEntry[]) => void): (() => void) => this.#store.subscribe(listener)

  /** Whether entries survive a reload. */
  get durable(): boolean { return this.#storage.durable }

  /** The entries of a session that a client shows. */
  of(sessionId: string): OutboxEntry[] {
    return this.get().filter((e) => e.sessionId === sessionId && !e.withdrawn)
  }

  /** The session as it was when this outbox created it, until `settle` gets a state of it: see `followSession`. */
  created(sessionId: string): Snapshot | undefined {
    return this.#created.get(sessionId)
  }

  /** Adds a send. It resolves when the send is stored; the attempts follow. */
  async add(sessionId: string, send: Omit<Send, "request_id">, { create, files, ifMatch }: AddOptions = {}): Promise<OutboxEntry> {
    const id = newId()
    await this.ready
    const earlier = this.get().filter((e) => e.sessionId === sessionId && e.status !== "sent")
    const last = earlier.at(-1)?.order ?? ""
    create ??= earlier.find((e) => e.withdrawn && e.create)?.create // its session may not exist
    const entry: OutboxEntry = {
      id, sessionId, order: id > last ? id : last + id, // the clock may have been set back
      send, status: "queued", ...(create ? { create } : {}), ...(files ? { files } : {}), ...(ifMatch ? { ifMatch } : {}),
    }
    const waits = this.#pumps.has(sessionId) || earlier.length > 0
    return waits ? this.#insert(entry) : this.#insertFirst({ ...entry, status: "sending", attempted: true })
  }

  /** Adds a new session with its first send. Both survive a reload as one. */
  addSession(create: Omit<NewSession, "session_id">, send: Omit<Send, "request_id">, options: Omit<AddOptions, "create" | "ifMatch"> = {}): Promise<OutboxEntry> {
    return this.add(newId(), send, { ...options, create })
  }

  /** Changes what is sent. If the server may have it already, it is withdrawn and another takes its place. */
  async edit(id: string, send: Omit<Send, "request_id">): Promise<OutboxEntry | undefined> {
    await this.ready
    const entry = this.#find(id)
    if (!entry || entry.status === "sent" || entry.withdrawn) return undefined
    const { error: _, retryAt: __, ...rest } = entry
    if (this.#mayChange(entry)) return this.#insert({ ...rest, send, status: "queued", attempted: false })
    const { attempted: ___, unsure: ____, ...fresh } = rest
    if (!(await this.withdraw(id))) return undefined
    return this.#insert({ ...fresh, id: newId(), send, status: "queued" })
  }

  /** Takes an entry out. One that the server may have is cancelled there. */
  async withdraw(id: string): Promise<boolean> {
    await this.ready
    const entry = this.#find(id)
    if (!entry || entry.status === "sent" || this.#withdrawn.has(id)) return false
    this.#withdrawn.add(id)
    const next = entry.create && this.get().find((e) => e.sessionId === entry.sessionId && e.id !== id && e.status !== "sent")
    if (next && !next.create) await this.#put({ ...next, create: entry.create! }) // its session may not exist
    if (this.#mayChange(entry)) {
      await this.#remove(id)
      void this.#pump(entry.sessionId)
    } else await this.#insert({ ...entry, withdrawn: true, ...(entry.status === "failed" ? { status: "queued" } : {}) })
    return true
  }

  /** Tries an entry again that has failed. */
  async retry(id: string): Promise<void> {
    await this.ready
    const entry = this.#find(id)
    if (entry?.status !== "failed") return
    const { error: _, ...rest } = entry
    await this.#insert({ ...rest, status: "queued" })
  }

  /** Sends nothing more until this resolves, for example until it is known that the entries are the present user's. */
  wait(until: Promise<unknown>): void {
    this.#after = until
  }

  /** Makes the next attempts at once. */
  retryNow(): void {
    this.#pause.abort()
    this.#pause = new AbortController()
    for (const sessionId of new Set(this.get().map((e) => e.sessionId))) void this.#pump(sessionId)
  }

  /** Takes out what a session shows: the sends that its state includes. */
  settle(state: Pick<SessionState, "session" | "cursor">): void {
    this.#created.delete(state.session.session_id)
    this.#shown.set(state.session.session_id, state.cursor)
    const left = this.get().filter((e) => !this.#isShown(e))
    if (left.length < this.get().length) this.#store.set(left)
  }

  /** Forgets all entries, for example when the user signs out. */
  async clear(): Promise<void> {
    await this.ready
    const ids = this.get().map(({ id }) => id)
    for (const id of ids) this.#cleared.add(id) // an attempt that is being made does not bring it back
    for (const id of ids) await this.#remove(id)
  }

  close(): void {
    this.#closing.abort()
    this.#pause.abort()
    this.#channel?.close()
  }

  // #isShown reports whether a session shows an entry. It may do so before the send is answered.
  #isShown({ status, sessionId, result }: OutboxEntry): boolean {
    const cursor = this.#shown.get(sessionId)
    return status === "sent" && cursor !== undefined && (result?.cursor_event_id ?? "") <= cursor
  }

  // #mayChange reports whether the server cannot have an entry.
  #mayChange({ id, status, attempted, unsure }: OutboxEntry): boolean {
    return (status === "failed" && !unsure) || !(attempted || this.#attempting.has(id))
  }

  #isWithdrawn(id: string): boolean {
    return this.#withdrawn.has(id) || this.#find(id)?.withdrawn === true // by another tab
  }

  #find(id: string): OutboxEntry | undefined {
    return this.get().find((e) => e.id === id)
  }

  async #insert(entry: OutboxEntry): Promise<OutboxEntry> {
    await this.#put(entry)
    void this.#pump(entry.sessionId)
    return entry
  }

  // #insertFirst adds an entry that no other one keeps back. It is sent as soon as it is stored, and it is stored
  // as one that is being sent, so one write is enough.
  async #insertFirst(entry: OutboxEntry): Promise<OutboxEntry> {
    const stored = this.#put(entry)
    void this.#pump(entry.sessionId, { id: entry.id, read: () => stored.then(() => this.#find(entry.id), () => undefined) })
    await stored
    return entry
  }

  async #put(entry: OutboxEntry): Promise<void> {
    if (this.#cleared.has(entry.id)) return
    if (entry.status === "sent") {
      this.#show(entry) // at once: sending it again has no effect
      await this.#storage.delete(entry.id).catch(() => {})
    } else {
      await this.#storage.put(entry)
      this.#show(entry)
    }
    this.#channel?.postMessage("changed")
  }

  #show(entry: OutboxEntry): void {
    const others = this.get().filter((e) => e.id !== entry.id)
    this.#store.set([...others, ...(this.#isShown(entry) ? [] : [entry])].sort(inOrder))
  }

  async #remove(id: string): Promise<void> {
    await this.#storage.delete(id)
    this.#store.set(this.get().filter((e) => e.id !== id))
    this.#channel?.postMessage("changed")
  }

  // #refresh reads what is stored. Another tab may have added entries, or sent them.
  async #refresh(): Promise<void> {
    let stored: OutboxEntry[]
    try {
      stored = await this.#storage.all()
    } catch { // the browser keeps nothing, for example in a private window
      if (this.#read) return // another time it does
      this.#storage = memoryStorage()
      stored = []
    }
    this.#read = true
    if (this.#closing.signal.aborted) return
    const sent = this.get().filter((e) => e.status === "sent" && !stored.some((s) => s.id === e.id))
    this.#store.set([...sent, ...stored].sort(inOrder))
    for (const sessionId of new Set(stored.map((e) => e.sessionId))) void this.#pump(sessionId)
  }

  // #pump sends the entries of a session, one after the other. The first may be one that is being stored.
  #pump(sessionId: string, first?: Next): Promise<void> {
    const running = this.#pumps.get(sessionId)
    if (running) return running
    const pump = this.#sendAll(sessionId, first).finally(() => this.#pumps.delete(sessionId))
    this.#pumps.set(sessionId, pump)
    return pump
  }

  async #sendAll(sessionId: string, first?: Next): Promise<void> {
    await this.ready
    for (let failures = 0; !this.#closing.signal.aborted;) {
      const after = this.#after
      await after
      const next = first ?? this.#next(sessionId)
      if (!next) return
      const attempt = async () => (after !== this.#after ? 0 : this.#attempt(next, failures).catch(() => backoff(failures))) // the storage fails
      const pause = await (first ? this.#locking(sessionId, attempt()) : this.#locked(sessionId, attempt))
      first = undefined
      if (pause === undefined) {
        failures = 0
        continue
      }
      failures++
      await sleep(Math.min(pause, 2 ** 31 - 1), this.#pause.signal).catch(() => {})
    }
  }

  #next(sessionId: string): Next | undefined {
    const waiting = this.get().filter((e) => e.sessionId === sessionId && e.status !== "sent")
    const next = waiting[0]?.status === "failed" ? waiting.find((e) => e.withdrawn) : waiting[0]
    if (!next) return undefined
    return { id: next.id, read: () => this.#storage.get(next.id) }
  }

  #locked<T>(sessionId: string, run: () => Promise<T>): Promise<T> {
    if (!this.#locks || !this.#storage.shared) return run()
    return this.#locks.request(`${this.#name}:${sessionId}`, { signal: this.#closing.signal }, run).catch((error: unknown) => {
      if (this.#closing.signal.aborted) return undefined
      throw error
    }) as Promise<T>
  }

  // #locking keeps the lock until an attempt has ended that does not wait for it. The lock is asked for before
  // other tabs can know of the entry, and an earlier entry of another tab would have kept this one back.
  #locking<T>(sessionId: string, attempt: Promise<T>): Promise<T> {
    void this.#locked(sessionId, () => attempt).catch(() => {}) // the caller gets the error
    return attempt
  }

  // #attempt makes one attempt. It returns the milliseconds until the next, or undefined if there is none.
  async #attempt({ id, read }: Next, failures: number): Promise<number | undefined> {
    this.#attempting.add(id)
    try {
      return await this.#attemptOnce(id, await read(), failures)
    } finally {
      this.#attempting.delete(id)
    }
  }

  async #attemptOnce(id: string, entry: OutboxEntry | undefined, failures: number): Promise<number | undefined> {
    if (!entry) { // another tab has sent it, or taken it out
      this.#store.set(this.get().filter((e) => e.id !== id || e.status === "sent"))
      return undefined
    }
    if (entry.status === "failed") {
      await this.#put(entry)
      return undefined
    }
    try {
      if (entry.withdrawn || this.#isWithdrawn(id)) await this.#cancel(entry)
      else await this.#send(entry)
      return undefined
    } catch (error) {
      if (this.#closing.signal.aborted) return undefined
      const stored = await this.#storage.get(id)
      if (!stored || this.#cleared.has(id)) return undefined // it was taken out meanwhile
      const withdrawn = this.#isWithdrawn(id), unanswered = !(error instanceof ProblemError) || isProblem(error, "unavailable", "internal")
      const now = { ...stored, ...(withdrawn ? { withdrawn } : {}), ...(unanswered ? { unsure: true } : {}) }
      const temporary = error instanceof ConnectionError || isProblem(error, "unavailable", "rate_limited", "unauthorized") || (withdrawn && unanswered)
      if (!temporary) {
        if (withdrawn) await this.#remove(id)
        else await this.#put({ ...now, status: "failed", error: storable(error) })
        return undefined
      }
      const asked = error instanceof ProblemError ? (error.retryAfter ?? 0) * 1000 : 0
      const pause = isProblem(error, "unauthorized") ? Infinity : Math.max(asked, backoff(failures))
      await this.#put({ ...now, status: "queued", error: storable(error), ...(Number.isFinite(pause) ? { retryAt: Date.now() + pause } : {}) })
      return pause
    }
  }

  async #send(entry: OutboxEntry): Promise<void> {
    const { id, sessionId } = entry, options = { signal: this.#closing.signal, retries: 0 }
    let now = entry
    const change = (next: OutboxEntry) => (now = this.#isWithdrawn(id) ? { ...next, withdrawn: true } : next) // it may be withdrawn at any time
    const save = (next: OutboxEntry) => this.#put(change(next))
    if (entry.status !== "sending") {
      const { error: _, retryAt: __, ...rest } = entry
      await save({ ...rest, status: "sending", attempted: true })
    }
    const arrived = (result: SendResult) => (this.#isWithdrawn(id) ? save(now) : save({ ...now, status: "sent", result }))
    if (now.create) {
      const result = await this.#create(now, now.create, options)
      const { create: _, ...created } = now
      change(created)
      if (result) return arrived(result)
      setTimeout(() => { if (this.#find(id)) this.#show(change(now)) }) // the next call goes out before pages draw the session
      if (!this.#cleared.has(id)) void this.#storage.put(now).catch(() => {}) // without it, a reload creates the session again, which conflicts
    }
    for (const [i, file] of (now.files ?? []).entries()) {
      if (file.assetId) continue
      const { asset_id } = await this.#client.assets.upload(sessionId, file.image, { ...options, name: file.name, idempotencyKey: `${id}-file-${i}` })
      await save({ ...now, files: now.files!.map((f, j) => (j === i ? { ...f, assetId: asset_id } : f)) })
    }
    if (this.#isWithdrawn(id)) return save(now) // the next attempt takes it out
    if (this.#cleared.has(id)) return
    const uploaded = (now.files ?? []).map((f) => ({ type: "image" as const, asset_id: f.assetId! }))
    const attachments = [...(now.send.attachments ?? []), ...uploaded]
    await arrived(await this.#client.send(sessionId, { ...now.send, ...(attachments.length > 0 ? { attachments } : {}), request_id: id }, { ...options, ifMatch: now.ifMatch }))
  }

  // #create creates the session of an entry, and sends in the same call unless images have to be uploaded in between.
  // It returns the result of the send, if the server has it.
  async #create({ id, sessionId, send, files }: OutboxEntry, create: Omit<NewSession, "session_id">, options: { signal: AbortSignal, retries: number }): Promise<SendResult | undefined> {
    const whole = !files?.length
    const session = { ...create, session_id: sessionId, ...(whole ? { send: { ...send, request_id: id } } : {}) }
    try {
      const snapshot = await this.#client.sessions.create(session, { ...options, idempotencyKey: `${id}-session` })
      this.#created.set(sessionId, snapshot)
      return whole ? { request_id: id, session_id: sessionId, status: "running", cursor_event_id: snapshot.cursor_event_id } : undefined
    } catch (error) {
      if (!isProblem(error, "conflict")) throw error
    }
    // The id is ours, so an earlier attempt has created the session, perhaps with the send.
    const request = await this.#client.requests.get(id, options).catch((error): undefined => {
      if (!isProblem(error, "not_found")) throw error
    })
    return request && { request_id: id, session_id: sessionId, status: request.status, cursor_event_id: "" }
  }

  // #cancel cancels a send that the server may have. If it has none, nothing is left to do.
  async #cancel({ id }: OutboxEntry): Promise<void> {
    await this.#client.cancel(id, { signal: this.#closing.signal, retries: 0 }).catch((error) => {
      if (!isProblem(error, "not_found")) throw error
    })
    await this.#remove(id)
  }
}

const inOrder = (a: OutboxEntry, b: OutboxEntry): number => (a.order < b.order ? -1 : a.order > b.order ? 1 : a.id < b.id ? -1 : 1)

function storable(error: unknown): OutboxError {
  const { code, message, errors, requestId } = error as Partial<ProblemError>
  return { code: code ?? "internal", message: message ?? String(error), ...(errors?.length ? { errors } : {}), ...(requestId ? { requestId } : {}) }
}
