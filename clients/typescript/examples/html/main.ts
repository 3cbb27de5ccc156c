// A chat without a framework. The session's id is in the address, so a reload shows the same chat.

import { Loquat, type Message, Outbox, type SessionState, isRunning, reasoningOf, toolCallsOf } from "@loquat/client"
import "../style.css"

const find = <T extends Element>(selector: string) => document.querySelector<T>(selector)!
const loquat = new Loquat({ baseURL: find<HTMLMetaElement>("meta[name=loquat]").content })
const log = loquat.connect()
const outbox = new Outbox(loquat) // keeps what is sent until the server has it, also over a reload

const sessionId = location.hash.slice(1) || (await loquat.sessions.create()).session_id
history.replaceState(null, "", `#${sessionId}`)

const list = find("#messages"), form = find<HTMLFormElement>("form"), field = find<HTMLTextAreaElement>("textarea"), button = find("button"), status = find("#state")
const drawn = new WeakMap<Message, HTMLElement>() // a message that changes is another object
const session = loquat.followSession(log, sessionId)
session.subscribe(({ state, error }) => {
  if (state) outbox.settle(state)
  show(state)
  if (!state && error) status.textContent = error.message
})
log.state.subscribe((connection) => { status.textContent = connection.status === "live" ? "" : connection.error?.message ?? "Connecting…" })

outbox.subscribe(() => show(session.get().state))

function show(state: SessionState | undefined): void {
  if (!state) return
  const atEnd = innerHeight + scrollY > document.body.scrollHeight - 60
  const articles = state.messages.flatMap((message, i) => (message.role === "tool" ? [] : [articleOf(state, message, i)]))
  if (state.draft) articles.push(draw("assistant", state.draft.content, { reasoning: state.draft.reasoning, open: true }))
  if (state.request?.error) articles.push(draw("error", state.request.error))
  for (const { send, error } of outbox.of(sessionId)) articles.push(draw("user", send.content ?? ""), ...(error ? [draw("error", error.message)] : []))
  list.replaceChildren(...articles)
  button.textContent = isRunning(state) ? "Stop" : "Send"
  if (atEnd) scrollTo(0, document.body.scrollHeight)
}

function articleOf(state: SessionState, message: Message, index: number): HTMLElement {
  const known = drawn.get(message)
  if (known) return known
  const calls = toolCallsOf(state, index)
  const article = draw(message.role, message.content, { reasoning: reasoningOf(message), tools: calls.map(({ call, result }) => `${call.function.name}: ${result?.content ?? "…"}`) })
  if (calls.every(({ result }) => result)) drawn.set(message, article)
  return article
}

function draw(name: string, text: string, { reasoning = "", tools = [] as string[], open = false } = {}): HTMLElement {
  const article = document.createElement("article")
  article.className = name
  for (const [title, content] of [["Reasoning", reasoning], ["Tools", tools.join("\n")]] as const) {
    if (content === "") continue
    const details = document.createElement("details"), summary = document.createElement("summary")
    summary.textContent = title
    details.append(summary, content)
    details.open = open
    article.append(details)
  }
  article.append(text)
  return article
}

form.onsubmit = (event) => {
  event.preventDefault()
  const state = session.get().state, content = field.value.trim()
  if (state && isRunning(state)) return void loquat.cancel(state.request!.requestId)
  if (content === "") return
  field.value = ""
  void outbox.add(sessionId, { content })
}
field.onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return
  event.preventDefault()
  form.requestSubmit()
}
