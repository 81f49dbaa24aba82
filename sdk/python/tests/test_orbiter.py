"""Orbiter's sandbox with a server: its life, its tools, and MCP servers that run inside."""

import shutil
import tempfile
import unittest
from pathlib import Path

from stockade import AsyncClient
from stockade.orbiter import LocalSandbox, SandboxError, SandboxStatus

from . import PROGRAM, needs_server


@needs_server
class Orbiter(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.client = AsyncClient(program=PROGRAM)
        self.directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        shutil.copy(Path(__file__).with_name("mcp_server.py"), self.directory)

    async def asyncTearDown(self) -> None:
        await self.client.aclose()

    def config(self, *names: str) -> dict[str, object]:
        server = {
            "command": "python3",
            "args": [str(self.directory / "mcp_server.py")],
            "env": {"MARK": "marked"},
            "cwd": "/tmp",
        }
        return {"mcpServers": dict.fromkeys(names, server)}

    async def test_the_example_of_the_contract(self) -> None:
        workspace = self.directory / "ws"
        sandbox = LocalSandbox(workspace=[str(workspace)], timeout=60.0, client=self.client)
        await sandbox.start()
        self.assertEqual(sandbox.status, SandboxStatus.RUNNING)
        result = await sandbox.run_tool("echo", {"text": "hello"})
        self.assertEqual(result["tool"], "echo")
        self.assertEqual(result["arguments"], {"text": "hello"})
        self.assertEqual(result["status"], "ok")
        with self.assertRaisesRegex(SandboxError, "Cannot transition from running to running"):
            await sandbox.start()
        await sandbox.stop()
        self.assertEqual(sandbox.status, SandboxStatus.IDLE)
        with self.assertRaisesRegex(SandboxError, "must be running"):
            await sandbox.run_tool("echo", {})
        with self.assertRaisesRegex(SandboxError, "Cannot transition from idle to idle"):
            await sandbox.stop()
        await sandbox.start()
        self.assertEqual(sandbox.describe()["status"], "running")
        await sandbox.cleanup()
        self.assertEqual(sandbox.status, SandboxStatus.CLOSED)

    async def test_tools_see_the_workspace_and_nothing_else(self) -> None:
        workspace, outside = self.directory / "ws", self.directory / "outside"
        outside.write_text("secret")
        async with LocalSandbox(workspace=[str(workspace)], client=self.client) as sandbox:
            line = f"echo made > made; cat {outside}; pwd"
            ran = await sandbox.run_tool("shell", {"command": line})
            self.assertNotIn("secret", str(ran))
            self.assertIn(str(workspace), str(ran["result"]))
            read = await sandbox.run_tool("file_read", {"path": str(workspace / "made")})
            self.assertIn("made", str(read["result"]))
            self.assertFalse((workspace / "made").exists())
            bundle = await sandbox.collect()
            assert bundle is not None
            await bundle.apply()
            self.assertEqual((workspace / "made").read_text(), "made\n")
            await sandbox.run_tool("shell", {"command": "echo more > more"})
            with self.assertRaises(SandboxError) as unknown:
                await sandbox.run_tool("my_tool", {"arg": "value"})
            self.assertEqual(unknown.exception.code, "TOOL_UNKNOWN")
        self.assertEqual(sandbox.status, SandboxStatus.CLOSED)
        self.assertFalse((workspace / "more").exists())
        self.assertIsNotNone(sandbox.bundle)

    async def test_several_workspaces_are_refused(self) -> None:
        sandbox = LocalSandbox(workspace=["/tmp/a", "/tmp/b"], client=self.client)
        with self.assertRaises(SandboxError) as refused:
            await sandbox.start()
        self.assertEqual((refused.exception.code, sandbox.status), ("UNSUPPORTED", SandboxStatus.ERROR))

    async def test_mcp_servers_run_inside(self) -> None:
        sandbox = LocalSandbox(
            workspace=[str(self.directory)], mcp_config=self.config("one"), client=self.client
        )
        async with sandbox:
            self.assertIn("one/add", sandbox.tools())
            added = await sandbox.run_tool("add", {"a": 1, "b": 2})
            expected = {"tool": "add", "arguments": {"a": 1, "b": 2}, "status": "ok", "result": {"sum": 3}}
            self.assertEqual(added, expected)
            where = await sandbox.run_tool("one/where", {})
            self.assertEqual(where["result"], [{"type": "text", "text": "marked /tmp"}])
            self.assertEqual((await sandbox.run_tool("fail", {}))["status"], "error")
            await sandbox.stop()
            await sandbox.start()
            self.assertEqual((await sandbox.run_tool("add", {"a": 2, "b": 2}))["result"], {"sum": 4})

    async def test_a_tool_that_does_not_end_is_ended(self) -> None:
        sandbox = LocalSandbox(
            workspace=[str(self.directory)], mcp_config=self.config("one"), timeout=3.0, client=self.client
        )
        async with sandbox:
            with self.assertRaises(SandboxError) as late:
                await sandbox.run_tool("slow", {})
            self.assertEqual(late.exception.code, "TIMED_OUT")
            # The server is started again.
            self.assertEqual((await sandbox.run_tool("add", {"a": 1, "b": 1}))["result"], {"sum": 2})

    async def test_a_name_of_two_tools_is_refused(self) -> None:
        config = self.config("one", "two")
        async with LocalSandbox(
            workspace=[str(self.directory)], mcp_config=config, client=self.client
        ) as sandbox:
            with self.assertRaises(SandboxError) as refused:
                await sandbox.run_tool("add", {"a": 1, "b": 2})
            self.assertEqual(refused.exception.code, "CONFLICT")
            self.assertEqual((await sandbox.run_tool("two/add", {"a": 1, "b": 2}))["result"], {"sum": 3})

    async def test_a_server_that_cannot_run_leaves_an_error_that_can_be_repeated(self) -> None:
        config = {"broken": {"command": "sh", "args": ["-c", "echo no such thing >&2; exit 3"]}}
        sandbox = LocalSandbox(mcp_config=config, client=self.client)
        for _ in range(2):
            with self.assertRaisesRegex(SandboxError, "broken has ended.*no such thing"):
                await sandbox.start()
            self.assertEqual(sandbox.status, SandboxStatus.ERROR)
        with self.assertRaisesRegex(SandboxError, "Cannot transition from error to idle"):
            await sandbox.stop()
        await sandbox.cleanup()
        self.assertEqual(sandbox.status, SandboxStatus.CLOSED)

    async def test_a_scope_closes_once_and_keeps_the_error_of_its_body(self) -> None:
        with self.assertRaises(ZeroDivisionError):
            async with LocalSandbox(client=self.client) as sandbox:
                await sandbox.cleanup()
                raise ZeroDivisionError
        self.assertEqual(sandbox.status, SandboxStatus.CLOSED)


if __name__ == "__main__":
    unittest.main()
