// A transport for `useChat` of the AI SDK: a chat is a session, and a reply is a request.

import { isProblem } from "./problem.ts"
import { newId, sleep } from "./time.ts"
import { joinSend, replyIdOf, toSend, toUIMessages, uiIdOf } from "./ui-messages.ts"
import { TurnWriter } from "./ui-turn.ts"
import type { SessionFollower, Update } from "./follow.ts"
import type { SessionState } from "./fold.ts"
import type { Connection } from "./connection.ts"
import type { Loquat } from "./loquat.ts"
import type { EventLog } from "./log.ts"
import type { NewSession, RequestStatus, Send } from "./types.ts"
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai"

export { toUIMessages }

export interface LoquatTransportOptions {
  /** The connection to the log, if others share it. Default: one of the transport's own, open while a reply is read. */
  log?: EventLog | undefined
  /** What a session is created with when a chat without one sends. With false, sending fails instead. Default: {}. */
  createSession?: NewSession | ((chatId: string) => NewSession) | false | undefined
  /** Further fields of every send, such as `stream_tools`. `body` in the options of `sendMessage` adds fields for one send. */
  send?: Omit<Send, "content" | "attachments" | "delete_from" | "request_id"> | undefined
}

type SendOptions = Parameters<ChatTransport<UIMessage>["sendMessages"]>[0]
type ReconnectOptions = Parameters<ChatTransport<UIMessage>["reconnectToStream"]>[0]
type Outcome = { status: RequestStatus | "running"; error?: string | undefined }

/**
 * Connects `useChat` with a server of Loquat. The id of a chat is the id of its session.
 *
 * The server keeps the messages. Of the messages of the UI, only a new or changed one is sent. An
 * abort cancels the request; a page that closes or loses its connection does not.
 */
export class LoquatTransport implements ChatTransport<UIMessage> {
  /** A stream that is resumed has the reply from its beginning. */
  readonly resumeStreamIsReplay = true
  readonly #loquat: Loquat
  readonly #options: LoquatTransportOptions
  #own: Connection | undefined
  /** The newest call for each session. */
  readonly #newest = new Map<string, object>()
  /** The cancelled requests that may still run, by the session. */
  readonly #ending = new Map<string, Promise<void>>()

  constructor(loquat: Loquat, options: LoquatTransportOptions = {}) {
    this.#loquat = loquat
    this.#options = options
  }

  sendMessages = async ({ trigger, chatId, messageId, messages, abortSignal, body }: SendOptions): Promise<ReadableStream<UIMessageChunk>> => {
    const last = messages.at(-1)
    if (last?.role !== "user") throw new Error(`chat ${chatId}: the last message is not from the user, so there is nothing to send`)
    const requestId = newId(), call = {}
    this.#newest.set(chatId, call)
    const sent = this.#send(chatId, last, requestId, trigger === "regenerate-message" ? "again" : messageId === undefined ? "new" : "changed", body as Send | undefined)
    try {
      await withSignal(sent, abortSignal)
    } catch (error) {
      if (abortSignal?.aborted) void this.#cancel(chatId, requestId, sent)
      throw error
    }
    return this.#stream(chatId, requestId, last.id, abortSignal, call)
  }

  reconnectToStream = async ({ chatId, abortSignal }: ReconnectOptions): Promise<ReadableStream<UIMessageChunk> | null> => {
    const call = {}
    this.#newest.set(chatId, call)
    const page = await this.#loquat.messages.page(chatId, { last: 1 }, { signal: abortSignal }).catch((error: unknown) => {
      if (isProblem(error, "not_found")) return undefined
      throw error
    })
    return page?.active_request_id ? this.#stream(chatId, page.active_request_id, undefined, abortSignal, call) : null
  }

  /** Ends the transport's own connection. */
  close = (): void => {
    this.#own?.close()
    this.#own = undefined
  }

  get #log(): EventLog {
    return this.#options.log ?? (this.#own ??= this.#loquat.connect())
  }

  async #send(sessionId: string, message: UIMessage, requestId: string, kind: "new" | "changed" | "again", body: Send = {}): Promise<void> {
    await this.#ending.get(sessionId)
    const send = joinSend({ ...this.#options.send, ...body }, { ...(await this.#change(sessionId, message, kind)), request_id: requestId })
    try {
      await this.#loquat.send(sessionId, send)
    } catch (error) {
      const { createSession = {} } = this.#options
      if (!isProblem(error, "not_found") || createSession === false) throw error
      const session = typeof createSession === "function" ? createSession(sessionId) : createSession
      await this.#loquat.sessions.create({ ...session, session_id: sessionId }).catch((error: unknown) => {
        if (!isProblem(error, "conflict")) throw error // with conflict, another tab was faster
      })
      await this.#loquat.send(sessionId, send)
    }
  }

  // #change returns what a send adds and removes. Removed messages stay as an alternative. A message
  // that never reached the server is sent like a new one.
  async #change(sessionId: string, message: UIMessage, kind: "new" | "changed" | "again"): Promise<Send> {
    const content = () => toSend(this.#loquat, sessionId, message)
    if (kind === "new") return content()
    const messages = await this.#loquat.sessions.get(sessionId).then((s) => s.messages, (error: unknown) => {
      if (isProblem(error, "not_found")) return []
      throw error
    })
    const at = messages.findLastIndex((m) => m.role === "user" && (m.id === message.id || uiIdOf(m) === message.id))
    if (at < 0) return content()
    if (kind === "changed") return { ...content(), delete_from: at, keep: true }
    return at === messages.length - 1 ? {} : { delete_from: at + 1, keep: true }
  }

  // #stream reads the reply of a request. An abort cancels the request, unless a later call reads the
  // same session: a chat that resumes again aborts its earlier stream, and the request goes on.
  #stream(sessionId: string, requestId: string, uiId: string | undefined, signal: AbortSignal | undefined, call: object): ReadableStream<UIMessageChunk> {
    let reply: Reply | undefined
    const isNewest = () => this.#newest.get(sessionId) === call
    const abort = () => {
      void this.#cancel(sessionId, requestId, sleep(0).then(() => { if (!isNewest()) throw signal?.reason }))
      reply?.end({ status: "cancelled" })
    }
    const close = () => signal?.removeEventListener("abort", abort)
    return new ReadableStream<UIMessageChunk>({
      start: (controller) => {
        reply = new Reply(this.#loquat, this.#log, { sessionId, requestId, uiId }, controller, close)
        if (signal?.aborted) abort()
        else signal?.addEventListener("abort", abort)
      },
      cancel: () => reply?.stop(),
    })
  }

  // #cancel cancels a request once `first` is done, if that succeeds. The next send to the session
  // waits until the request has ended.
  #cancel(sessionId: string, requestId: string, first: Promise<void>): Promise<void> {
    const ending = (async () => {
      await first
      await this.#loquat.cancel(requestId)
      for (const end = Date.now() + 10_000; Date.now() < end; await sleep(50)) {
        const { status } = await this.#loquat.requests.get(requestId)
        if (status !== "running" && status !== "queued") return
      }
    })().catch(() => {}).finally(() => { // a request that could not be cancelled refuses the next send as busy
      if (this.#ending.get(sessionId) === ending) this.#ending.delete(sessionId)
    })
    this.#ending.set(sessionId, ending)
    return ending
  }
}

interface ReplyNames {
  readonly sessionId: string
  readonly requestId: string
  /** The id in the UI of the message that the request answers, if that is known. */
  readonly uiId: string | undefined
}

/** Follows a session until a request has ended, and writes its reply. */
class Reply {
  readonly #loquat: Loquat
  readonly #names: ReplyNames
  readonly #controller: ReadableStreamDefaultController<UIMessageChunk>
  readonly #follower: SessionFollower
  readonly #cleanup: (() => void)[]
  #writer: TurnWriter | undefined
  #ended = false

  constructor(loquat: Loquat, log: EventLog, names: ReplyNames, controller: ReadableStreamDefaultController<UIMessageChunk>, close: () => void) {
    this.#loquat = loquat
    this.#names = names
    this.#controller = controller
    const follower = this.#follower = loquat.followSession(log, names.sessionId)
    follower.onUpdate((update) => this.#update(update))
    const fails = (error: Error | undefined) => this.end({ status: "failed", error: error?.message ?? `session ${names.sessionId} was deleted` })
    this.#cleanup = [
      close, () => follower.close(),
      follower.subscribe(({ status, error }) => { if (status !== "loading" && status !== "ready") fails(error) }),
      log.state.subscribe(({ status, error }) => { if (status === "stopped") fails(error) }),
    ]
  }

  /** Stops reading. */
  stop(): void {
    this.#ended = true
    for (const end of this.#cleanup.splice(0)) end()
  }

  /** Writes the end of the reply. */
  end({ status, error }: Outcome): void {
    if (this.#ended) return
    this.#writer?.end()
    if (status === "failed") this.#controller.enqueue({ type: "error", errorText: error ?? "the request failed" })
    else this.#controller.enqueue(status === "cancelled" ? { type: "abort" } : { type: "finish", finishReason: "stop" })
    this.stop()
    this.#controller.close()
  }

  #update({ event, state }: Update): void {
    if (this.#ended) return
    const { requestId } = this.#names
    if (state.request?.requestId === requestId) this.#begin(state).update(state, event)
    const outcome = outcomeOf(requestId, { event, state })
    if (outcome) this.end(outcome)
    else if (!event && state.request?.requestId !== requestId && !state.queue.some((q) => q.request_id === requestId)) void this.#ask()
  }

  #begin(state: SessionState): TurnWriter {
    if (this.#writer) return this.#writer
    const { uiId } = this.#names
    const question = state.messages.findLast((m) => m.role === "user" && (uiId === undefined || m.id === uiId || uiIdOf(m) === uiId))
    this.#controller.enqueue(question ? { type: "start", messageId: replyIdOf(question) } : { type: "start" })
    return this.#writer = new TurnWriter(question?.id, (chunk) => this.#controller.enqueue(chunk))
  }

  // #ask asks for a request that a loaded session does not show: other requests came after it.
  async #ask(): Promise<void> {
    const request = await this.#loquat.requests.get(this.#names.requestId).catch((error: Error): Outcome => ({ status: "failed", error: error.message }))
    if (request.status !== "running" && request.status !== "queued") this.end(request)
  }
}

function outcomeOf(requestId: string, { event, state }: Update): Outcome | undefined {
  if (!event) return state.request?.requestId === requestId && state.request.status !== "running" ? state.request : undefined
  if (!("request_id" in event) || event.request_id !== requestId) return undefined
  switch (event.type) {
    case "error": return { status: "failed", error: event.detail }
    case "request_cancelled": return { status: "cancelled" }
    case "request_completed": return { status: "completed" }
  }
}

/** Waits for a promise, but no longer than until the signal is aborted. */
async function withSignal<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return promise
  signal.throwIfAborted()
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    signal.addEventListener("abort", abort)
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort))
  })
}
