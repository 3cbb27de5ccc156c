"""A plugin with tools that report progress, fail and write escape sequences, and with elements of all types."""

import json
import sys
import time

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eDETACER"

TOOLS = [
    {"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}},
    {"name": "wait", "description": "Counts, and does not end by itself.", "inputSchema": {"type": "object"}},
    {"name": "fail", "description": "Fails.", "inputSchema": {"type": "object"}},
    {"name": "evil", "description": "Writes escape sequences.", "inputSchema": {"type": "object"}},
    {"name": "get_ui_elements", "inputSchema": {"type": "object"}},
    {"name": "greet", "inputSchema": {"type": "object"}},
    {"name": "translate", "inputSchema": {"type": "object"}},
    {"name": "break", "inputSchema": {"type": "object"}},
]

ELEMENTS = [
    {"key": "tone", "type": "select", "label": "Tone", "options": ["plain", {"value": "warm", "label": "Warm and long"}], "default": "plain",
     "description": "How the assistant sounds."},
    {"key": "greeting", "type": "text", "label": "Greeting", "placeholder": "Hello", "condition": {"path": "tone", "eq": "warm"}},
    {"key": "story", "type": "multiline", "label": "Story"},
    {"key": "polite", "type": "checkbox", "label": "Polite", "default": True},
    {"key": "speed", "type": "dropdown", "label": "Speed", "options": ["slow", "fast"], "default": "slow"},
    {"key": "level", "type": "number", "label": "Level", "default": 3},
    {"key": "studio_token", "type": "text", "label": "Token", "secret": True},
    {"ui_type": "message_footer", "data": "role", "template": "written by the {{data}}", "condition": {"path": "role", "eq": "assistant"}},
    {"ui_type": "session_action", "id": "greet", "label": "Greet", "action_id": "greet", "param_map": {"who": "$dialog.name"},
     "dialog": {"kind": "form", "title": "Greet somebody", "message": "The plugin greets whom you name.",
                "inputs": [{"name": "name", "type": "text", "label": "Name", "required": True},
                           {"name": "loud", "type": "checkbox", "label": "Loud"}]}},
    {"ui_type": "session_action", "id": "break", "label": "Break", "action_id": "break", "order": 9},
    {"ui_type": "message_action", "id": "translate", "label": "Translate", "action_id": "translate", "param_map": {"index": "$message.index"},
     "condition": {"path": "role", "eq": "assistant"}},
]


def send(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def count(params):
    token = params.get("_meta", {}).get("progressToken")
    steps = params.get("arguments", {}).get("steps", 3)
    for n in range(1, steps + 1):
        if token is not None:
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": n, "total": steps, "message": f"step {n}\n"}})
    return {"content": [{"type": "text", "text": "".join(f"counted {n}\n" for n in range(1, steps + 1))}]}


def wait(params):
    count(params)
    time.sleep(600)


def run(name, params):
    arguments = params.get("arguments", {})
    if name == "count":
        return count(params)
    if name == "wait":
        return wait(params)
    if name == "fail":
        return {"content": [{"type": "text", "text": "the oven is cold"}], "isError": True}
    if name == "evil":
        return {"content": [{"type": "text", "text": EVIL + " text of a tool"}]}
    if name == "get_ui_elements":
        return {"content": [], "structuredContent": {"elements": ELEMENTS}}
    if name == "greet":
        p = arguments["params"]
        return {"content": [], "structuredContent": {"greeting": "Hello " + p["who"], "loud": p.get("loud", False)}}
    if name == "translate":
        return {"content": [], "structuredContent": {"translated": arguments["params"]["index"]}}
    raise ValueError("broken " + EVIL)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    method, params = message["method"], message.get("params", {})
    try:
        if method == "initialize":
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "studio", "version": "1.0.0"}}
        elif method == "tools/list":
            result = {"tools": TOOLS}
        elif method == "tools/call":
            result = run(params["name"], params)
        else:
            result = {}
        send({"id": message["id"], "result": result})
    except Exception as fault:
        send({"id": message["id"], "error": {"code": -32603, "message": str(fault)}})
