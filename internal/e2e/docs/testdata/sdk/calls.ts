// The client that @hey-api/openapi-ts makes works against a server: node calls.js URL.
import { createClient } from "./hey/client/index.js";
import { appendMessage, createSession, getEvents, getSession, send } from "./hey/sdk.gen.js";
import type { Event } from "./hey/types.gen.js";

const client = createClient({ baseUrl: process.argv[2]! });
const created = await createSession({ client, body: { metadata: { title: "SDK" } }, throwOnError: true });
const path = { session_id: created.data.session_id };
await appendMessage({
  client, path, throwOnError: true,
  body: { role: "user", content: "A picture.", attachments: [{ type: "image", url: "https://a.example/b.png" }] },
});
const sent = await send({ client, path, body: { content: "Hello" }, throwOnError: true });

const seen: Event[] = [];
for (let since = created.data.cursor_event_id; seen.at(-1)?.type !== "request_completed";) {
  const { data } = await getEvents({ client, query: { ...path, since_id: since, wait: 20, session: "omit" }, throwOnError: true });
  seen.push(...data.events);
  since = data.events.at(-1)?.event_id ?? since;
}
let text = "";
for (const e of seen) {
  if (e.type === "final") text += e.messages.map((m) => m.content).join("");
}
const session = await getSession({ client, path, throwOnError: true });
const attached = session.data.messages[0]?.metadata?.attachments?.[0];
const refused = await send({ client, path, body: { on_busy: "queue" } });
console.log(JSON.stringify({
  request: sent.data.request_id, text, stored: session.data.messages.at(-1)?.content,
  url: attached && "url" in attached ? attached.url : "", code: refused.error?.code, at: refused.error?.errors?.[0]?.location,
}));

declare const process: { argv: string[] };
