// An app, as the unmodified Phoenix client makes one. It reads one command a line and
// writes what happens, one JSON object a line.
import { createInterface } from "node:readline"
import { createRequire } from "node:module"
import WebSocket from "ws"

const require = createRequire(import.meta.url)
const options = JSON.parse(process.argv[2])
const { Socket } = require(options.package)
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n")

const socketOptions = { transport: WebSocket, heartbeatIntervalMs: options.heartbeat || 30000, timeout: options.timeout || 10000 }
if (options.vsn === "1.0.0") { // the client's own serializer is 2.0.0
  socketOptions.vsn = "1.0.0"
  socketOptions.encode = (message, done) => done(JSON.stringify(message))
  socketOptions.decode = (text, done) => done(JSON.parse(text))
}
socketOptions.reconnectAfterMs = (tries) => [10, 50, 100, 200][tries - 1] || 300
socketOptions.rejoinAfterMs = (tries) => [20, 100, 200][tries - 1] || 300

const socket = new Socket(options.url, socketOptions)
socket.onOpen(() => say({ type: "open" }))
socket.onClose((event) => say({ type: "close", code: event.code }))
socket.onMessage(({ topic, event, ref }) => { if (topic === "phoenix" && event === "phx_reply") say({ type: "heartbeat", ref }) })
socket.connect()

let channel
const commands = {
  join({ topic, params, follow }) {
    let since = params.since_id
    channel = socket.channel(topic, () => ({ ...params, since_id: since }))
    channel.on("session_event", ({ event }) => {
      if (follow) since = event.event_id
      say({ type: "event", event: options.whole ? event : { event_id: event.event_id, type: event.type, content: event.message?.content } })
    })
    channel.on("gap", (response) => {
      if (follow) since = response.latest_event_id
      say({ type: "gap", response })
    })
    channel.on("get_chunk", (response) => say({ type: "chunk", response }))
    channel.onClose(() => say({ type: "channel_close" }))
    channel.join()
      .receive("ok", (response) => {
        if (follow && (response.gap || !since)) since = response.latest_event_id
        say({ type: "joined", response })
      })
      .receive("error", (response) => say({ type: "refused", response }))
      .receive("timeout", () => say({ type: "timeout" }))
  },
  push({ event, payload }) {
    channel.push(event, payload)
      .receive("ok", (response) => say({ type: "reply", status: "ok", response }))
      .receive("error", (response) => say({ type: "reply", status: "error", response }))
  },
  leave() { channel.leave().receive("ok", () => say({ type: "left" })) },
  quit() { process.exit(0) },
}
createInterface({ input: process.stdin }).on("line", (line) => {
  const command = JSON.parse(line)
  commands[command.do](command)
}).on("close", () => process.exit(0))
