// Runtimes for assistant-ui: a thread is a session that is followed, and the list of threads is the list of sessions.

import { type AppendMessage, type AssistantRuntime, type ExternalStoreAdapter, type ThreadMessageLike, useExternalStoreRuntime } from "@assistant-ui/react"
import { useEffect, useMemo, useState } from "react"
import { type Shown, ThreadMessages, sendOf } from "./assistant-ui-messages.ts"
import { type SessionState, isRunning, titleOf } from "./fold.ts"
import { joinSend, uiIdKey } from "./ui-messages.ts"
import type { FollowedList, FollowedSession, SessionFollower } from "./follow.ts"
import type { ListFilter } from "./list.ts"
import type { EventLog } from "./log.ts"
import type { Loquat } from "./loquat.ts"
import type { NewSession, Send, SessionSummary } from "./types.ts"

type Adapters = NonNullable<ExternalStoreAdapter["adapters"]>
type ThreadListAdapter = NonNullable<Adapters["threadList"]>

export interface LoquatRuntimeOptions {
  /** Further fields of every send, such as `stream_tools`. */
  send?: Omit<Send, "content" | "attachments" | "delete_from" | "keep" | "request_id"> | undefined
  /** Further adapters of assistant-ui: for attachments, speech or the list of threads (see `useLoquatThreads`). */
  adapters?: Adapters | undefined
  /** Called with the error of a call that failed. By default the call of assistant-ui fails with it. */
  onError?: ((error: Error) => void) | undefined
}

const nothing: FollowedSession = { status: "loading", state: undefined, error: undefined }

/**
 * Returns a runtime for a session. It shows what the log has: replies that are being written, also
 * after a reload, and what other clients do. `extras` of the thread is the followed session.
 */
export function useLoquatRuntime(loquat: Loquat, log: EventLog, sessionId: string, options: LoquatRuntimeOptions = {}): AssistantRuntime {
  const followed = useSession(loquat, log, sessionId)
  const converter = useMemo(() => new ThreadMessages(loquat, sessionId), [loquat, sessionId])
  const { state, status } = followed
  const shown = useMemo(() => (state ? converter.of(state) : []), [converter, state])
  const messages = useMemo(() => shown.map((s) => s.like), [shown])
  const thread = new Thread(loquat, sessionId, state, shown, options)
  return useExternalStoreRuntime<ThreadMessageLike>({
    messages, convertMessage: same, extras: followed,
    isLoading: status === "loading", isDisabled: status !== "loading" && status !== "ready", isRunning: state !== undefined && isRunning(state),
    onNew: (message) => thread.try(() => thread.append(message)),
    onEdit: (message) => thread.try(() => thread.edit(message)),
    onReload: (parentId) => thread.try(() => thread.reload(parentId)),
    onDelete: (id) => thread.try(() => thread.delete(id)),
    onCancel: () => thread.try(() => thread.cancel()),
    ...(options.adapters ? { adapters: options.adapters } : {}),
  })
}

const same = (message: ThreadMessageLike): ThreadMessageLike => message

function useSession(loquat: Loquat, log: EventLog, sessionId: string): FollowedSession {
  const [now, setNow] = useState<{ follower: SessionFollower; followed: FollowedSession } | undefined>()
  useEffect(() => {
    const follower = loquat.followSession(log, sessionId)
    const show = () => setNow({ follower, followed: follower.get() })
    const end = follower.subscribe(show)
    show()
    return () => {
      end()
      follower.close()
    }
  }, [loquat, log, sessionId])
  return now?.follower.sessionId === sessionId ? now.followed : nothing // the state of the session before is not this one's
}

/** What a user does with the thread, at one state of its session. */
class Thread {
  readonly #loquat: Loquat
  readonly #sessionId: string
  readonly #state: SessionState | undefined
  readonly #shown: readonly Shown[]
  readonly #options: LoquatRuntimeOptions

  constructor(loquat: Loquat, sessionId: string, state: SessionState | undefined, shown: readonly Shown[], options: LoquatRuntimeOptions) {
    this.#loquat = loquat
    this.#sessionId = sessionId
    this.#state = state
    this.#shown = shown
    this.#options = options
  }

  async try(act: () => Promise<unknown>): Promise<void> {
    const { onError } = this.#options
    await act().catch((error: Error) => {
      if (!onError) throw error
      onError(error)
    })
  }

  async append(message: AppendMessage): Promise<void> {
    const { role } = message, fields = sendOf(this.#loquat, this.#sessionId, message)
    if (role === "user" && message.startRun !== false) await this.#send(fields)
    else await this.#loquat.messages.append(this.#sessionId, { role, ...fields })
  }

  // edit replaces a message and what comes after it. The new message has the id of the old one in
  // the UI, so the UI shows it in the same place. What was replaced stays as an alternative.
  async edit(message: AppendMessage): Promise<void> {
    const at = message.sourceId === null ? this.#after(message.parentId) : this.#find(message.sourceId)
    const old = this.#shown[at]
    if (message.role !== "user" || (old && old.like.role !== "user")) throw new Error("only messages of the user can be edited")
    const metadata = old ? { [uiIdKey]: old.like.id! } : {}
    await this.#send({ ...sendOf(this.#loquat, this.#sessionId, message), metadata, ...this.#replacing(at) })
  }

  async reload(parentId: string | null): Promise<void> {
    await this.#send(this.#replacing(this.#after(parentId)))
  }

  async delete(id: string): Promise<void> {
    const { from, to } = this.#shown[this.#find(id)]!
    await this.#loquat.messages.delete(this.#sessionId, Array.from({ length: to - from }, (_, i) => from + i))
  }

  async cancel(): Promise<void> {
    if (this.#state?.request && isRunning(this.#state)) await this.#loquat.cancel(this.#state.request.requestId)
  }

  async #send(send: Send): Promise<void> {
    await this.#loquat.send(this.#sessionId, joinSend(this.#options.send, send))
  }

  #find(id: string): number {
    const at = this.#shown.findIndex((s) => s.like.id === id)
    if (at < 0) throw new Error(`session ${this.#sessionId} has no message ${id} any more`)
    return at
  }

  #after(parentId: string | null): number { return parentId === null ? 0 : this.#find(parentId) + 1 }

  // #replacing returns the fields of a send that replaces what is shown from a place on, if anything is.
  #replacing(at: number): Send {
    const from = this.#shown[at]?.from ?? Infinity
    return from < (this.#state?.messages.length ?? 0) ? { delete_from: from, keep: true } : {}
  }
}

export interface LoquatThreadsOptions {
  /** The session that is shown. */
  sessionId: string
  /** Called with the session that is to be shown, such as a new one. */
  onSwitch: (sessionId: string) => void
  /** Default: all sessions, also archived ones. */
  filter?: ListFilter | undefined
  /** What a new session is created with. Default: {}. */
  createSession?: NewSession | undefined
}

/** Returns the list of sessions as the list of threads, for `adapters.threadList`. It has the first 200 sessions. */
export function useLoquatThreads(loquat: Loquat, log: EventLog, options: LoquatThreadsOptions): ThreadListAdapter {
  const { sessionId, onSwitch, filter = { archived: "any" }, createSession } = options
  const followed = useList(loquat, log, filter)
  const threads = (followed?.list?.sessions ?? []).map((s) => ({ id: s.session_id, title: titleOf(s), isArchived: isArchived(s) }))
  const patch = async (id: string, metadata: Record<string, unknown>) => { await loquat.sessions.patch(id, { metadata }) }
  return {
    threadId: sessionId, isLoading: followed === undefined || followed.status === "loading",
    threads: threads.filter((t) => !t.isArchived).map(({ id, title }) => ({ id, title, status: "regular" })),
    archivedThreads: threads.filter((t) => t.isArchived).map(({ id, title }) => ({ id, title, status: "archived" })),
    onSwitchToNewThread: async () => onSwitch((await loquat.sessions.create(createSession)).session_id),
    onSwitchToThread: (id) => onSwitch(id),
    onRename: (id, title) => patch(id, { title }),
    onArchive: (id) => patch(id, { archived: true }),
    onUnarchive: (id) => patch(id, { archived: null }),
    onDelete: (id) => loquat.sessions.delete(id),
  }
}

const isArchived = (session: SessionSummary): boolean => session.metadata.archived === true

function useList(loquat: Loquat, log: EventLog, filter: ListFilter): FollowedList | undefined {
  const [followed, setFollowed] = useState<FollowedList | undefined>()
  const key = JSON.stringify(filter) // an object written in the call is another one at each rendering
  useEffect(() => {
    const follower = loquat.followList(log, { filter: JSON.parse(key) as ListFilter, pageSize: 200 })
    const end = follower.subscribe(setFollowed)
    setFollowed(follower.get())
    return () => {
      end()
      follower.close()
    }
  }, [loquat, log, key])
  return followed
}
