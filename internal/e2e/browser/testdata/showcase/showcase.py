"""A plugin that shows the elements in elements.json and answers its actions with what it was called with."""
import json
import sys

with open("plugin.json") as f:
    manifest = json.load(f)
with open("elements.json") as f:
    elements = json.load(f)


def call(name, arguments):
    if name == "get_ui_elements":
        return {"elements": elements}
    state = {"calls": (arguments.get("state") or {}).get("calls", 0) + 1}
    result = {"params": arguments["params"], "session_id": arguments["session_id"], "calls": state["calls"]}
    return {"result": result, "state": state} if "state" in arguments else result


def answer(method, params):
    if method == "initialize":
        info = {"name": manifest["name"], "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        schema = {"type": "object", "properties": {"config": {}, "params": {}}}
        return {"tools": [{"name": n, "inputSchema": schema} for n in manifest["ui"] + manifest["actions"]]}
    if method == "tools/call":
        return {"content": [], "structuredContent": call(params["name"], params["arguments"])}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params", {}))
    reply = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
