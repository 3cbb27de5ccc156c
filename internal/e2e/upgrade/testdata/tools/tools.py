"""A plugin with two tools, for the recording: one answers at once, one only reports progress."""
import json
import sys
import time

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("count", "linger")]


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def progress(params, n):
    token = params.get("_meta", {}).get("progressToken")
    if token is not None:
        send({"method": "notifications/progress",
              "params": {"progressToken": token, "progress": n, "total": 3, "message": f"step {n}\n"}})


def call(params):
    for n in (1, 2, 3):
        progress(params, n)
    if params["name"] == "linger":
        time.sleep(600)
    return {"content": [{"type": "text", "text": "one, two, three"}]}


def answer(method, params):
    if method == "initialize":
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "tools", "version": "1.0.0"}}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return call(params)
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        send({"id": message["id"], "result": answer(message["method"], message.get("params", {}))})
