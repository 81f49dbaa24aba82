"""An MCP server for the tests: it runs inside the sandbox, with the standard library alone."""

import json
import os
import sys
import time
from typing import Any

TOOLS = ["add", "where", "slow", "fail", "echo"]


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "test", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        # Two pages, and a request of the server between them.
        if "cursor" in params:
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS[1:]]}
        send({"id": "ping-1", "method": "ping"})
        return {"tools": [{"name": TOOLS[0], "inputSchema": {"type": "object"}}], "nextCursor": "2"}
    name, arguments = params["name"], params["arguments"]
    if name == "slow":
        time.sleep(60)
    if name == "fail":
        return {"content": [{"type": "text", "text": "it failed"}], "isError": True}
    if name == "add":
        return {"content": [], "structuredContent": {"sum": arguments["a"] + arguments["b"]}}
    text = os.environ.get("MARK", "") + " " + os.getcwd()
    return {"content": [{"type": "text", "text": text}]}


def send(message: dict[str, Any]) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


print("a line of a log", file=sys.stderr, flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if "method" in request and "id" in request:
        send({"id": request["id"], "result": answer(request["method"], request.get("params", {}))})
