"""Uses a server through the client library opensandbox of PyPI, and prints as JSON what it observed.

Called as: opensandbox_client.py HOST:PORT KEY SERVER_INSIDE. What an older version of the library does not
have is reported as null.
"""

import asyncio
import base64
import inspect
import json
import os
import pathlib
import sys
from datetime import timedelta

import httpx
from opensandbox import Sandbox
from opensandbox.adapters.command_adapter import CommandsAdapter
from opensandbox.adapters.filesystem_adapter import FilesystemAdapter
from opensandbox.config import ConnectionConfig
from opensandbox.exceptions import SandboxApiException
from opensandbox.manager import SandboxManager
from opensandbox.models.execd import ExecutionHandlers, RunCommandOpts
from opensandbox.models.filesystem import (
    ContentReplaceEntry,
    MoveEntry,
    SearchEntry,
    SetPermissionEntry,
    WriteEntry,
)
from opensandbox.models.sandboxes import SandboxFilter


HAS_VARIABLES = hasattr(CommandsAdapter, "set_env")
HAS_LINES = "limit" in inspect.signature(FilesystemAdapter.read_file).parameters


def texts(messages):
    return [message.text for message in messages]


async def commands(sandbox, report):
    ran = await sandbox.commands.run("printf 'hello\\n\\nend'; echo oops >&2")
    logs = ran.logs
    report["echo"] = {
        "stdout": texts(logs.stdout),
        "stderr": texts(logs.stderr),
        "exit": ran.exit_code,
    }
    failed = await sandbox.commands.run("exit 3")
    report["failed"] = {"exit": failed.exit_code}
    if HAS_VARIABLES:
        await sandbox.commands.set_env("KEPT", "it's \"kept\"")
    options = RunCommandOpts(envs={"GIVEN": "per call"})
    ran = await sandbox.commands.run('echo "$GIVEN"; echo "$KEPT"', opts=options)
    report["environment"] = texts(ran.logs.stdout)
    options = RunCommandOpts(timeout=timedelta(milliseconds=300))
    late = await sandbox.commands.run("sleep 60", opts=options)
    report["timeout"] = {"exit": late.exit_code}
    large = await sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    report["large"] = sum(len(text) for text in texts(large.logs.stdout))

    async def interrupt(init):
        await sandbox.commands.interrupt(init.id)

    ended = await sandbox.commands.run("sleep 60", handlers=ExecutionHandlers(on_init=interrupt))
    report["interrupted"] = ended.error is not None

    options = RunCommandOpts(background=True)
    started = await sandbox.commands.run("echo one; sleep 0.2; echo two", opts=options)
    for _ in range(600):
        status = await sandbox.commands.get_command_status(started.id)
        if not status.running:
            break
        await asyncio.sleep(0.05)
    logs = await sandbox.commands.get_background_command_logs(started.id)
    report["background"] = {
        "exit": status.exit_code,
        "running": status.running,
        "logs": logs.content,
    }


async def files(sandbox, report):
    content = bytes(range(256)) * 4096
    await sandbox.files.write_file("/tmp/work/binary", content)
    report["binary"] = await sandbox.files.read_bytes("/tmp/work/binary") == content
    await sandbox.files.write_files([
        WriteEntry(path="/tmp/work/a.txt", data="0123456789", mode=644),
        WriteEntry(path="/tmp/work/run.sh", data="a-b", mode=644),
    ])
    report["range"] = await sandbox.files.read_file("/tmp/work/a.txt", range_header="bytes=2-5")
    await sandbox.files.set_permissions([SetPermissionEntry(path="/tmp/work/run.sh", mode=755)])
    if HAS_LINES:
        await sandbox.files.write_file("/tmp/lines", "line1\nline2\nline3\nline4\nline5")
        report["lines"] = [
            await sandbox.files.read_file("/tmp/lines", offset=2, limit=2),
            await sandbox.files.read_file("/tmp/lines", offset=4),
            await sandbox.files.read_file("/tmp/lines", limit=2),
        ]
    info = (await sandbox.files.get_file_info(["/tmp/work/run.sh"]))["/tmp/work/run.sh"]
    report["info"] = {"mode": info.mode, "size": info.size, "type": "file"}
    found = await sandbox.files.search(SearchEntry(path="/tmp/work", pattern="*.txt"))
    report["search"] = [entry.path for entry in found]
    await sandbox.files.replace_contents([
        ContentReplaceEntry(path="/tmp/work/run.sh", old_content="a-b", new_content="x-y"),
    ])
    report["replaced"] = await sandbox.files.read_file("/tmp/work/run.sh")
    await sandbox.files.move_files([MoveEntry(src="/tmp/work/run.sh", dest="/tmp/work/moved")])
    report["moved"] = await sandbox.files.read_file("/tmp/work/moved")
    try:
        await sandbox.files.read_file("/tmp/work/none")
    except SandboxApiException as error:
        report["missing"] = error.status_code
    await sandbox.files.delete_files(["/tmp/work/moved"])
    await sandbox.files.delete_directories(["/tmp/work"])


async def ports(sandbox, server, report):
    await sandbox.files.write_file("/tmp/server.py", pathlib.Path(server).read_bytes())
    background = RunCommandOpts(background=True)
    await sandbox.commands.run("python3 /tmp/server.py 8123", opts=background)
    found = await sandbox.get_endpoint(8123)
    url = f"http://{found.endpoint}"
    async with httpx.AsyncClient(headers=found.headers or {}) as http:
        for _ in range(600):
            answer = await http.get(f"{url}/a?b=c")
            if answer.status_code == 200:
                break
            await asyncio.sleep(0.05)
        report["get"] = answer.text
        report["post"] = (await http.post(f"{url}/p", content=b"body")).text
    host, _, path = found.endpoint.partition("/")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    head = [f"GET /{path}/ws HTTP/1.1", f"Host: {host}", "Connection: Upgrade"]
    head += ["Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    head += [f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
    head += [f"{name}: {value}" for name, value in (found.headers or {}).items()]
    writer.write("\r\n".join([*head, "", ""]).encode())
    status = await reader.readuntil(b"\r\n\r\n")
    # A text message with the mask 0.
    writer.write(b"\x81\x84\0\0\0\0over")
    answer = await reader.readexactly(2 + len("echo over"))
    report["socket"] = [int(status.split()[1]), answer[2:].decode()]
    writer.close()


async def life(sandbox, config, report):
    session = await sandbox.commands.create_session(working_directory="/tmp")
    first = await sandbox.commands.run_in_session(session, "pwd; export KEPT_HERE=kept")
    second = await sandbox.commands.run_in_session(session, 'echo "$KEPT_HERE"')
    report["session"] = texts(first.logs.stdout) + texts(second.logs.stdout)
    await sandbox.commands.delete_session(session)

    await sandbox.files.write_file("/tmp/state", "still here")
    await sandbox.pause()
    paused = (await sandbox.get_info()).status.state
    report["healthy_when_paused"] = await sandbox.is_healthy()
    resumed = await Sandbox.resume(sandbox.id, connection_config=config)
    state = (await resumed.get_info()).status.state
    report["paused"] = [paused, state, await resumed.files.read_file("/tmp/state")]
    before = (await sandbox.get_info()).expires_at
    await sandbox.renew(timedelta(hours=2))
    report["renewed"] = (await sandbox.get_info()).expires_at > before
    report["memory"] = (await sandbox.get_metrics()).memory_total_in_mib > 0
    async with await SandboxManager.create(connection_config=config) as manager:
        states = ["Pending", "Allocated", "Running"]
        selection = SandboxFilter(states=states, metadata={"team": "a b"})
        listed = await manager.list_sandbox_infos(selection)
        report["listed"] = [info.id for info in listed.sandbox_infos] == [sandbox.id]


async def main(domain, key, server):
    report = {}
    config = ConnectionConfig(domain=domain, api_key=key, request_timeout=timedelta(seconds=60))
    sandbox = await Sandbox.create(
        "host",
        connection_config=config,
        timeout=timedelta(minutes=30),
        metadata={"team": "a b"},
        extensions={"opensandbox.extensions.own": "value"},
    )
    try:
        report["extensions"] = getattr(await sandbox.get_info(), "extensions", None)
        await commands(sandbox, report)
        await files(sandbox, report)
        await ports(sandbox, server, report)
        await life(sandbox, config, report)
    finally:
        await sandbox.kill()
    try:
        await sandbox.files.read_file("/etc/passwd")
        report["killed"] = False
    except SandboxApiException as error:
        report["killed"] = error.status_code == 404
    wrong = ConnectionConfig(domain=domain, api_key="e2b_" + "0" * 40)
    try:
        await Sandbox.create("host", connection_config=wrong)
    except SandboxApiException as error:
        report["wrong_key"] = error.status_code
    print(json.dumps(report))


asyncio.run(main(*sys.argv[1:]))
