// Messages of Loquat as messages of assistant-ui, and back.

import { type SessionState, isRunning, reasoningOf, toolCallsOf, type JoinedToolCall } from "./fold.ts"
import { imageOf, inputOf, isError, replyIdOf, uiIdOf } from "./ui-messages.ts"
import type { Loquat } from "./loquat.ts"
import type { Message, Send } from "./types.ts"
import type { AppendMessage, ThreadMessageLike } from "@assistant-ui/react"

type Parts = Exclude<ThreadMessageLike["content"], string>
type Part = Parts[number]
type Status = NonNullable<ThreadMessageLike["status"]>

/** A message of assistant-ui with the messages of the session that it shows. */
export interface Shown {
  readonly like: ThreadMessageLike
  /** The index of its first message in the session. A reply that is still a draft has the index after the last message. */
  readonly from: number
  readonly to: number
}

interface Group {
  id: string
  from: number
  to: number
}

interface Cached {
  readonly sources: readonly unknown[]
  readonly like: ThreadMessageLike
}

/** Converts the states of one session. A message that did not change stays the same object. */
export class ThreadMessages {
  readonly #loquat: Loquat
  readonly #sessionId: string
  #cache = new Map<string, Cached>()

  constructor(loquat: Loquat, sessionId: string) {
    this.#loquat = loquat
    this.#sessionId = sessionId
  }

  /** Returns the messages of a state. A reply with its tool calls and its draft is one message. */
  of(state: SessionState): Shown[] {
    const cache = new Map<string, Cached>()
    const groups = groupsOf(state)
    const all = groups.map((group, i): Shown => {
      const messages = state.messages.slice(group.from, group.to)
      const isReply = messages.length === 0 || messages[0]!.role === "assistant"
      const newest = isReply && i === groups.length - 1
      const sources = newest ? [...messages, state.draft, state.tools, state.request] : messages
      const known = this.#cache.get(group.id)
      const like = known && sameItems(known.sources, sources) ? known.like
        : isReply ? reply(state, group, newest) : this.#other(messages[0]!)
      cache.set(group.id, { sources, like })
      return { like, from: group.from, to: group.to }
    })
    this.#cache = cache
    return all
  }

  #other(message: Message): ThreadMessageLike {
    const images = (message.metadata?.attachments ?? []).map((a): Part => ({
      type: "image", image: "asset_id" in a ? this.#loquat.assets.url(this.#sessionId, a.asset_id) : "data_url" in a ? a.data_url : a.url,
    }))
    const text: Part[] = message.content === "" && images.length > 0 ? [] : [{ type: "text", text: message.content }]
    const createdAt = new Date(message.created_at)
    return message.role === "user" ? { id: uiIdOf(message), role: "user", content: [...images, ...text], createdAt } : { id: message.id, role: "system", content: text, createdAt }
  }
}

const sameItems = (a: readonly unknown[], b: readonly unknown[]): boolean => a.length === b.length && a.every((item, i) => item === b[i])

// groupsOf returns which messages of a session are one message of assistant-ui. A request that runs,
// or that failed before it wrote anything, has a reply too.
function groupsOf(state: SessionState): Group[] {
  const groups: Group[] = [], { messages, request } = state
  const replyId = (question: Message | undefined, first: Message | undefined) => question ? replyIdOf(question) : first?.id ?? "reply"
  let question: Message | undefined, inReply = false
  for (const [i, message] of messages.entries()) {
    const isReply = message.role === "assistant" || message.role === "tool"
    if (isReply && inReply) groups.at(-1)!.to = i + 1
    else groups.push({ id: isReply ? replyId(question, message) : uiIdOf(message), from: i, to: i + 1 })
    if (!isReply) question = message
    inReply = isReply
  }
  if (!inReply && (isRunning(state) || (request?.status === "failed" && question))) groups.push({ id: replyId(question, undefined), from: messages.length, to: messages.length })
  return groups
}

function reply(state: SessionState, group: Group, newest: boolean): ThreadMessageLike {
  const content: Part[] = [], ids = new Set<string>()
  let last: Message | undefined
  for (let i = group.from; i < group.to; i++) {
    const message = state.messages[i]!
    if (message.role !== "assistant") continue
    last = message
    content.push(...texts(reasoningOf(message), message.content), ...toolCallsOf(state, i).map((call) => toolPart(call, ids)))
  }
  if (newest && state.draft) content.push(...texts(state.draft.reasoning, state.draft.content))
  const first = state.messages[group.from] ?? state.messages[group.from - 1] // a draft has no time yet
  return { id: group.id, role: "assistant", content, ...(first ? { createdAt: new Date(first.created_at) } : {}), status: newest ? newestStatus(state, last) : statusOf(last) }
}

const texts = (reasoning: string, text: string): Part[] => [
  ...(reasoning === "" ? [] : [{ type: "reasoning" as const, text: reasoning }]), ...(text === "" ? [] : [{ type: "text" as const, text }]),
]

function newestStatus(state: SessionState, last: Message | undefined): Status {
  if (isRunning(state)) return { type: "running" }
  if (state.request?.status === "failed") return { type: "incomplete", reason: "error", error: state.request.error ?? "the request failed" }
  return statusOf(last)
}

function statusOf(message: Message | undefined): Status {
  switch (message?.metadata?.incomplete) {
    case undefined: return { type: "complete", reason: "stop" }
    case "cancelled": return { type: "incomplete", reason: "cancelled" }
    default: return { type: "incomplete", reason: "error" }
  }
}

// toolPart returns a part with an id that the reply does not have yet: some backends number the
// calls of each round from the start, and assistant-ui finds a call by its id.
function toolPart({ call, result, run }: JoinedToolCall, ids: Set<string>): Part {
  let toolCallId = call.id
  for (let n = 2; ids.has(toolCallId); n++) toolCallId = `${call.id}#${n}`
  ids.add(toolCallId)
  const input = inputOf(call.function.arguments)
  return {
    type: "tool-call", toolCallId, toolName: call.function.name, argsText: call.function.arguments,
    ...(typeof input === "object" && input !== null && !Array.isArray(input) ? { args: input as object as Record<string, never> } : {}),
    ...(result ? { result: result.content, isError: isError(result) } : {}),
    ...(run && !result ? { artifact: { output: run.output, progress: run.progress, total: run.total } } : {}),
  }
}

/** Returns the fields of a send with a message of assistant-ui. It throws if the message has a part that Loquat does not take. */
export function sendOf(loquat: Loquat, sessionId: string, message: Pick<AppendMessage, "content" | "attachments">): Pick<Send, "attachments"> & { content: string } {
  const words: string[] = [], attachments: NonNullable<Send["attachments"]> = []
  for (const part of [...message.content, ...(message.attachments ?? []).flatMap((a) => a.content)]) {
    if (part.type === "text") words.push(part.text)
    else if (part.type === "image") attachments.push(imageOf(loquat, sessionId, part.image))
    else throw new Error(`Loquat takes text and images, not a part of type "${part.type}"`)
  }
  return { content: words.join("\n"), ...(attachments.length > 0 ? { attachments } : {}) }
}
