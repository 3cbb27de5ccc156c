// A plugin for tests of the page: a tool that takes its time, settings, and an action with a form.
import { createInterface } from "node:readline";

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

const tools = [
  { name: "saw", description: "Saws planks.", inputSchema: { type: "object", properties: { planks: { type: "integer" }, pause_ms: { type: "integer" } } } },
  { name: "get_ui_elements", inputSchema: { type: "object", properties: { config: {}, tags: {}, models: {} } } },
  { name: "order", inputSchema: { type: "object" } },
];

const elements = [
  { key: "workshop_wood", type: "select", label: "Wood", options: ["oak", "pine"], default: "oak" },
  { key: "workshop_length", type: "number", label: "Length of a plank in centimetres", default: 120 },
  {
    ui_type: "session_action",
    id: "order",
    label: "Order planks",
    action_id: "order",
    param_map: { count: "$dialog.count", note: "$dialog.note", oiled: "$dialog.oiled" },
    dialog: {
      kind: "form",
      title: "Order planks",
      inputs: [
        { name: "count", type: "number", label: "How many", required: true },
        { name: "note", type: "text", label: "Note for the sawmill", default: "By noon" },
        { name: "oiled", type: "checkbox", label: "Oiled" },
      ],
    },
  },
];

/** saw reports each plank. Without planks it fails. What the user sees differs from what the model gets. */
async function saw({ planks = 0, pause_ms: ms = 100 }, { progressToken }) {
  if (planks < 1) return { isError: true, content: [{ type: "text", text: "There is no plank to saw." }] };
  for (let n = 1; n <= planks; n++) {
    await pause(ms);
    if (progressToken !== undefined) send({ method: "notifications/progress", params: { progressToken, progress: n, total: planks, message: `Plank ${n} is sawn.\n` } });
  }
  return { content: [{ type: "text", text: `for the model: ${planks}` }], _meta: { display: { type: "text", content: `${planks} planks lie ready.` } } };
}

const run = {
  saw: (given, meta) => saw(given, meta),
  get_ui_elements: () => ({ content: [], structuredContent: { elements } }),
  order: ({ params }) => ({ content: [], structuredContent: { ordered: params.count } }),
};

async function answer({ method, params = {} }) {
  if (method === "initialize") return { protocolVersion: params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "workshop", version: "1.0.0" } };
  if (method === "tools/list") return { tools };
  if (method === "tools/call") return run[params.name](params.arguments ?? {}, params._meta ?? {});
  return {};
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const message = JSON.parse(line);
  if (message.id === undefined || !message.method) return; // a notification, or an answer
  try {
    send({ id: message.id, result: await answer(message) });
  } catch (thrown) {
    send({ id: message.id, error: { code: -32603, message: String(thrown) } });
  }
});
