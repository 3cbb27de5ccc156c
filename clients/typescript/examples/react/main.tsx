// A chat with React and `useChat`. The session's id is in the address, so a reload shows the same
// chat, and a reply that is being written goes on.

import { useChat } from "@ai-sdk/react"
import { Loquat, type Snapshot } from "@loquat/client"
import { LoquatTransport, toUIMessages } from "@loquat/client/ai-sdk"
import type { UIMessage } from "ai"
import { type KeyboardEvent, StrictMode } from "react"
import { createRoot } from "react-dom/client"
import "../style.css"

const loquat = new Loquat({ baseURL: document.querySelector<HTMLMetaElement>("meta[name=loquat]")!.content })
const transport = new LoquatTransport(loquat)

function Chat({ session }: { session: Snapshot }) {
  const { messages, sendMessage, regenerate, stop, status, error } = useChat({
    id: session.session_id, messages: toUIMessages(loquat, session), transport, resume: session.active_request_id !== undefined,
  })
  const busy = status === "submitted" || status === "streaming"
  const submit = (form: HTMLFormElement) => {
    if (busy) return void stop()
    const text = String(new FormData(form).get("text")).trim()
    if (text === "") return
    form.reset()
    void sendMessage({ text })
  }
  const keys = (e: KeyboardEvent<HTMLTextAreaElement>) => {
    if (e.key !== "Enter" || e.shiftKey || e.nativeEvent.isComposing) return
    e.preventDefault()
    e.currentTarget.form!.requestSubmit()
  }
  return <>
    <header><h1>Chat</h1><a href="./">New chat</a></header>
    <div id="messages" aria-live="polite">
      {messages.map((message) => <article key={message.id} className={message.role}>{message.parts.map(Part)}</article>)}
      {error && <article className="error">{error.message}</article>}
      {!busy && messages.length > 0 && <button type="button" className="plain" onClick={() => void regenerate()}>Try again</button>}
    </div>
    <form onSubmit={(e) => { e.preventDefault(); submit(e.currentTarget) }}>
      <textarea name="text" rows={1} aria-label="Message" placeholder="Write a message" autoFocus onKeyDown={keys} />
      <button>{busy ? "Stop" : "Send"}</button>
    </form>
  </>
}

function Part(part: UIMessage["parts"][number], key: number) {
  switch (part.type) {
    case "text": return <span key={key}>{part.text}</span>
    case "reasoning": return <details key={key}><summary>Reasoning</summary>{part.text}</details>
    case "dynamic-tool": return <details key={key}><summary>{part.toolName}</summary>{String(part.output ?? part.errorText ?? "…")}</details>
    case "file": return <img key={key} src={part.url} alt="" />
    default: return null
  }
}

const id = location.hash.slice(1)
const session = await (id ? loquat.sessions.get(id) : loquat.sessions.create())
history.replaceState(null, "", `#${session.session_id}`)
createRoot(document.querySelector("main")!).render(<StrictMode><Chat session={session} /></StrictMode>)
