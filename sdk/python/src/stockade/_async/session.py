"""The streams of a command: its input, its output while it runs, and its end. Also connections to ports."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import httpcore
import httpx

from .. import models
from .._model import Model, decode
from .._output import Lost, Output
from .._problem import StockadeError, error_of
from ..errors import BY_CODE, IoError, UnreachableError
from .transport import AsyncTransport

SessionEvent = Output | Lost | models.OutputEnd
"""Bytes that the command wrote, how many were lost, or its end."""

# The stream below a response is that of `httpcore`, which has errors of its own.
_TIMEOUTS = (httpcore.ReadTimeout, httpcore.WriteTimeout)
_LOST = (httpcore.NetworkError, OSError)

_STDOUT, _STDERR, _EVENT, _PROBLEM, _STDIN, _INPUT = range(1, 7)
_READ_BYTES: Final = 64 << 10
_FRAME_BYTES: Final = 1 << 20
_WRITE_SECONDS: Final = 600.0


class AsyncConnection:
    """A connection to a port inside a sandbox."""

    def __init__(self, transport: AsyncTransport, path: str, request: Model) -> None:
        self._open = transport.open(path, request, upgrade=True)
        self._stack = AsyncExitStack()
        self._stream: Any = None
        self._response: httpx.Response | None = None

    async def read(self, most: int = _READ_BYTES, timeout: float | None = None) -> bytes:
        """Reads bytes; none at the end. Raises `TimeoutError` when none has come in `timeout` seconds."""
        try:
            return bytes(await self._stream.read(most, timeout))
        except _TIMEOUTS as error:
            raise TimeoutError("no bytes have come") from error
        except _LOST as error:
            raise UnreachableError("the connection was lost", cause=str(error)) from error

    async def write(self, data: bytes) -> None:
        """Writes bytes, all of them."""
        try:
            await self._stream.write(data, _WRITE_SECONDS)
        except _TIMEOUTS as error:
            raise TimeoutError("the bytes were not taken") from error
        except _LOST as error:
            raise UnreachableError("the connection was lost", cause=str(error)) from error

    async def aclose(self) -> None:
        """Closes it."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.aclose()
        await self._stack.aclose()

    async def __aenter__(self) -> Self:
        self._response = await self._stack.enter_async_context(self._open)
        self._stream = self._response.extensions["network_stream"]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncSession(AsyncConnection):
    """A command with its streams. As an iterator it has what the command writes, and last its end. When it is
    closed before, the command is ended."""

    def __init__(self, transport: AsyncTransport, request: models.OpenSession) -> None:
        super().__init__(transport, "/v0/session", request)
        self._transport = transport
        self._buffer = bytearray()
        self.end: models.OutputEnd | None = None

    @property
    def workflow_id(self) -> str:
        """The operation, for its record."""
        assert self._response is not None, "the session is not open"
        return str(self._response.headers["stockade-workflow-id"])

    async def aclose(self) -> None:
        """Closes it. A command that has not ended is ended."""
        if self.end is None and self._stream is not None:
            request = models.KillCommand(workflow_id=self.workflow_id)
            try:
                await self._transport.call("kill_command", request, None)
            except StockadeError:
                # It has ended with its sandbox, or its server cannot be reached.
                pass
        await super().aclose()

    async def send(self, data: bytes | str) -> None:
        """Writes to the standard input of the command."""
        data = data.encode() if isinstance(data, str) else data
        for start in range(0, len(data), _FRAME_BYTES):
            await self._send_frame(_STDIN, data[start : start + _FRAME_BYTES])

    async def send_end(self) -> None:
        """Ends the standard input of the command."""
        await self._send_input({"kind": "end"})

    async def resize(self, rows: int, columns: int) -> None:
        """Changes the size of its terminal."""
        await self._send_input({"kind": "resize", "rows": rows, "columns": columns})

    async def signal(self, signal: int) -> None:
        """Sends a signal to its process group."""
        await self._send_input({"kind": "signal", "signal": signal})

    async def next(self, timeout: float | None = None) -> SessionEvent | None:
        """The next event; `None` after the end. Raises `TimeoutError` when there is none in `timeout`
        seconds."""
        if self.end is not None:
            return None
        kind, payload = await self._frame(timeout)
        if kind == _STDOUT:
            return Output("stdout", payload)
        if kind == _STDERR:
            return Output("stderr", payload)
        value = json.loads(payload)
        if kind == _PROBLEM:
            raise error_of(value, BY_CODE) or IoError("the session has failed")
        if value.get("kind") == "lost":
            return Lost(value["bytes"])
        self.end = decode(models.OutputEnd, value)
        return self.end

    def __aiter__(self) -> AsyncIterator[SessionEvent]:
        return self

    async def __anext__(self) -> SessionEvent:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def _frame(self, timeout: float | None) -> tuple[int, bytes]:
        while True:
            length = int.from_bytes(self._buffer[1:5])
            if len(self._buffer) >= 5 + length and len(self._buffer) >= 5:
                kind, payload = self._buffer[0], bytes(self._buffer[5 : 5 + length])
                del self._buffer[: 5 + length]
                return kind, payload
            part = await self.read(timeout=timeout)
            if not part:
                raise UnreachableError("the connection was lost", retryable=True)
            self._buffer += part

    async def _send_input(self, value: dict[str, object]) -> None:
        await self._send_frame(_INPUT, json.dumps(value).encode())

    async def _send_frame(self, kind: int, payload: bytes) -> None:
        await self.write(bytes([kind]) + len(payload).to_bytes(4) + payload)
