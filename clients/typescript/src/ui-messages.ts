// Messages of Loquat as messages of the AI SDK's UI, and back.

import { reasoningOf, type SessionState, toolCallsOf, type JoinedToolCall } from "./fold.ts"
import type { Loquat } from "./loquat.ts"
import type { Attachment, Message, Send, Snapshot } from "./types.ts"
import type { DynamicToolUIPart, FileUIPart, UIMessage } from "ai"

type Part = UIMessage["parts"][number]

/** The key of a user message's metadata that holds the id of the message in the UI. */
export const uiIdKey = "ui_message_id"

/** Returns the id that a message of a session has in the UI. */
export function uiIdOf(message: Message): string {
  const id = message.metadata?.[uiIdKey]
  return message.role === "user" && typeof id === "string" && id !== "" ? id : message.id
}

/** Returns the id in the UI of the reply to a message. It is known before the reply is stored. */
export const replyIdOf = (question: Message): string => `reply-${uiIdOf(question)}`

/**
 * Returns the messages of a session for `useChat`. A reply with its tool calls is one message with
 * a step for each call of the model. Drafts are left out: `reconnectToStream` brings them.
 */
export function toUIMessages(loquat: Loquat, session: Snapshot | SessionState): UIMessage[] {
  const [sessionId, tools] = "session" in session ? [session.session.session_id, session.tools] : [session.session_id, {}]
  const state = { messages: session.messages, tools }
  const all: UIMessage[] = []
  let reply: UIMessage | undefined, question: Message | undefined
  for (const [i, message] of state.messages.entries()) {
    if (message.role === "tool") continue
    if (message.role !== "assistant") {
      all.push({ id: uiIdOf(message), role: message.role === "user" ? "user" : "system", parts: partsOf(loquat, sessionId, message) })
      question = message
      reply = undefined
      continue
    }
    if (!reply) all.push(reply = { id: question ? replyIdOf(question) : message.id, role: "assistant", parts: [] })
    reply.parts.push(...stepParts(message, toolCallsOf(state, i)))
  }
  return all
}

function partsOf(loquat: Loquat, sessionId: string, message: Message): Part[] {
  const files = (message.metadata?.attachments ?? []).map((a): FileUIPart => ({
    type: "file", mediaType: "image", url: "asset_id" in a ? loquat.assets.url(sessionId, a.asset_id) : "data_url" in a ? a.data_url : a.url,
  }))
  return message.content === "" && files.length > 0 ? files : [...files, { type: "text", text: message.content }]
}

function stepParts(message: Message, calls: readonly JoinedToolCall[]): Part[] {
  const parts: Part[] = [{ type: "step-start" }], reasoning = reasoningOf(message)
  if (reasoning !== "") parts.push({ type: "reasoning", text: reasoning, state: "done" })
  if (message.content !== "") parts.push({ type: "text", text: message.content, state: "done" })
  return [...parts, ...calls.map(toolPart)]
}

function toolPart({ call, result }: JoinedToolCall): DynamicToolUIPart {
  const part = { type: "dynamic-tool", toolName: call.function.name, toolCallId: call.id, input: inputOf(call.function.arguments), providerExecuted: true } as const
  if (!result) return { ...part, state: "input-available" }
  if (isError(result)) return { ...part, state: "output-error", errorText: result.content }
  return { ...part, state: "output-available", output: result.content }
}

/** Reports whether the result of a tool is an error. */
export const isError = (result: Message): boolean => result.metadata?.is_error === true

/** Returns the arguments of a tool call: a JSON value, or the text that the model wrote if it is not valid JSON. */
export function inputOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Returns the fields of a send with a message of the UI. It throws if the message has a part that Loquat does not take. */
export function toSend(loquat: Loquat, sessionId: string, message: UIMessage): Pick<Send, "content" | "attachments" | "metadata"> {
  const texts: string[] = [], attachments: Attachment[] = []
  for (const part of message.parts) {
    if (part.type === "text") texts.push(part.text)
    else if (part.type === "file") attachments.push(attachmentOf(loquat, sessionId, part))
    else throw new Error(`message ${message.id}: a user message has text and images, not a part of type "${part.type}"`)
  }
  const own = typeof message.metadata === "object" ? message.metadata : {}
  return { content: texts.join("\n"), metadata: { ...own, [uiIdKey]: message.id }, ...(attachments.length > 0 ? { attachments } : {}) }
}

/** Joins the options of sends with the fields of one. A send that deletes messages, or has none of its own, takes no `on_busy`. */
export function joinSend(options: Send | undefined, fields: Send): Send {
  const { on_busy, ...send } = { ...options, ...fields }
  const adds = send.delete_from === undefined && (send.content !== undefined || send.attachments?.length)
  return adds && on_busy ? { ...send, on_busy } : send
}

function attachmentOf(loquat: Loquat, sessionId: string, part: FileUIPart): Attachment {
  if (!/^image(\/|$)/.test(part.mediaType)) throw new Error(`file ${part.filename ?? ""}: Loquat takes images, not ${part.mediaType}`)
  return imageOf(loquat, sessionId, part.url)
}

/** Returns the attachment that shows the image at a URL: an image of the session, an inline one or one elsewhere. */
export function imageOf(loquat: Loquat, sessionId: string, url: string): Attachment {
  const assets = loquat.assets.url(sessionId, "")
  if (url.startsWith(assets)) return { type: "image", asset_id: decodeURIComponent(url.slice(assets.length)) }
  return url.startsWith("data:") ? { type: "image", data_url: url } : { type: "image", url: url }
}
