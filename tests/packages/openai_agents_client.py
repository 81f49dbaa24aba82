"""Uses a server as the OpenAI Agents SDK does for an agent with a sandbox of E2B. Prints as JSON what it observed."""

import asyncio
import io
import json
import urllib.request
from pathlib import Path

from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Manifest
from agents.sandbox.entries import File


async def served(session):
    """What a server inside answers at the address of its port."""
    await session.exec("cd sub && (python3 -m http.server 8000 >/dev/null 2>&1 &)")
    endpoint = await session.resolve_exposed_port(8000)
    # No machine resolves names below `localhost` for Python, so the name is sent as a header.
    url = f"http://127.0.0.1:{endpoint.port}/a.txt"
    request = urllib.request.Request(url, headers={"Host": f"{endpoint.host}:{endpoint.port}"})
    for _ in range(100):
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return [answer.read().decode(), endpoint.tls]
        except OSError:
            await asyncio.sleep(0.1)
    return None


async def main():
    report = {}
    client = E2BSandboxClient()
    options = E2BSandboxClientOptions(sandbox_type="e2b", timeout=600, exposed_ports=(8000,))
    manifest = Manifest(entries={"notes.md": File(content=b"# Notes\n")})
    session = await client.create(manifest=manifest, options=options)
    await session.start()
    report["entry"] = (await session.exec("cat", "notes.md", shell=False)).stdout.decode()
    result = await session.exec("echo out; echo err >&2; exit 3")
    report["exec"] = [result.stdout.decode(), result.stderr.decode(), result.exit_code]
    report["pwd"] = (await session.exec("pwd")).stdout.decode().strip()
    report["python"] = (await session.exec("python -c 'print(6*7)'")).stdout.decode().strip()
    report["root"] = (await session.exec("id", "-u", shell=False, user="root")).stdout.decode().strip()
    report["sudo"] = (await session.exec("sudo id -u")).stdout.decode().strip()
    await session.write(Path("sub/a.txt"), io.BytesIO(b"written"))
    report["read"] = (await session.read(Path("sub/a.txt"))).read().decode()
    try:
        await session.read(Path("absent"))
    except Exception as error:
        report["absent"] = type(error).__name__
    try:
        await session.exec("sleep 60", timeout=1)
    except Exception as error:
        report["timeout"] = type(error).__name__
    report["ls"] = sorted(str(entry.path).rsplit("/", 1)[-1] for entry in await session.ls("."))
    report["port"] = await served(session)
    packed = (await session.persist_workspace()).read()
    report["persisted"] = len(packed) > 1000
    await session.exec("rm -rf sub")
    await session.hydrate_workspace(io.BytesIO(packed))
    report["hydrated"] = (await session.read(Path("sub/a.txt"))).read().decode()
    report["running"] = await session.running()
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    again = await client.resume(state)
    report["resumed"] = (await again.read(Path("sub/a.txt"))).read().decode()
    await session.shutdown()
    await client.delete(session)
    report["after"] = await session.running()
    print(json.dumps(report))


asyncio.run(main())
