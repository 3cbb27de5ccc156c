// The reply to one message as the chunks of the AI SDK's UI: what each state of a session adds.

import { type Draft, reasoningOf, type SessionState, toolCallsOf, type JoinedToolCall } from "./fold.ts"
import { inputOf, isError } from "./ui-messages.ts"
import type { LogEvent, Message } from "./types.ts"
import type { UIMessageChunk } from "ai"

/** What was written of one call of the model. */
interface Step {
  text: string
  textId: string
  reasoning: string
  reasoningId: string
  /** The ids of the tool calls that were written, with the text of the result or of the output so far. */
  tools: Map<string, { output: string; ended: boolean }>
}

const newStep = (): Step => ({ text: "", textId: "", reasoning: "", reasoningId: "", tools: new Map() })

/**
 * Writes the reply to a message as chunks. It compares each state with what it has written, so any
 * states of a session in the order of the log give the same message.
 */
export class TurnWriter {
  readonly #write: (chunk: UIMessageChunk) => void
  readonly #questionId: string | undefined
  #step: Step | undefined
  /** How many messages of the reply have been written in full. */
  #finished = 0
  #parts = 0

  /** The reply is what follows the message with this id. */
  constructor(questionId: string | undefined, write: (chunk: UIMessageChunk) => void) {
    this.#questionId = questionId
    this.#write = write
  }

  /** Writes what a state has beyond the last one. `event` led to it; without one, the session was loaded. */
  update(state: SessionState, event: LogEvent | undefined): void {
    if (!event || (event.type === "partial" && event.message.metadata?.stream_restarted === true)) this.#reset()
    const question = state.messages.findLastIndex((m) => m.id === this.#questionId)
    const replies: number[] = []
    for (let i = question + 1; i < state.messages.length; i++) if (state.messages[i]!.role === "assistant") replies.push(i)
    for (const i of replies.slice(this.#finished)) {
      const calls = toolCallsOf(state, i)
      this.#writeMessage(state.messages[i]!, calls)
      if (calls.some((c) => !c.result) && i === replies.at(-1)) return
      this.#finishStep()
      this.#finished++
    }
    if (state.draft) this.#writeDraft(state.draft, event?.type === "partial" ? event.message.content : undefined)
  }

  /** Ends the parts that are open. */
  end(): void {
    for (const [toolCallId, tool] of this.#step?.tools ?? []) {
      if (!tool.ended) this.#write({ type: "tool-output-error", toolCallId, errorText: "The request ended before the tool did.", providerExecuted: true })
    }
    if (this.#step) this.#finishStep()
  }

  #open(): Step {
    if (!this.#step) this.#write({ type: "start-step" })
    return this.#step ??= newStep()
  }

  #finishStep(): void {
    this.#endReasoning()
    if (this.#step?.textId) this.#write({ type: "text-end", id: this.#step.textId })
    this.#write({ type: "finish-step" })
    this.#step = undefined
  }

  // #reset removes what was written of a step that begins again.
  #reset(): void {
    if (!this.#step) return
    this.#write({ type: "reset-step" })
    this.#step = newStep()
  }

  #writeMessage(message: Message, calls: readonly JoinedToolCall[]): void {
    const step = this.#open(), reasoning = reasoningOf(message)
    if (!message.content.startsWith(step.text) || !reasoning.startsWith(step.reasoning)) this.#reset()
    this.#writeReasoning(reasoning)
    this.#writeText(message.content)
    for (const call of calls) this.#writeTool(call)
  }

  #writeDraft(draft: Draft, added: string | undefined): void {
    this.#open()
    this.#writeReasoning(draft.reasoning)
    this.#writeText(draft.content, added)
  }

  #writeReasoning(reasoning: string): void {
    const step = this.#step!
    if (reasoning.length === step.reasoning.length) return
    if (step.reasoningId === "") this.#write({ type: "reasoning-start", id: step.reasoningId = this.#newId() })
    this.#write({ type: "reasoning-delta", id: step.reasoningId, delta: reasoning.slice(step.reasoning.length) })
    step.reasoning = reasoning
  }

  #endReasoning(): void {
    if (this.#step?.reasoningId) this.#write({ type: "reasoning-end", id: this.#step.reasoningId })
    if (this.#step) this.#step.reasoningId = ""
  }

  // #writeText writes the end of a text. `added` is that end, if it is known: to cut it off would copy the text.
  #writeText(text: string, added = ""): void {
    const step = this.#step!
    if (text.length === step.text.length) return
    this.#endReasoning() // what comes after the text has begun is another part
    if (step.textId === "") this.#write({ type: "text-start", id: step.textId = this.#newId() })
    const delta = step.text.length + added.length === text.length ? added : text.slice(step.text.length)
    this.#write({ type: "text-delta", id: step.textId, delta })
    step.text = text
  }

  #writeTool({ call, result, run }: JoinedToolCall): void {
    const { tools } = this.#step!, toolCallId = call.id, providerExecuted = true
    let tool = tools.get(toolCallId)
    if (!tool) {
      tools.set(toolCallId, tool = { output: "", ended: false })
      this.#write({ type: "tool-input-available", toolCallId, toolName: call.function.name, input: inputOf(call.function.arguments), dynamic: true, providerExecuted })
    }
    if (tool.ended) return
    if (result) {
      tool.ended = true
      this.#write(isError(result)
        ? { type: "tool-output-error", toolCallId, errorText: result.content, providerExecuted }
        : { type: "tool-output-available", toolCallId, output: result.content, providerExecuted })
    } else if (run && run.output !== tool.output) {
      this.#write({ type: "tool-output-available", toolCallId, output: tool.output = run.output, providerExecuted, preliminary: true })
    }
  }

  #newId(): string { return `part-${++this.#parts}` }
}
