"""A sandbox of this machine, or of the server that `STOCKADE_SERVER` names."""

from __future__ import annotations

import os
from typing import Any

from .._async.bundles import AsyncBundle
from .._async.client import AsyncClient
from .._async.sandbox import AsyncSandbox
from .._problem import StockadeError
from .base import Sandbox, SandboxError, SandboxStatus
from .mcp import McpServer, read_config


class LocalSandbox(Sandbox):
    """A sandbox in which tools run: those of the server, and those of the MCP servers that `mcp_config` names,
    which are started inside. It sees the directory of `workspace` copy-on-write, at the same path, and nothing
    else of the user's files. What tools change there is in the directory only after `collect` and `apply`."""

    def __init__(
        self,
        *,
        sandbox_id: str | None = None,
        workspace: list[str] | None = None,
        mcp_config: dict[str, Any] | None = None,
        agents: dict[str, Any] | None = None,
        timeout: float = 30.0,
        client: AsyncClient | None = None,
    ) -> None:
        super().__init__(
            sandbox_id=sandbox_id,
            workspace=workspace,
            mcp_config=mcp_config,
            agents=agents,
            timeout=timeout,
        )
        self._configs = read_config(self._mcp_config)
        self._given_client = client
        self._client: AsyncClient | None = None
        self._sandbox: AsyncSandbox | None = None
        self._servers: list[McpServer] = []
        self.bundle: str | None = None
        """The bundle with what was changed in the workspace, after `cleanup`."""

    async def start(self) -> None:
        """Creates the sandbox, or starts it again, and then its MCP servers. Nothing is left running when that
        fails."""
        self._check_transition(SandboxStatus.RUNNING)
        if self._agents:
            raise SandboxError(
                "`agents` has no effect here: an agent runs outside of the sandbox and calls `run_tool`",
                code="UNSUPPORTED",
                remediation="omit `agents`, or run a workflow with agents: stockade up",
            )
        try:
            sandbox = await self._started()
            for config in self._configs:
                server = McpServer(sandbox, config)
                self._servers.append(server)
                await server.start(self.timeout)
        except BaseException as error:
            self._status = SandboxStatus.ERROR
            await self._stop_after_failure()
            if isinstance(error, StockadeError):
                raise SandboxError.of(error) from error
            raise
        self._enter(SandboxStatus.RUNNING)

    async def stop(self) -> None:
        """Ends all processes in it, and keeps its files."""
        self._check_transition(SandboxStatus.IDLE)
        await self._close_servers()
        if self._sandbox is not None:
            try:
                await self._sandbox.stop()
            except StockadeError as error:
                self._enter(SandboxStatus.ERROR)
                raise SandboxError.of(error) from error
        self._enter(SandboxStatus.IDLE)

    async def collect(self) -> AsyncBundle | None:
        """What tools have changed in the workspace, as a bundle to apply or to reject; `None` if nothing has
        changed."""
        if self._sandbox is None:
            return None
        try:
            return await self._sandbox.collect()
        except StockadeError as error:
            raise SandboxError.of(error) from error

    async def cleanup(self) -> None:
        """Terminates it and removes its files. What tools have changed in the workspace becomes a bundle first,
        whose id is in `bundle`."""
        self._check_transition(SandboxStatus.CLOSED)
        await self._close_servers()
        try:
            if self._sandbox is not None:
                self.bundle = (await self._sandbox.kill()).bundle
        except StockadeError as error:
            raise SandboxError.of(error) from error
        finally:
            await self._close_client()
        self._enter(SandboxStatus.CLOSED)

    async def run_tool(self, tool_name: str, arguments: dict[str, Any]) -> Any:
        """Runs a tool, and returns a dict with `tool`, `arguments`, `status` (`ok` or `error`) and `result`.

        The name of a tool of an MCP server is that of the server, a slash and its own; its own alone is enough
        if no other tool has it.
        """
        if self.status is not SandboxStatus.RUNNING or self._sandbox is None:
            raise SandboxError(f"the sandbox must be running to run a tool, and is {self.status}")
        found = self._find(tool_name)
        if found is None:
            try:
                ran = await self._sandbox.run_tool(tool_name, arguments, timeout=self.timeout)
            except StockadeError as error:
                raise SandboxError.of(error) from error
            return ran.to_json()
        server, tool = found
        answer = await server.call(tool, arguments, self.timeout)
        status = "error" if answer.get("isError") else "ok"
        result = answer.get("structuredContent", answer.get("content"))
        return {"tool": tool_name, "arguments": arguments, "status": status, "result": result}

    def tools(self) -> list[str]:
        """The tools of its MCP servers."""
        return [f"{server.name}/{tool}" for server in self._servers for tool in server.tools]

    def _find(self, name: str) -> tuple[McpServer, str] | None:
        """The tool of an MCP server with this name."""
        found = [
            (server, tool)
            for server in self._servers
            for tool in server.tools
            if name in (tool, f"{server.name}/{tool}")
        ]
        if len(found) > 1:
            names = ", ".join(f"{server.name}/{tool}" for server, tool in found)
            raise SandboxError(
                f"several MCP servers have a tool {name}", code="CONFLICT", remediation=f"use one of {names}"
            )
        return found[0] if found else None

    async def _started(self) -> AsyncSandbox:
        if self._sandbox is not None:
            await self._sandbox.start()
            return self._sandbox
        directory = self._directory()
        client = self._given_client or self._client
        if client is None:
            client = self._client = AsyncClient()
        self._sandbox = await AsyncSandbox.create(
            id=self.sandbox_id,
            workspace=directory,
            client=client,
        )
        return self._sandbox

    def _directory(self) -> str | None:
        """The directory of `workspace`, which is created if it does not exist."""
        if not self._workspace:
            return None
        if len(self._workspace) > 1:
            raise SandboxError(
                f"`workspace` has {len(self._workspace)} directories, and a sandbox sees one copy-on-write",
                code="UNSUPPORTED",
                remediation="name a directory that contains all of them",
            )
        path = os.path.abspath(self._workspace[0])
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            message = f"the workspace {path} cannot be created: {error}"
            raise SandboxError(message, code="IO") from error
        return path

    async def _stop_after_failure(self) -> None:
        await self._close_servers()
        if self._sandbox is not None:
            try:
                await self._sandbox.stop()
            except StockadeError:
                # It did not start; the cause is reported.
                pass

    async def _close_servers(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            await server.aclose()

    async def _close_client(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()
