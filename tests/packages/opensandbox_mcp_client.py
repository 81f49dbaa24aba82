"""Uses a server through opensandbox-mcp of PyPI, as an MCP host would, and prints as JSON what it
observed.

Called as: opensandbox_mcp_client.py HOST:PORT KEY
"""

import asyncio
import json
import pathlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(domain, key):
    report = {}
    program = pathlib.Path(sys.executable).with_name("opensandbox-mcp")
    arguments = ["--transport", "stdio", "--domain", domain, "--api-key", key]
    parameters = StdioServerParameters(command=str(program), args=arguments)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = {tool.name for tool in (await session.list_tools()).tools}

        async def call(name, **arguments):
            result = await session.call_tool(name, arguments)
            text = "".join(part.text for part in result.content if part.type == "text")
            if getattr(result, "is_error", None) or getattr(result, "isError", None):
                raise RuntimeError(f"{name}: {text}")
            return json.loads(text) if text[:1] in "{[" else text

        report["tools"] = len(tools)
        created = await call("sandbox_create", image="host", metadata={"by": "mcp"})
        box = created["sandbox_id"]
        try:
            report["state"] = (await call("sandbox_get_info", sandbox_id=box))["status"]["state"]
            report["healthy"] = await call("sandbox_healthcheck", sandbox_id=box)
            ran = await call("command_run", sandbox_id=box, command="echo hi; echo no >&2; exit 2")
            report["run"] = ran
            path = "/tmp/mcp/file.txt"
            await call("file_write", sandbox_id=box, path=path, content="text")
            report["read"] = await call("file_read", sandbox_id=box, path=path)
            listed = await call("sandbox_list", filter={"metadata": {"by": "mcp"}})
            report["listed"] = [info["id"] == box for info in listed["sandbox_infos"]]
            await call("sandbox_renew", sandbox_id=box, timeout_seconds=3600)
            metrics = await call("sandbox_get_metrics", sandbox_id=box)
            report["memory"] = metrics["memory_total_in_mib"] > 0
            endpoint = await call("sandbox_get_endpoint", sandbox_id=box, port=8000)
            report["endpoint"] = endpoint["endpoint"].endswith(f"/v1/sandboxes/{box}/proxy/8000")
        finally:
            await call("sandbox_kill", sandbox_id=box)
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
