// A plugin whose one tool never stops writing: notifications to standard output, lines
// to standard error.
const reply = (id, result) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
const junk = (JSON.stringify({ jsonrpc: "2.0", method: "notifications/progress", params: { progressToken: "none", progress: 1 } }) + "\n").repeat(100);

function handle({ id, method }) {
  if (method === "initialize") {
    reply(id, { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "flood", version: "1" } });
  } else if (method === "tools/list") {
    reply(id, { tools: [{ name: "flood", inputSchema: { type: "object" } }] });
  } else if (method === "tools/call") {
    for (;;) {
      process.stdout.write(junk);
      process.stderr.write("flood ".repeat(1000) + "\n");
    }
  } else if (id !== undefined) {
    process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, error: { code: -32601, message: "Method not found" } }) + "\n");
  }
}

require("readline").createInterface({ input: process.stdin }).on("line", (line) => handle(JSON.parse(line))).on("close", () => process.exit(0));
