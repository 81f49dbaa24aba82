"""Speaks to `stockade mcp` with the client library of PyPI, and prints as JSON what came of it.

Called as: mcp_client.py MODE COMMAND [ARGUMENTS]
"""

import json
import sys

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters

TOOL = "run_in_sandbox"
COUNTER = """
import { createModule, createSystem, t } from "@directive-run/core";
const counter = createModule("counter", {
  schema: { facts: { count: t.number() } },
  init: (facts) => { facts.count = 0; },
  derive: { isPositive: (facts) => facts.count > 0 },
  events: { bump: (facts) => { facts.count += 1; } },
});
const system = createSystem({ module: counter });
system.start(); system.events.bump(); system.events.bump(); await system.settle();
console.log("count =", system.facts.count);
"""


def told(result):
    """What a call answered, with the payload of its text where there is one."""
    text = result.content[0].text
    fence = ("<directive-data>\n", "\n</directive-data>")
    inside = text.startswith(fence[0]) and text.endswith(fence[1])
    payload = json.loads(text[len(fence[0]) : -len(fence[1])]) if inside else None
    return {
        "error": bool(result.is_error),
        "text": text,
        "payload": payload,
        "structured": result.structured_content,
    }


async def main(mode, command, arguments):
    report = {}
    server = StdioServerParameters(command=command, args=arguments)
    async with Client(server, mode=mode) as client:
        report["version"] = client.protocol_version
        tools = (await client.list_tools()).tools
        report["tools"] = sorted(tool.name for tool in tools)

        report["counter"] = told(await client.call_tool(TOOL, {"source": COUNTER}))
        files = [{"path": "src/main.ts", "source": "console.log(process.env);"}]
        report["denied"] = told(await client.call_tool(TOOL, {"files": files}))
        both = {"source": "1", "files": files}
        report["both"] = told(await client.call_tool(TOOL, both))

        beside = {}

        async def one(number):
            source = f"console.log({number} * 2);"
            beside[number] = told(await client.call_tool(TOOL, {"source": source}))

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(one, number)
        report["beside"] = [beside[number]["payload"]["logs"] for number in range(8)]

        # Cancelled while they run: as many calls as there can be permits, and some more.
        endless = {"source": "for (;;) {}", "timeoutMs": 10_000}
        with anyio.move_on_after(1) as scope:
            async with anyio.create_task_group() as group:
                for _ in range(16):
                    group.start_soon(client.call_tool, TOOL, endless)
        report["taken_back"] = scope.cancelled_caught
        report["after"] = told(await client.call_tool(TOOL, {"source": "console.log(1);"}))
    print(json.dumps(report))


anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3:])
