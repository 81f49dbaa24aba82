"""Uses sandboxes through `/mcp` with the client library of PyPI, and prints as JSON what came of it.

Called as: mcp_sandboxes.py MODE URL KEY
"""

import json
import sys

import anyio
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


async def main(mode, url, key):
    report = {}
    headers = {"authorization": f"Bearer {key}"}
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode) as client:
            created = await client.call_tool("create", {})
            sandbox = created.structured_content["sandbox"]

            async def call(tool, **arguments):
                return await client.call_tool(tool, {"sandbox": sandbox, **arguments})

            ran = await call("exec", command="echo hello")
            report["stdout"] = ran.structured_content["stdout"]
            report["exit"] = ran.structured_content["exitCode"]

            progress = []

            async def seen(done, total, message):
                progress.append(message)

            command = "echo one; sleep 1; echo two; sleep 1"
            arguments = {"sandbox": sandbox, "command": command}
            await client.call_tool("exec", arguments, progress_callback=seen)
            report["progress"] = progress

            await call("write", path="f", content="text")
            report["read"] = (await call("read", path="f")).structured_content["content"]
            report["refused"] = bool((await call("read", path="../f")).is_error)

            with anyio.move_on_after(2) as scope:
                await call("exec", command="sleep 100000")
            report["cancelled"] = scope.cancelled_caught
            report["after"] = (await call("exec", command="true")).structured_content["exitCode"]
            await call("kill")
    print(json.dumps(report))


anyio.run(main, *sys.argv[1:])
