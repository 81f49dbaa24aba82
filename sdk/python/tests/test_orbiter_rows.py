"""Every row of Orbiter's contract that needs no server: the parameters, the states and their table."""

import unittest
from typing import Any

from stockade.orbiter import LocalSandbox, Sandbox, SandboxError, SandboxStatus

TABLE = {
    "init": {"running", "closed"},
    "running": {"idle", "error", "closed"},
    "idle": {"running", "error", "closed"},
    "error": {"running", "closed"},
    "closed": set(),
}


class Parts(Sandbox):
    """A sandbox without an environment, for the table of states."""

    async def start(self) -> None:
        self._enter(SandboxStatus.RUNNING)

    async def stop(self) -> None:
        self._enter(SandboxStatus.IDLE)

    async def cleanup(self) -> None:
        self._enter(SandboxStatus.CLOSED)

    def be(self, status: str) -> None:
        self._status = SandboxStatus(status)

    def enter(self, status: str) -> None:
        self._enter(SandboxStatus(status))


class Rows(unittest.IsolatedAsyncioTestCase):
    def test_states_have_their_values(self) -> None:
        names = {status.name: str(status) for status in SandboxStatus}
        self.assertEqual(names, {value.upper(): value for value in TABLE})

    def test_the_table_of_transitions_holds(self) -> None:
        for source, targets in TABLE.items():
            for target in TABLE:
                sandbox = Parts()
                sandbox.be(source)
                if target in targets:
                    sandbox.enter(target)
                    self.assertEqual(sandbox.status, target)
                else:
                    with self.assertRaisesRegex(SandboxError, f"Cannot transition from {source} to {target}"):
                        sandbox.enter(target)
                    self.assertEqual(sandbox.status, source)

    def test_parameters_have_their_defaults(self) -> None:
        sandbox = LocalSandbox()
        self.assertRegex(sandbox.sandbox_id, r"\A[0-9a-f]{12}\Z")
        self.assertNotEqual(sandbox.sandbox_id, LocalSandbox().sandbox_id)
        self.assertEqual(LocalSandbox(sandbox_id="mine").sandbox_id, "mine")
        self.assertEqual((sandbox.workspace, sandbox.mcp_config, sandbox.agents), ([], {}, {}))
        self.assertEqual((sandbox.timeout, sandbox.status), (30.0, SandboxStatus.INIT))
        with self.assertRaises(TypeError):
            LocalSandbox("positional")  # type: ignore[call-arg]

    def test_properties_are_copies(self) -> None:
        config: dict[str, Any] = {"mcpServers": {"a": {"command": "x", "args": ["1"]}}}
        sandbox = LocalSandbox(workspace=["/a"], mcp_config=config, agents={"b": {"c": [1]}})
        sandbox.workspace.append("/b")
        sandbox.describe()["workspace"].append("/b")
        sandbox.mcp_config["mcpServers"]["a"]["args"].append("2")
        config["mcpServers"]["a"]["args"] = ["3"]
        sandbox.agents["b"]["c"].append(2)
        self.assertEqual(sandbox.workspace, ["/a"])
        self.assertEqual(sandbox.mcp_config["mcpServers"]["a"]["args"], ["1"])
        self.assertEqual(sandbox.agents, {"b": {"c": [1]}})

    def test_a_description_has_four_keys(self) -> None:
        sandbox = LocalSandbox(sandbox_id="d1", workspace=["/a"], timeout=5.0)
        expected = {"sandbox_id": "d1", "status": "init", "workspace": ["/a"], "timeout": 5.0}
        self.assertEqual(sandbox.describe(), expected)

    def test_invalid_parameters_are_refused(self) -> None:
        for timeout in (0, -5.0, float("nan"), float("inf")):
            with self.assertRaises(SandboxError):
                LocalSandbox(timeout=timeout)
        for identifier in ("../d1", "A", "-a", "a" * 64):
            with self.assertRaises(SandboxError):
                LocalSandbox(sandbox_id=identifier)
        refused: list[dict[str, Any]] = [
            {"mcpServers": 1},
            {"a": {}},
            {"a": {"command": "x", "args": "y"}},
            {"a": {"command": "x", "env": {"B": 1}}},
            {"a": {"command": "x", "other": 1}},
            {"a": {"url": "https://box.test"}},
        ]
        for config in refused:
            with self.assertRaises(SandboxError):
                LocalSandbox(mcp_config=config)

    async def test_agents_are_refused_by_name(self) -> None:
        sandbox = LocalSandbox(agents={"a": {}})
        with self.assertRaises(SandboxError) as refused:
            await sandbox.start()
        self.assertEqual(refused.exception.code, "UNSUPPORTED")
        self.assertIn("agents", str(refused.exception))
        self.assertIsNotNone(refused.exception.remediation)
        self.assertEqual(sandbox.status, SandboxStatus.INIT)

    async def test_a_tool_needs_a_running_sandbox(self) -> None:
        with self.assertRaisesRegex(SandboxError, "must be running.*init"):
            await LocalSandbox().run_tool("echo", {})

    async def test_what_is_not_started_can_be_closed_once(self) -> None:
        sandbox = LocalSandbox()
        await sandbox.cleanup()
        self.assertEqual(sandbox.status, SandboxStatus.CLOSED)
        for call in (sandbox.start, sandbox.stop, sandbox.cleanup):
            with self.assertRaisesRegex(SandboxError, "Cannot transition from closed"):
                await call()


if __name__ == "__main__":
    unittest.main()
