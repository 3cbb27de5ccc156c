// The fold of a session: its snapshot with the events after it applied. docs/events.md has the rules.

import type { EventId, EventOf, LogEvent, Message, MessageMetadata, QueuedSend, RequestStatus, Snapshot, ToolCall } from "./types.ts"

/** A session without its messages. */
export type SessionInfo = Omit<Snapshot, "messages" | "messages_omitted" | "cursor_event_id" | "active_request_id" | "queue" | "last_request">

/** What a client knows about a session. States never change: an event makes a new state that shares what is equal. */
export interface SessionState {
  readonly session: SessionInfo
  readonly messages: readonly Message[]
  /** The reply that is being streamed and is not a message yet. */
  readonly draft: Draft | undefined
  /** The newest request: the one that runs, or how the last one ended. */
  readonly request: RequestState | undefined
  /** The tool calls without a stored result, by the id of the call. */
  readonly tools: Readonly<Record<string, ToolRun>>
  /** The sends that wait. */
  readonly queue: readonly QueuedSend[]
  /** The queue is larger than an event may be: `withQueue` puts in what `queue.get` loads. */
  readonly queueOmitted: boolean
  /** The id of the last event that the state includes. */
  readonly cursor: EventId
  /** The newest checkpoint of the session, for `ifMatch`; undefined if it is not known. */
  readonly checkpoint: EventId | undefined
  readonly deleted: boolean
}

export interface Draft {
  readonly requestId: string
  readonly content: string
  /** The reasoning so far, or "". */
  readonly reasoning: string
  /** The metadata of the increments, merged. */
  readonly metadata: MessageMetadata
}

export interface RequestState {
  readonly requestId: string
  readonly status: RequestStatus
  /** Why the request failed. */
  readonly error?: string
  /** The server waits until `resume_at` and then calls the backend again. */
  readonly retry?: Pick<EventOf<"retry_scheduled">, "attempt" | "cause" | "status" | "delay_seconds" | "resume_at">
  /** The request that took in the message of this one, which then has no reply of its own. */
  readonly steeredInto?: string
}

export interface ToolRun {
  readonly call: ToolCall
  readonly requestId: string
  /** The text that the tool has reported, with `stream_tools`. */
  readonly output: string
  readonly progress?: number
  readonly total?: number
  /** The result, once this call has ended and others of the round have not. */
  readonly result?: Message
}

/** Returns the state at a snapshot. */
export function fromSnapshot(snapshot: Snapshot): SessionState {
  const { messages, messages_omitted: _, cursor_event_id, checkpoint, active_request_id, queue = [], last_request, ...session } = snapshot
  const running: RequestState | undefined = active_request_id ? { requestId: active_request_id, status: "running" } : undefined
  return {
    session, messages, cursor: cursor_event_id, checkpoint, queue, queueOmitted: false, tools: noTools, draft: undefined, deleted: false,
    request: running ?? (last_request && {
      requestId: last_request.request_id, status: last_request.status, ...(last_request.error === undefined ? {} : { error: last_request.error }),
    }),
  }
}

/** Returns the state with a queue that was loaded. */
export function withQueue(state: SessionState, queue: readonly QueuedSend[]): SessionState {
  return { ...state, queue, queueOmitted: false }
}

const noTools: SessionState["tools"] = Object.freeze(Object.create(null)) // ids of calls are foreign texts, such as "constructor"

/**
 * Returns the state after an event. It returns the same state for an event of another session and
 * for one that the state includes. The events have to be in the order of the log.
 */
export function fold(state: SessionState, event: LogEvent): SessionState {
  if (event.session_id !== state.session.session_id || event.event_id <= state.cursor || state.deleted) return state
  return { ...apply(state, event), cursor: event.event_id }
}

function apply(state: SessionState, e: LogEvent): SessionState {
  switch (e.type) {
    case "message_appended": return addMessages(state, [e.message as Message])
    case "final": return addMessages(clearRetry(state), e.messages)
    case "tool_results": return { ...addMessages(state, e.messages), tools: without(state.tools, (_, id) => e.messages.some((m) => m.metadata?.tool_call_id === id)) }
    case "message_modified": return modifyMessage(state, e)
    case "messages_deleted": {
      const gone = new Set(e.indices)
      return { ...state, messages: state.messages.filter((_, i) => !gone.has(i)) }
    }
    case "partial": return { ...clearRetry(state), draft: extendDraft(state.draft, e) }
    case "assistant_message": return clearRetry(state)
    case "tool_calls": return { ...clearRetry(state), tools: startTools(e) }
    case "tool_partial": return continueTool(state, e)
    case "request_started":
    case "retry_scheduled":
    case "error":
    case "request_cancelled":
    case "request_completed":
      return applyRequest(state, e)
    case "queue_changed": return e.queue_omitted ? { ...state, queueOmitted: true } : withQueue(state, e.queue ?? [])
    case "checkpoint": return applyCheckpoint(state, e)
    case "session_deleted": return { ...state, deleted: true, messages: [], draft: undefined, request: undefined, tools: noTools, queue: [], queueOmitted: false }
    default: return state // also a type that this version does not know
  }
}

// addMessages appends messages. A message with a known id replaces the one with that id.
function addMessages(state: SessionState, added: readonly Message[]): SessionState {
  const messages = state.messages.slice()
  for (const m of added) {
    const known = m.id ? messages.findLastIndex((old) => old.id === m.id) : -1
    if (known < 0) messages.push(m)
    else messages[known] = m
  }
  return { ...state, messages, draft: undefined }
}

function modifyMessage(state: SessionState, e: EventOf<"message_modified">): SessionState {
  const old = state.messages[e.index]
  if (!old) return state
  const messages = state.messages.slice()
  messages[e.index] = (e.message as Message | undefined) ?? { ...old, content: e.content }
  return { ...state, messages }
}

function applyCheckpoint(state: SessionState, e: EventOf<"checkpoint">): SessionState {
  const session = { ...state.session, updated_at: e.updated_at ?? e.timestamp }
  // A checkpoint that records a change carries both. With the agent alone, the metadata has become empty.
  if (e.agent_id) session.agent_id = e.agent_id
  if (e.agent_id || e.metadata) session.metadata = e.metadata ?? {}
  return { ...state, session, checkpoint: e.event_id }
}

type RequestEvent = EventOf<"request_started" | "retry_scheduled" | "error" | "request_cancelled" | "request_completed">

function applyRequest(state: SessionState, e: RequestEvent): SessionState {
  const id = e.request_id
  if (e.type === "request_started") {
    const queue = state.queue.some((q) => q.request_id === id) ? state.queue.filter((q) => q.request_id !== id) : state.queue
    // A steering request has ended: the other one took in its message and goes on.
    // A withdrawn send starts and ends while the other one goes on.
    return e.steered_into || (isRunning(state) && state.request?.requestId !== id) ? { ...state, queue } : { ...state, queue, request: { requestId: id, status: "running" } }
  }
  let { request } = state
  if (request?.requestId === id) {
    switch (e.type) {
      case "retry_scheduled": {
        const { attempt, cause, status, delay_seconds, resume_at } = e
        request = { ...request, retry: { attempt, cause, delay_seconds, resume_at, ...(status === undefined ? {} : { status }) } }
        break
      }
      case "error": request = { requestId: id, status: "failed", error: e.detail }; break
      case "request_cancelled": request = { requestId: id, status: "cancelled" }; break
      case "request_completed": request = request.status === "running" ? { requestId: id, status: "completed" } : request
    }
  }
  if (e.type !== "request_completed") return { ...state, request }
  return { ...state, request, draft: state.draft?.requestId === id ? undefined : state.draft, tools: without(state.tools, (run) => run.requestId === id) }
}

function clearRetry(state: SessionState): SessionState {
  if (!state.request?.retry) return state
  const { retry: _, ...request } = state.request
  return { ...state, request }
}

// extendDraft returns the draft with an increment. Texts are joined by +, which JavaScript
// engines do without a copy, so a reply costs no more than its length.
function extendDraft(draft: Draft | undefined, e: EventOf<"partial">): Draft {
  const { content, metadata: added = {} } = e.message
  const { stream_restarted, ...rest } = added
  if (!draft || draft.requestId !== e.request_id || stream_restarted === true) draft = { requestId: e.request_id, content: "", reasoning: "", metadata: {} }
  const metadata = Object.keys(rest).length === 0 ? draft.metadata : mergeMetadata(draft.metadata, rest)
  return { requestId: draft.requestId, content: draft.content + content, reasoning: reasoningIn(metadata), metadata }
}

function mergeMetadata(old: MessageMetadata, added: Record<string, unknown>): MessageMetadata {
  const merged: Record<string, unknown> = { ...old }
  for (const [key, value] of Object.entries(added)) {
    const before = Object.hasOwn(merged, key) ? merged[key] : undefined
    let now = value
    if (Array.isArray(value) && Array.isArray(before)) now = [...before, ...value]
    else if ((key === "reasoning" || key === "reasoning_content") && typeof value === "string" && typeof before === "string") now = before + value
    if (key === "__proto__") Object.defineProperty(merged, key, { value: now, enumerable: true, configurable: true, writable: true })
    else merged[key] = now
  }
  return merged as MessageMetadata
}

function reasoningIn(metadata: MessageMetadata | undefined): string {
  const { reasoning_content, reasoning }: Record<string, unknown> = metadata ?? {}
  if (typeof reasoning_content === "string" && reasoning_content !== "") return reasoning_content
  return typeof reasoning === "string" ? reasoning : ""
}

function startTools(e: EventOf<"tool_calls">): SessionState["tools"] {
  const tools: Record<string, ToolRun> = Object.create(null)
  for (const call of e.tool_calls) tools[call.id] = { call, requestId: e.request_id, output: "" }
  return tools
}

function continueTool(state: SessionState, e: EventOf<"tool_partial">): SessionState {
  const old = state.tools[e.tool_call_id]
  if (!old) return state
  const { part = "", progress, total, result } = e.payload
  const run: ToolRun = {
    ...old, output: old.output + part, ...(progress === undefined ? {} : { progress }), ...(total === undefined ? {} : { total }), ...(result === undefined ? {} : { result }),
  }
  return { ...state, tools: Object.assign(Object.create(null), state.tools, { [e.tool_call_id]: run }) }
}

function without(tools: SessionState["tools"], ended: (run: ToolRun, id: string) => boolean): SessionState["tools"] {
  const entries = Object.entries(tools), left = entries.filter(([id, run]) => !ended(run, id))
  return left.length === entries.length ? tools : Object.assign(Object.create(null), Object.fromEntries(left))
}

// What follows reads states and messages.

/** The title of a session, or a name made of its id. */
export function titleOf(session: { session_id: string; metadata: Record<string, unknown> }): string {
  const { title } = session.metadata
  return typeof title === "string" && title.trim() !== "" ? title : `Session ${session.session_id.slice(-8)}`
}

/** The reasoning of a message, or "". */
export const reasoningOf = (message: Pick<Message, "metadata">): string => reasoningIn(message.metadata)

/** Whether a request runs. */
export const isRunning = (state: SessionState): boolean => state.request?.status === "running"

/** The requests that run or wait: what a Stop button cancels comes first. */
export const isBusy = (state: SessionState): boolean => isRunning(state) || state.queue.length > 0

/** A tool call with what is known about it: its result, or the progress of the running tool. */
export interface JoinedToolCall {
  readonly call: ToolCall
  readonly result: Message | undefined
  readonly run: ToolRun | undefined
}

/** Returns the tool calls of the message at an index, each with its result in the messages after it. */
export function toolCallsOf(state: Pick<SessionState, "messages" | "tools">, index: number): JoinedToolCall[] {
  const calls = state.messages[index]?.metadata?.tool_calls
  if (!Array.isArray(calls)) return []
  const results = new Map<unknown, Message>()
  for (let i = index + 1; state.messages[i]?.role === "tool"; i++) results.set(state.messages[i]!.metadata?.tool_call_id, state.messages[i]!)
  return calls.filter((c): c is ToolCall => typeof c === "object" && c !== null && typeof c.id === "string").map((call) => {
    const run = state.tools[call.id]
    return { call, run, result: results.get(call.id) ?? run?.result }
  })
}
