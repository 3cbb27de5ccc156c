import assert from "node:assert/strict"
import { readFileSync } from "node:fs"
import { test } from "node:test"
import { Loquat } from "../src/index.ts"

const document = JSON.parse(readFileSync(new URL("openapi.json", import.meta.url), "utf8")) as {
  paths: Record<string, Record<string, { operationId?: string; parameters?: { name: string; in: string }[] }>>
}

// What this package leaves out, and why.
const without: Record<string, string> = { "GET /bridge/websocket": "Phoenix clients speak its protocol" }

interface Made {
  method: string
  url: URL
  headers: Record<string, string>
}

function recorder(): { client: Loquat; made: Made[] } {
  const made: Made[] = []
  const client = new Loquat({
    baseURL: "http://server.example",
    fetch: async (input, init) => {
      made.push({ method: init.method!, url: new URL(input), headers: init.headers as Record<string, string> })
      return new Response('{"events": [], "latest_event_id": "0000000000000001"}', { headers: { "Content-Type": input.includes("/stream") ? "text/event-stream" : "application/json" } })
    },
  })
  return { client, made }
}

async function callEverything(c: Loquat): Promise<void> {
  const image = new Blob(["x"], { type: "image/png" })
  await c.sessions.page({ limit: 1, q: "x", agent_id: "a", user: "u", tag: ["a", "b"], pinned: true, archived: "any", page_token: "t" })
  await c.sessions.create({})
  await c.sessions.get("s")
  await c.sessions.patch("s", {})
  await c.sessions.delete("s")
  await c.sessions.fork("s", {})
  await c.sessions.export("s", "html")
  await c.sessions.import("{}", { new_ids: true, agent_id: "a" })
  await c.messages.page("s", { from: 0, limit: 1, last: 1, at: "1" })
  await c.messages.append("s", { role: "user", content: "x" })
  await c.messages.modify("s", 0, { content: "x" })
  await c.messages.delete("s", [0])
  await c.send("s", {})
  await c.requests.get("r")
  await c.cancel("r")
  await c.queue.get("s")
  await c.queue.order("s", ["r"])
  await c.queue.patch("s", "r", {})
  await c.alternatives.list("s", { index: 1 })
  await c.alternatives.get("s", "a")
  await c.alternatives.switch("s", "a")
  await c.alternatives.delete("s", "a")
  await c.assets.upload("s", image, { name: "n" })
  await c.assets.get("s", "a", { range: "bytes=0-1" })
  await c.assets.delete("s", "a")
  await c.search({ q: "x", in: ["text", "tool"], session_id: "s", agent_id: "a", user: "u", tag: "t", archived: true, role: "user", model: "m", since: "2026-01-01T00:00:00Z", before: "2026-01-01T00:00:00Z", limit: 1, page_token: "t" })
  await c.events.poll({ since_id: "0", session_id: ["a", "b"], list: true, user: "u", request_id: "r", limit: 1, wait: 1, session: "omit" })
  await c.events.latest()
  for await (const _ of c.events.stream({ since_id: "0" })) { /* it is empty */ }
  await c.agents.list()
  await c.models.list({ agent_id: "a", session_id: "s", refresh: true })
  await c.plugins.list()
  await c.uiSchema.session("s")
  await c.uiSchema.application("s", { plugin: "p" })
  await c.uiSchema.global({ plugin: "p" })
  await c.config.get("s")
  await c.config.set("s", "k", 1)
  await c.actions.run("s", "a", { params: {} })
  await c.actions.runGlobal("a", { params: {} })
  await c.auth.signIn("t")
  await c.auth.me()
  await c.auth.signOut()
  await c.tokens.list()
  await c.tokens.create({ name: "n" })
  await c.tokens.revoke("t")
  await c.devices.list()
  await c.devices.remove("d")
  await c.pairing.create()
  await c.pairing.claim({ code: "c", device_name: "d" })
  await c.nodes.list()
  await c.push.get()
  await c.push.subscribe({ endpoint: "https://push.example/x", keys: { p256dh: "p", auth: "a" } })
  await c.push.unsubscribe("p")
  await c.usage.page({ from: "2026-01-01", to: "2026-01-02", user: "u", agent_id: "a", provider_id: "p", model: "m", group_by: ["day"], limit: 1, page_token: "t" })
  await c.usage.csv({ group_by: "day" })
  await c.webhooks.list()
  await c.webhooks.get("w")
  await c.webhooks.create({ url: "https://app.example/hook" })
  await c.webhooks.patch("w", { disabled: true })
  await c.webhooks.delete("w")
  await c.webhooks.deliveries("w", { failed: true, limit: 1, page_token: "1" })
  await c.webhooks.resend("w", "1")
  await c.audit.page({ action: "a", target: "t", limit: 1, page_token: "1" })
  await c.server.version()
  await c.server.health()
  await c.server.ready()
  await c.server.reloadConfig()
  await c.server.metrics()
  await c.server.openapi()
}

const documented = Object.entries(document.paths).flatMap(([path, item]) => Object.entries(item)
  .filter(([method]) => ["get", "post", "put", "patch", "delete"].includes(method))
  .map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, operation, matches: new RegExp(`^${method.toUpperCase()} ${path.replace(/\{\w+\}/g, "[^/]+")}$`) })))

test("there is a method for every route, with every parameter", async () => {
  const { client, made } = recorder()
  await callEverything(client)
  const routeOf = (m: Made) => documented.filter((d) => d.matches.test(`${m.method} ${m.url.pathname}`)).sort((a, b) => a.name.split("{").length - b.name.split("{").length)[0]
  for (const m of made) assert.ok(routeOf(m), `the document has no ${m.method} ${m.url.pathname}`)
  for (const d of documented) {
    const calls = made.filter((m) => routeOf(m) === d)
    if (d.name in without) assert.equal(calls.length, 0, `${d.name} is called: take it from \`without\` in this test`)
    else assert.ok(calls.length > 0, `no method calls ${d.name}: add one in src/sessions.ts or src/server.ts, and its call to callEverything in this test`)
    if (calls.length === 0) continue
    const sent = new Set(calls.flatMap((m) => [...m.url.searchParams.keys()]))
    const known = (d.operation.parameters ?? []).filter((p) => p.in === "query").map((p) => p.name)
    if (d.name !== "GET /events/stream" && d.name !== "DELETE /sessions/{session_id}/messages") {
      assert.deepEqual([...sent].filter((n) => !known.includes(n)).concat(known.filter((n) => !sent.has(n))), [], `the parameters of ${d.name}`)
    }
    const takesKey = (d.operation.parameters ?? []).some((p) => p.name === "Idempotency-Key")
    for (const m of calls) assert.equal("Idempotency-Key" in m.headers, takesKey, `Idempotency-Key of ${d.name}`)
  }
})

test("values in paths are encoded", async () => {
  const { client, made } = recorder()
  await client.sessions.get("../a b/ü?#")
  assert.equal(made[0]!.url.pathname, "/sessions/..%2Fa%20b%2F%C3%BC%3F%23")
  assert.equal(client.assets.url("s", "a/b"), "http://server.example/sessions/s/assets/a%2Fb")
})
