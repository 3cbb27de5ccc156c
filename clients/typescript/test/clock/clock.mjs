// A plugin for tests: a tool that reports progress and then answers, or fails.
import { createInterface } from "node:readline"

const send = (message) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n")
const tools = [{ name: "time_in", description: "Returns the time in a city.", inputSchema: { type: "object", properties: { city: { type: "string" } } } }]

function call({ arguments: { city }, _meta: { progressToken } = {} }) {
  if (city === "Atlantis") return { isError: true, content: [{ type: "text", text: "there is no such city" }] }
  if (progressToken !== undefined) send({ method: "notifications/progress", params: { progressToken, progress: 1, total: 2, message: "asking" } })
  return { content: [{ type: "text", text: `12:00 in ${city}` }] }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line)
  if (method === "initialize") send({ id, result: { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "clock", version: "1.0.0" } } })
  else if (method === "tools/list") send({ id, result: { tools } })
  else if (method === "tools/call") setTimeout(() => send({ id, result: call(params) }), 100)
  else if (id !== undefined) send({ id, result: {} })
}
