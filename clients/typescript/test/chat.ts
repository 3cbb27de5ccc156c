// A chat of the AI SDK without a framework: the class behind `useChat`, and what it has shown.

import { AbstractChat, type ChatState, type ChatStatus, type ChatTransport, type UIMessage } from "ai"

class State implements ChatState<UIMessage> {
  status: ChatStatus = "ready"
  error: Error | undefined
  messages: UIMessage[]
  /** Every text that the newest reply has had. */
  readonly texts: string[] = []

  constructor(messages: UIMessage[]) { this.messages = messages }

  pushMessage = (message: UIMessage) => {
    this.messages = [...this.messages, message]
    this.texts.length = 0
    this.#note(message)
  }
  popMessage = () => { this.messages = this.messages.slice(0, -1) }
  replaceMessage = (index: number, message: UIMessage) => { this.messages = this.messages.with(index, structuredClone(message)); this.#note(message) }
  snapshot = <T>(thing: T): T => structuredClone(thing)

  #note(message: UIMessage): void { if (message.role === "assistant") this.texts.push(textOf(message)) }
}

export class TestChat extends AbstractChat<UIMessage> {
  readonly finished: { isAbort: boolean; isError: boolean; finishReason?: string | undefined }[]
  readonly texts: string[]

  constructor(id: string, transport: ChatTransport<UIMessage>, messages: UIMessage[] = []) {
    const state = new State(messages), finished: TestChat["finished"] = []
    super({ id, transport, state, onFinish: ({ isAbort, isError, finishReason }) => finished.push({ isAbort, isError, finishReason }) })
    this.texts = state.texts
    this.finished = finished
  }
}

export const textOf = (message: UIMessage | undefined): string => message?.parts.map((p) => (p.type === "text" ? p.text : "")).join("") ?? ""

/** The parts of a message in short. */
export const shapeOf = (message: UIMessage | undefined): string[] => message?.parts.map((p) => {
  switch (p.type) {
    case "text": case "reasoning": return `${p.type} ${p.text}`
    case "dynamic-tool": return `${p.toolName} ${JSON.stringify(p.input)} ${p.state} ${p.state === "output-error" ? p.errorText : String(p.output ?? "")}`
    default: return p.type
  }
}) ?? []
