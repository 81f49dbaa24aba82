"""MCP servers inside a sandbox: each is a command that speaks JSON-RPC by lines on its standard streams
(MCP, "stdio transport"). `mcp_config` names them, as the configuration files of agents do."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from .. import models
from .._async.sandbox import AsyncSandbox
from .._async.session import AsyncSession
from .._output import Output
from .._problem import StockadeError
from .._protocol import VERSION
from ..errors import UnreachableError
from .base import SandboxError

PROTOCOL = "2025-11-25"
"""The version of MCP that is offered."""

_LINE_BYTES = 64 << 20
_ERROR_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class ServerConfig:
    """How a server is started."""

    name: str
    command: list[str]
    environment: dict[str, str]
    working_directory: str | None


def read_config(config: Mapping[str, Any]) -> list[ServerConfig]:
    """The servers of a configuration: `{"mcpServers": {NAME: {"command": …, "args": […], "env": {…}}}}`, or
    what is in `mcpServers` alone."""
    servers = config.get("mcpServers", config)
    if not isinstance(servers, Mapping):
        raise _invalid("`mcpServers` is not an object")
    return [_read_server(str(name), server) for name, server in servers.items()]


def _read_server(name: str, server: Any) -> ServerConfig:
    if not isinstance(server, Mapping):
        raise _invalid(f"the server {name} is not an object")
    if "url" in server:
        raise SandboxError(
            f"the MCP server {name} has a URL: only servers that are commands are started in the sandbox",
            code="UNSUPPORTED",
            remediation=f'give {name} a "command"',
        )
    unknown = sorted(set(server) - {"command", "args", "env", "cwd", "type"})
    if unknown:
        raise _invalid(f"the server {name} has the unknown member {unknown[0]!r}")
    if server.get("type", "stdio") != "stdio":
        raise _invalid(f"the server {name} is of the type {server['type']!r}, not `stdio`")
    command, arguments = server.get("command"), server.get("args", [])
    environment, directory = server.get("env", {}), server.get("cwd")
    if not isinstance(command, str) or not command:
        raise _invalid(f"the server {name} has no `command`")
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        raise _invalid(f"`args` of the server {name} is not a list of texts")
    if not isinstance(environment, Mapping) or not all(
        isinstance(value, str) for value in environment.values()
    ):
        raise _invalid(f"`env` of the server {name} is not an object with texts")
    if directory is not None and not isinstance(directory, str):
        raise _invalid(f"`cwd` of the server {name} is not a text")
    return ServerConfig(name, [command, *arguments], dict(environment), directory)


def _invalid(reason: str) -> SandboxError:
    return SandboxError(f"mcp_config is invalid: {reason}", code="INVALID_INPUT")


class McpServer:
    """A running server, with its tools."""

    def __init__(self, sandbox: AsyncSandbox, config: ServerConfig) -> None:
        self.name = config.name
        self.tools: list[str] = []
        self._sandbox = sandbox
        self._config = config
        self._session: AsyncSession | None = None
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._errors = b""
        self._last_id = 0
        # The answers come in one stream, so one request is made at a time.
        self._turn = asyncio.Lock()

    async def start(self, timeout: float) -> None:
        """Starts the command and reads the list of its tools."""
        async with self._turn, self._deadline(timeout):
            self._lines.clear()
            self._rest = self._errors = b""
            session = self._sandbox.open_session(
                self._config.command,
                input=True,
                environment=self._config.environment,
                working_directory=self._config.working_directory,
            )
            await session.__aenter__()
            self._session = session
            client = {"name": "stockade", "version": VERSION}
            hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client}
            await self._request("initialize", hello)
            await self._send({"method": "notifications/initialized"})
            self.tools = await self._list_tools()

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Calls a tool. A server that was closed by a timeout is started again."""
        if self._session is None:
            await self.start(timeout)
        async with self._turn, self._deadline(timeout):
            return await self._request("tools/call", {"name": tool, "arguments": dict(arguments)})

    async def aclose(self) -> None:
        """Ends the command."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.aclose()

    def _deadline(self, timeout: float) -> _Deadline:
        return _Deadline(self, timeout)

    async def _list_tools(self) -> list[str]:
        names: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._request("tools/list", {"cursor": cursor} if cursor else {})
            names += [str(tool["name"]) for tool in page.get("tools", [])]
            cursor = page.get("nextCursor")
            if not cursor:
                return names

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._last_id += 1
        await self._send({"id": self._last_id, "method": method, "params": params})
        while True:
            message = await self._receive()
            if "method" in message:
                await self._answer(message)
            elif message.get("id") == self._last_id:
                if "error" in message:
                    error = message["error"]
                    text = error.get("message") if isinstance(error, dict) else error
                    raise SandboxError(f"{self.name}: {text}", code="INVALID_INPUT")
                result = message.get("result")
                return result if isinstance(result, dict) else {}

    async def _answer(self, message: Mapping[str, Any]) -> None:
        """Answers a request of the server; a notification needs no answer."""
        if "id" not in message:
            return
        if message["method"] == "ping":
            await self._send({"id": message["id"], "result": {}})
        else:
            error = {"code": -32601, "message": "this client has no such method"}
            await self._send({"id": message["id"], "error": error})

    async def _send(self, message: Mapping[str, Any]) -> None:
        assert self._session is not None
        text = json.dumps({"jsonrpc": "2.0", **message})
        try:
            await self._session.send(text + "\n")
        except UnreachableError:
            # The command has ended, which the next answer reports with its reason.
            pass

    async def _receive(self) -> dict[str, Any]:
        assert self._session is not None
        while not self._lines:
            event = await self._session.next()
            if isinstance(event, Output) and event.stream == "stdout":
                *lines, self._rest = (self._rest + event.data).split(b"\n")
                self._lines.extend(line for line in lines if line.strip())
                if len(self._rest) > _LINE_BYTES:
                    raise SandboxError(f"{self.name} writes a line without an end", code="IO")
            elif isinstance(event, Output):
                self._errors = (self._errors + event.data)[-_ERROR_BYTES:]
            elif event is None or isinstance(event, models.OutputEnd):
                raise self._ended(event)
        try:
            message = json.loads(self._lines.popleft())
        except ValueError as error:
            raise SandboxError(f"{self.name} writes what is no message: {error}", code="IO") from error
        return message if isinstance(message, dict) else {}

    def _ended(self, end: models.OutputEnd | None) -> SandboxError:
        how = "" if end is None else f" with the exit code {end.exit_code}"
        text = self._errors.decode(errors="replace").strip()
        return SandboxError(
            f"the MCP server {self.name} has ended{how}" + (f": {text}" if text else ""),
            code="LAUNCH_FAILED",
            remediation=f"run its command in the sandbox: {' '.join(self._config.command)}",
        )


class _Deadline:
    """Ends a server that does not answer in time, or has failed: what it sends later answers nothing."""

    def __init__(self, server: McpServer, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as timeout:
            await self._server.aclose()
            raise SandboxError(
                f"{self._server.name} did not answer within {self._seconds} seconds",
                code="TIMED_OUT",
            ) from timeout
        if isinstance(error, SandboxError) and error.code == "INVALID_INPUT":
            # The server has answered.
            return
        if error is not None:
            await self._server.aclose()
        if isinstance(error, StockadeError):
            raise SandboxError.of(error) from error
