import assert from "node:assert/strict"
import { after, before, describe, test } from "node:test"
import { type UIMessage, type UIMessageChunk, readUIMessageStream } from "ai"
import { LoquatTransport, type LoquatTransportOptions, toUIMessages } from "../src/ai-sdk.ts"
import { type EventLog, Loquat, newId } from "../src/index.ts"
import { TestChat, shapeOf, textOf } from "./chat.ts"
import { Proxy } from "./proxy.ts"
import { TestServer, hasServer, until, withClock } from "./server.ts"

const words = Array.from({ length: 120 }, (_, i) => `w${i}`).join(" ")
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

describe("the transport for the AI SDK", { skip: !hasServer && "there is no server", concurrency: 1, timeout: 180_000 }, () => {
  let server: TestServer, proxy: Proxy, loquat: Loquat, behindProxy: Loquat
  const transports: LoquatTransport[] = []
  const transport = (client = loquat, options: LoquatTransportOptions = {}) => {
    const made = new LoquatTransport(client, options)
    transports.push(made)
    return made
  }
  /** A chat whose session has a script. */
  const chat = async (script: object, options: LoquatTransportOptions = {}, client = loquat) => {
    const { session_id } = await loquat.sessions.create({ metadata: { overrides: { request_options: { loquat_script: script } } } })
    return new TestChat(session_id, transport(client, options))
  }
  const stored = async (id: string) => toUIMessages(loquat, await loquat.sessions.get(id))
  /** Checks that a chat has the messages of its session, and that the reply only grew. */
  const check = async (chat: TestChat) => {
    assert.equal(chat.status, "ready", String(chat.error))
    assert.deepEqual(chat.messages.map((m) => [m.id, m.role, shapeOf(m)]), (await stored(chat.id)).map((m) => [m.id, m.role, shapeOf(m)]))
    for (const [i, text] of chat.texts.entries()) if (i > 0) assert.ok(text.startsWith(chat.texts[i - 1]!), `${text} after ${chat.texts[i - 1]}`)
  }

  before(async () => {
    proxy = await Proxy.start()
    server = await TestServer.start(withClock(proxy.url))
    proxy.target = server.port
    loquat = new Loquat({ baseURL: server.url })
    behindProxy = new Loquat({ baseURL: proxy.url })
  })
  after(async () => {
    for (const t of transports) t.close()
    await proxy?.close()
    await server?.close()
  })

  test("the first message creates the session, and the reply is streamed", async () => {
    const made = new TestChat(newId(), transport(loquat, { createSession: () => ({ metadata: { tags: ["from-chat"] } }) }))
    await made.sendMessage({ text: "hello" })
    await check(made)
    assert.ok(made.texts.length > 3 && textOf(made.lastMessage) !== "")
    assert.deepEqual(made.finished, [{ isAbort: false, isError: false, finishReason: "stop" }])
    assert.deepEqual((await loquat.sessions.get(made.id)).metadata.tags, ["from-chat"])
    await made.sendMessage({ text: "and again" })
    assert.deepEqual(made.messages.map((m) => m.role), ["user", "assistant", "user", "assistant"])
    await assert.rejects(transport(loquat, { createSession: false }).sendMessages({ trigger: "submit-message", chatId: newId(), messageId: undefined, messages: made.messages.slice(0, 1), abortSignal: undefined }), /not found|no session/i)
  })

  test("reasoning, then text", async () => {
    const made = await chat({ reasoning: "I think first.", text: "Then I answer." })
    await made.sendMessage({ text: "?" })
    await check(made)
    assert.deepEqual(shapeOf(made.lastMessage), ["step-start", "reasoning I think first.", "text Then I answer."])
  })

  test("images are sent, and come back", async () => {
    const made = await chat({ text: "nice" })
    await made.sendMessage({ text: "look", files: [{ type: "file", mediaType: "image/png", url: pixel }] })
    assert.equal(made.status, "ready", String(made.error))
    const again = (await stored(made.id))[0]!
    assert.deepEqual(again.parts.map((p) => p.type), ["file", "text"])
    const other = await chat({ text: "nice" })
    await other.sendMessage({ text: "look", files: [{ type: "file", mediaType: "application/pdf", url: "data:application/pdf;base64,AAAA" }] })
    assert.match(String(other.error), /takes images, not application\/pdf/)
  })

  test("tools with their results, errors and progress", async () => {
    const script = { text: "Let me look.", tool_calls: [{ id: "a", name: "time_in", arguments: { city: "Rome" } }, { id: "b", name: "time_in", arguments: { city: "Atlantis" } }] }
    const made = await chat(script, { send: { stream_tools: true } })
    const states = new Set<string>()
    const stream = await transport(loquat, { send: { stream_tools: true } }).sendMessages({
      trigger: "submit-message", chatId: made.id, messageId: undefined, messages: [{ id: "q", role: "user", parts: [{ type: "text", text: "when?" }] }], abortSignal: undefined,
    })
    let message: UIMessage | undefined
    for await (message of readUIMessageStream({ stream, terminateOnError: true })) {
      for (const p of message.parts) if (p.type === "dynamic-tool") states.add(`${p.toolCallId} ${p.state}${p.state === "output-available" && p.preliminary ? " preliminary" : ""}`)
    }
    assert.deepEqual(shapeOf(message).slice(0, 4), [
      "step-start", "text Let me look.", 'time_in {"city":"Rome"} output-available 12:00 in Rome', 'time_in {"city":"Atlantis"} output-error there is no such city',
    ])
    assert.deepEqual(shapeOf(message).slice(4), ["step-start", "text The tools have answered. This is the scripted backend's closing reply."])
    states.delete("a output-available preliminary") // windows that come late have only the result; the test of the writer has the progress
    assert.deepEqual([...states].sort(), ["a input-available", "a output-available", "b input-available", "b output-error"])
    assert.deepEqual(shapeOf((await stored(made.id)).at(-1)), shapeOf(message))
  })

  test("an error of the model ends the reply, and regenerate tries again", async () => {
    const made = await chat({ id: newId(), attempts: [{ status: 400, body: { error: { message: "no such thing" } } }, { text: "better" }] })
    await made.sendMessage({ text: "go" })
    assert.equal(made.status, "error")
    assert.match(made.error!.message, /no such thing/)
    await made.regenerate()
    await check(made)
    assert.equal(textOf(made.lastMessage), "better")
  })

  test("a refused send is an error of the chat, and is sent again by regenerate", async () => {
    const made = await chat({ text: words, rate: 60 })
    await loquat.send(made.id, { content: "first" })
    await made.sendMessage({ text: "second" })
    assert.equal((made.error as { code?: string }).code, "busy")
    await loquat.cancel((await loquat.sessions.get(made.id)).active_request_id!)
    await until("the first request ends", async () => !(await loquat.sessions.get(made.id)).active_request_id)
    await made.regenerate()
    assert.equal(made.status, "ready", String(made.error))
    assert.deepEqual((await loquat.sessions.get(made.id)).messages.map((m) => m.role), ["user", "assistant", "user", "assistant"])
  })

  test("stop cancels the request; the text so far stays, and the next message is taken", async () => {
    const made = await chat({ text: words, rate: 30 })
    const sending = made.sendMessage({ text: "count" })
    await until("text comes", () => textOf(made.lastMessage).length > 10)
    await made.stop()
    await sending
    assert.equal(made.status, "ready")
    assert.equal(made.finished[0]?.isAbort, true)
    const { request_id } = (await loquat.sessions.get(made.id)).last_request!
    await until("the request is cancelled", async () => (await loquat.requests.get(request_id)).status === "cancelled")
    const text = textOf(made.lastMessage)
    assert.ok(words.startsWith(text) && textOf((await stored(made.id)).at(-1)).startsWith(text.trimEnd()))
    const next = made.sendMessage({ text: "again" })
    await until("another reply comes", () => made.messages.length === 4 && textOf(made.lastMessage) !== "")
    await made.stop()
    await next
    assert.equal(made.error, undefined)
  })

  test("stop before the send is answered cancels the request, too", async () => {
    const made = await chat({ text: words, rate: 30 }, {}, behindProxy)
    proxy.freeze(true)
    const sending = made.sendMessage({ text: "count" })
    await new Promise((resolve) => setTimeout(resolve, 100))
    await made.stop()
    proxy.freeze(false)
    await sending
    await until("the request is cancelled", async () => (await loquat.sessions.get(made.id)).last_request?.status === "cancelled")
  })

  test("another client's cancel ends the reply", async () => {
    const made = await chat({ text: words, rate: 30 })
    const sending = made.sendMessage({ text: "count" })
    await until("text comes", () => textOf(made.lastMessage).length > 10)
    await loquat.cancel((await loquat.sessions.get(made.id)).active_request_id!)
    await sending
    await check(made)
  })

  test("a cut of the network loses and repeats nothing", async () => {
    const made = await chat({ reasoning: words, text: words, rate: 100 }, {}, behindProxy)
    const sending = made.sendMessage({ text: "count" })
    for (let i = 0; i < 6; i++) {
      await until("more text comes", () => shapeOf(made.lastMessage).join("").length > 60 * (i + 1))
      proxy.cut()
    }
    await sending
    await check(made)
    assert.equal(textOf(made.lastMessage), words)
  })

  test("a second transport resumes in mid-stream", async () => {
    const script = { id: newId(), text: words, rate: 60, attempts: [{ tool_calls: [{ id: "a", name: "time_in", arguments: { city: "Rome" } }] }], repeat_tool_calls: true }
    const made = await chat({ ...script, attempts: [...script.attempts, { tool_calls: [] }] })
    const sending = made.sendMessage({ text: "count" })
    await until("the second step writes", () => shapeOf(made.lastMessage).length > 4 && textOf(made.lastMessage).length > words.length + 40)
    const second = new TestChat(made.id, transport(), await stored(made.id))
    assert.equal(second.messages.length, 2)
    const resuming = second.resumeStream()
    await until("it shows the same", () => textOf(second.lastMessage).length > words.length + 40)
    await Promise.all([sending, resuming])
    await check(second)
    await check(made)
    assert.equal(textOf(second.lastMessage), words + words)
    await second.resumeStream() // nothing runs any more
    assert.equal(second.status, "ready")
    assert.equal(await transport().reconnectToStream({ chatId: newId() }), null)
  })

  test("a chat that resumes twice does not cancel the request; stop does", async () => {
    const made = await chat({ text: words, rate: 30 })
    const { request_id } = await loquat.send(made.id, { content: "count" })
    const first = made.resumeStream()
    await until("text comes", () => textOf(made.lastMessage).length > 10)
    const second = made.resumeStream()
    await first
    await until("more text comes", () => textOf(made.lastMessage).length > 40)
    assert.equal((await loquat.requests.get(request_id)).status, "running")
    await made.stop()
    await second
    await until("the request is cancelled", async () => (await loquat.requests.get(request_id)).status === "cancelled")
  })

  test("closing a stream does not end the request", async () => {
    const made = await chat({ text: words, rate: 100 })
    const stream: ReadableStream<UIMessageChunk> = await transport().sendMessages({
      trigger: "submit-message", chatId: made.id, messageId: undefined, messages: [{ id: "q", role: "user", parts: [{ type: "text", text: "count" }] }], abortSignal: undefined,
    })
    await stream.cancel()
    await until("the request completes", async () => (await loquat.sessions.get(made.id)).last_request?.status === "completed")
    assert.equal(textOf((await stored(made.id)).at(-1)), words)
  })

  test("regenerate and edits replace messages, which stay as alternatives", async () => {
    const made = await chat({ id: newId(), attempts: [{ text: "one" }, { text: "two" }, { text: "three" }, { text: "four" }, { text: "five" }] })
    await made.sendMessage({ text: "a" })
    await made.sendMessage({ text: "b" })
    await made.regenerate()
    await check(made)
    assert.deepEqual(made.messages.map(textOf), ["a", "one", "b", "three"])
    await made.sendMessage({ text: "B", messageId: made.messages[2]!.id })
    await check(made)
    assert.deepEqual(made.messages.map(textOf), ["a", "one", "B", "four"])
    const reloaded = new TestChat(made.id, transport(), await stored(made.id))
    await reloaded.regenerate({ messageId: reloaded.messages[1]!.id })
    await check(reloaded)
    assert.deepEqual(reloaded.messages.map(textOf), ["a", "five"])
    assert.ok((await loquat.alternatives.list(made.id)).alternatives.length >= 2)
  })

  test("regenerate and edits work with an option for messages that find a running request", async () => {
    const options: LoquatTransportOptions = { send: { on_busy: "queue" } }
    const made = await chat({ id: newId(), attempts: [{ text: "one" }, { text: "two" }, { text: "three" }, { text: "four" }] }, options)
    await made.sendMessage({ text: "a" })
    await made.regenerate()
    await check(made)
    await made.sendMessage({ text: "A", messageId: made.messages[0]!.id }, { body: { on_busy: "interrupt" } })
    await check(made)
    assert.deepEqual(made.messages.map(textOf), ["A", "three"])
    await loquat.messages.append(made.id, { role: "user", content: "unanswered" })
    const reloaded = new TestChat(made.id, transport(loquat, options), await stored(made.id))
    await reloaded.regenerate()
    await check(reloaded)
    assert.equal(textOf(reloaded.lastMessage), "four")
  })

  test("a reply that the server begins again replaces the first attempt", async () => {
    const script = { id: newId(), text: words, rate: 100, fail_times: 1, drop_after: 40 }
    const { session_id } = await loquat.sessions.create({ metadata: { overrides: { stream_recovery_mode: "aggressive", request_options: { loquat_script: script } } } })
    const made = new TestChat(session_id, transport())
    await made.sendMessage({ text: "count" })
    assert.equal(made.status, "ready", String(made.error))
    assert.deepEqual(shapeOf(made.lastMessage), ["step-start", `text ${words}`])
    assert.ok(made.texts.every((text) => words.startsWith(text)))
    const shrinks = made.texts.filter((text, i) => text.length < (made.texts[i - 1]?.length ?? 0))
    assert.equal(shrinks.length, 1, "the text of the first attempt goes")
    assert.deepEqual(shapeOf((await stored(session_id)).at(-1)), shapeOf(made.lastMessage))
  })

  test("a log that lost the events: the session is loaded again, and nothing is repeated", async () => {
    const made = await chat({ reasoning: "Let me count.", text: words, rate: 60 })
    let gone = () => {}
    const log = loquat.connect()
    const losing: EventLog = { state: log.state, expectSession: () => {}, report: () => {}, retryNow: () => log.retryNow(), close: () => log.close(), follow: (topic, since, listener) => {
      const unfollow = log.follow(topic, since, listener)
      gone = () => { unfollow(); listener.gone() }
      return unfollow
    } }
    const other = new TestChat(made.id, transport(loquat, { log: losing }))
    const sending = other.sendMessage({ text: "count" })
    for (const length of [40, 120]) {
      await until("text comes", () => textOf(other.lastMessage).length > length)
      gone()
    }
    await sending
    log.close()
    assert.deepEqual(shapeOf(other.lastMessage), ["step-start", "reasoning Let me count.", `text ${words}`])
  })

  test("a token that is refused ends the reply with an error", async () => {
    const made = await chat({ text: words, rate: 60 })
    const sending = new TestChat(made.id, transport(new Loquat({ baseURL: server.url, fetch: async (input, init) => (
      input.includes("/events") ? Response.json({ code: "unauthorized", detail: "the token has expired" }, { status: 401, headers: { "Content-Type": "application/problem+json" } }) : fetch(input, init)
    ) })))
    await sending.sendMessage({ text: "count" })
    assert.match(String(sending.error), /the token has expired/)
  })

  test("a server that is killed and starts again", async () => {
    const made = await chat({ text: words, rate: 60 })
    const sending = made.sendMessage({ text: "count" })
    await until("text comes", () => textOf(made.lastMessage).length > 40)
    await server.kill()
    await server.restart()
    await sending
    assert.equal(made.status, "error") // the server ended the request when it started again
    assert.match(made.error!.message, /./)
    assert.ok(words.startsWith(textOf(made.lastMessage)))
  })
})
