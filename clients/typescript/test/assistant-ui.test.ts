import assert from "node:assert/strict"
import { after, afterEach, before, describe, test } from "node:test"
import type { AssistantRuntime, ThreadMessage } from "@assistant-ui/react"
import { Window } from "happy-dom"
import type { Root } from "react-dom/client"
import type { LoquatRuntimeOptions, LoquatThreadsOptions } from "../src/assistant-ui.ts"
import { type Connection, Loquat, newId } from "../src/index.ts"
import { Proxy } from "./proxy.ts"
import { TestServer, hasServer, until, withClock } from "./server.ts"

// React and the components of assistant-ui look for a DOM when they are loaded.
const window = new Window()
const { document, navigator, HTMLElement, Element, Node } = window
const requestAnimationFrame = window.requestAnimationFrame.bind(window), cancelAnimationFrame = window.cancelAnimationFrame.bind(window)
for (const [name, value] of Object.entries({ window, document, navigator, HTMLElement, Element, Node, requestAnimationFrame, cancelAnimationFrame })) {
  Object.defineProperty(globalThis, name, { value, configurable: true }) // Node.js 21 has a navigator that cannot be assigned to
}
const { AssistantRuntimeProvider, ThreadPrimitive, MessagePrimitive } = await import("@assistant-ui/react")
const { StrictMode, createElement } = await import("react")
const { createRoot } = await import("react-dom/client")
const { useLoquatRuntime, useLoquatThreads } = await import("../src/assistant-ui.ts")

const words = Array.from({ length: 120 }, (_, i) => `w${i}`).join(" ")
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

/** The parts of a message in short. */
const shapeOf = (message: ThreadMessage | undefined): string[] => message?.content.map((p) => {
  switch (p.type) {
    case "text": case "reasoning": return `${p.type} ${p.text}`
    case "tool-call": return `${p.toolCallId} ${p.toolName} ${JSON.stringify(p.args)} ${String(p.isError)} ${String(p.result)}`
    case "image": return `image ${p.image}`
    default: return p.type
  }
}) ?? []
const textOf = (message: ThreadMessage | undefined): string => message?.content.map((p) => (p.type === "text" ? p.text : "")).join("") ?? ""

/** A page with a thread of assistant-ui. */
class TestPage {
  runtime!: AssistantRuntime
  readonly errors: Error[] = []
  readonly element = window.document.createElement("main") as unknown as HTMLElement
  /** Every text that the newest reply has had. */
  readonly texts: string[] = []
  readonly #root: Root

  constructor(loquat: Loquat, log: Connection, sessionId: string, options: LoquatRuntimeOptions & { threads?: LoquatThreadsOptions } = {}) {
    this.#root = createRoot(this.element)
    const { threads, ...rest } = options
    const UserMessage = () => createElement(MessagePrimitive.Root, null, createElement(MessagePrimitive.Parts))
    const Page = () => {
      const adapters = threads ? { adapters: { threadList: useLoquatThreads(loquat, log, threads) } } : {}
      this.runtime = useLoquatRuntime(loquat, log, sessionId, { onError: (error) => this.errors.push(error), ...rest, ...adapters })
      const list = createElement(ThreadPrimitive.Messages, { components: { Message: UserMessage } })
      return createElement(AssistantRuntimeProvider, { runtime: this.runtime, children: list })
    }
    this.#root.render(createElement(StrictMode, null, createElement(Page)))
  }

  async ready(): Promise<this> {
    await until("the session is loaded", () => this.runtime && !this.runtime.thread.getState().isLoading)
    this.runtime.thread.subscribe(() => {
      const last = this.messages.at(-1)
      if (last?.role === "assistant" && this.texts.at(-1) !== textOf(last)) this.texts.push(textOf(last))
    })
    return this
  }

  get messages(): readonly ThreadMessage[] { return this.runtime.thread.getState().messages }
  get running(): boolean { return this.runtime.thread.getState().isRunning }
  get last(): ThreadMessage | undefined { return this.messages.at(-1) }

  /** Waits for the end of a reply to the n-th message. */
  ends(count: number): Promise<void> {
    return until(`a reply ends as message ${count}`, () => this.errors.length > 0 || (this.messages.length === count && !this.running && this.last?.status?.type !== "running"))
  }

  close(): void { this.#root.unmount() }
}

describe("the runtime for assistant-ui", { skip: !hasServer && "there is no server", concurrency: 1, timeout: 180_000 }, () => {
  let server: TestServer, proxy: Proxy, loquat: Loquat
  const closing: { close(): void }[] = []
  /** A page with a session that has a script. */
  const open = async (script: object, options: LoquatRuntimeOptions = {}) => {
    const { session_id } = await loquat.sessions.create({ metadata: { overrides: { request_options: { loquat_script: script } } } })
    return { id: session_id, page: await again(session_id, options) }
  }
  const again = (id: string, options: LoquatRuntimeOptions & { threads?: LoquatThreadsOptions } = {}, client = loquat): Promise<TestPage> => {
    const log = client.connect(), page = new TestPage(client, log, id, options)
    closing.push(page, log)
    return page.ready()
  }

  before(async () => {
    proxy = await Proxy.start()
    server = await TestServer.start(withClock(proxy.url))
    proxy.target = server.port
    loquat = new Loquat({ baseURL: server.url })
  })
  afterEach(() => { for (const c of closing.splice(0)) c.close() })
  after(async () => {
    await proxy?.close()
    await server?.close()
  })

  test("a message is sent, and the reply is shown while it is written, with one id", async () => {
    const { id, page } = await open({ reasoning: "I think first.", text: words, rate: 40 })
    const ids = new Set<string>()
    page.runtime.thread.subscribe(() => { if (page.last?.role === "assistant") ids.add(page.last.id) })
    page.runtime.thread.composer.setText("hello")
    page.runtime.thread.composer.send()
    await until("it runs", () => page.running && textOf(page.last).length > 20)
    assert.equal(page.last!.status?.type, "running")
    await page.ends(2)
    assert.deepEqual(page.errors, [])
    assert.deepEqual(page.messages.map((m) => [m.role, ...shapeOf(m)]), [["user", "text hello"], ["assistant", "reasoning I think first.", `text ${words}`]])
    assert.deepEqual(page.last!.status, { type: "complete", reason: "stop" })
    for (const [i, text] of page.texts.entries()) if (i > 0) assert.ok(text.startsWith(page.texts[i - 1]!))
    assert.ok(page.texts.length > 1)
    assert.equal(ids.size, 1)
    await until("the page shows it", () => page.element.textContent?.includes("w119"))
    assert.equal((await loquat.sessions.get(id)).messages.length, 2)
  })

  test("tools with their results and errors are parts of the reply; ids are unique in it", async () => {
    const calls = [{ id: "a", name: "time_in", arguments: { city: "Rome" } }, { id: "b", name: "time_in", arguments: { city: "Atlantis" } }]
    const { page } = await open({ id: newId(), attempts: [{ tool_calls: calls }, { tool_calls: calls.slice(0, 1) }, { tool_calls: [] }], repeat_tool_calls: true, text: "Let me look." }, { send: { stream_tools: true } })
    page.runtime.thread.append("when?")
    await page.ends(2)
    assert.deepEqual(shapeOf(page.last), [
      "text Let me look.", 'a time_in {"city":"Rome"} false 12:00 in Rome', 'b time_in {"city":"Atlantis"} true there is no such city',
      "text Let me look.", 'a#2 time_in {"city":"Rome"} false 12:00 in Rome', "text Let me look.",
    ])
  })

  test("images are sent, and come back", async () => {
    const { id, page } = await open({ text: "nice" })
    page.runtime.thread.append({ role: "user", content: [{ type: "text", text: "look" }, { type: "image", image: pixel }] })
    await page.ends(2)
    assert.deepEqual(page.errors, [])
    const [image, text] = shapeOf(page.messages[0])
    assert.match(image!, /^image (data:image\/png|http)/)
    assert.equal(text, "text look")
    assert.equal((await loquat.sessions.get(id)).messages[0]!.metadata?.attachments?.length, 1)
    page.runtime.thread.append({ role: "user", content: [{ type: "file", data: "AAAA", mimeType: "application/pdf" }] })
    await until("the error is reported", () => page.errors.length > 0)
    assert.match(page.errors.map(String).join(), /text and images, not a part of type "file"/)
  })

  test("an error of the model is the status of the reply, and a reload tries again", async () => {
    const { page } = await open({ id: newId(), attempts: [{ status: 400, body: { error: { message: "no such thing" } } }, { text: "better" }] })
    page.runtime.thread.append("go")
    await until("it fails", () => page.last?.status?.type === "incomplete")
    assert.match(JSON.stringify(page.last!.status), /"reason":"error","error":".*no such thing/)
    page.runtime.thread.getMessageById(page.last!.id).reload()
    await until("it is better", () => textOf(page.last) === "better" && !page.running)
    assert.equal(page.messages.length, 2)
  })

  test("reload and edit replace messages, which stay as alternatives", async () => {
    const { id, page } = await open({ id: newId(), attempts: [{ text: "one" }, { text: "two" }, { text: "three" }] })
    page.runtime.thread.append("first")
    await page.ends(2)
    page.runtime.thread.getMessageById(page.last!.id).reload()
    await until("another reply comes", () => textOf(page.last) === "two" && !page.running)
    const editing = page.runtime.thread.getMessageById(page.messages[0]!.id).composer
    editing.beginEdit()
    editing.setText("second")
    editing.send()
    await until("a third reply comes", () => textOf(page.last) === "three" && !page.running)
    assert.deepEqual(page.errors, [])
    assert.deepEqual(page.messages.map(textOf), ["second", "three"])
    assert.deepEqual(page.messages.map((m) => page.runtime.thread.getMessageById(m.id).getState().branchCount), [1, 1])
    const { alternatives } = await loquat.alternatives.list(id)
    assert.deepEqual(alternatives.map((a) => [a.index, a.preview, a.in_place]), [[0, "first", false], [0, "second", true]])
    const other = await again(id)
    assert.deepEqual(other.messages.map((m) => [m.id, textOf(m)]), page.messages.map((m) => [m.id, textOf(m)]))
  })

  test("reload and edit work with an option for messages that find a running request", async () => {
    const { id, page } = await open({ id: newId(), attempts: [{ text: "one" }, { text: "two" }, { text: "three" }, { text: "four" }] }, { send: { on_busy: "queue" } })
    page.runtime.thread.append("first")
    await page.ends(2)
    page.runtime.thread.getMessageById(page.last!.id).reload()
    await until("another reply comes", () => page.errors.length > 0 || (textOf(page.last) === "two" && !page.running))
    const editing = page.runtime.thread.getMessageById(page.messages[0]!.id).composer
    editing.beginEdit()
    editing.setText("second")
    editing.send()
    await until("a third reply comes", () => page.errors.length > 0 || (textOf(page.last) === "three" && !page.running))
    await loquat.messages.append(id, { role: "user", content: "unanswered" })
    await until("the message is shown", () => textOf(page.last) === "unanswered")
    page.runtime.thread.startRun({ parentId: page.last!.id })
    await until("it is answered", () => page.errors.length > 0 || (textOf(page.last) === "four" && !page.running))
    assert.deepEqual(page.errors, [])
  })

  test("cancel keeps the text so far, and the next message is answered", async () => {
    const { id, page } = await open({ text: words, rate: 30 })
    page.runtime.thread.append("count")
    await until("text comes", () => textOf(page.last).length > 10)
    page.runtime.thread.cancelRun()
    await until("it ends", () => !page.running)
    assert.deepEqual(page.last!.status, { type: "incomplete", reason: "cancelled" })
    assert.equal((await loquat.sessions.get(id)).messages[1]!.content, textOf(page.last))
    page.runtime.thread.append("again")
    await until("another reply comes", () => page.messages.length === 4 && textOf(page.last) !== "")
    page.runtime.thread.cancelRun()
    await page.ends(4)
  })

  test("another page shows the reply in mid-stream, through cuts and a kill of the server", async () => {
    const { id, page } = await open({ text: words, rate: 20 }) // for 6 s, so that a slow machine has made all cuts before
    page.runtime.thread.append("count")
    await until("text comes", () => textOf(page.last).length > 20)
    const other = await again(id, {}, new Loquat({ baseURL: proxy.url }))
    for (let i = 2; i < 6; i++) {
      await until("more text comes", () => textOf(other.last).length > 40 * i)
      assert.ok(other.running)
      proxy.cut()
    }
    await Promise.all([page.ends(2), other.ends(2)])
    assert.equal(textOf(other.last), words)
    const shown = (p: TestPage) => p.messages.map((m) => [m.id, m.role, m.createdAt.toISOString(), ...shapeOf(m)])
    assert.deepEqual(shown(other), shown(page))
    page.runtime.thread.append("again")
    await until("text comes", () => other.messages.length === 4 && textOf(other.last).length > 20)
    await server.kill()
    await server.restart()
    await Promise.all([page.ends(4), other.ends(4)])
    assert.equal(textOf(other.last), (await loquat.sessions.get(id)).messages[3]!.content)
  })

  test("a message is deleted; a session that is deleted disables the thread", async () => {
    const { id, page } = await open({ text: "nice" })
    page.runtime.thread.append("first")
    await page.ends(2)
    await page.runtime.thread.getMessageById(page.last!.id).delete()
    await until("it is deleted", () => page.messages.length === 1)
    await loquat.sessions.delete(id)
    await until("the thread is disabled", () => page.runtime.thread.getState().isDisabled)
  })

  test("the list of sessions is the list of threads", async () => {
    const switched: string[] = []
    const { session_id } = await loquat.sessions.create({ metadata: { title: "Fruit" } })
    const page = await again(session_id, { threads: { sessionId: session_id, onSwitch: (id) => switched.push(id) } })
    const { threads } = page.runtime, title = () => threads.getState().threadItems[session_id]?.title
    await until("the list has it", () => title() === "Fruit")
    assert.equal(threads.getState().mainThreadId, session_id)
    await threads.getItemById(session_id).rename("Loquats")
    await until("it is renamed", () => title() === "Loquats")
    await threads.getItemById(session_id).archive()
    await until("it is archived", () => threads.getState().archivedThreadIds.includes(session_id))
    await threads.getItemById(session_id).unarchive()
    await until("it is back", () => threads.getState().threadIds.includes(session_id))
    await threads.switchToNewThread()
    await until("a session is created", () => switched.length === 1)
    await until("the list has it, too", () => threads.getState().threadIds.includes(switched[0]!))
    await threads.switchToThread(switched[0]!)
    assert.deepEqual(switched, [switched[0], switched[0]])
    await threads.getItemById(switched[0]!).delete()
    await until("it is deleted", () => !threads.getState().threadIds.includes(switched[0]!))
  })
})
