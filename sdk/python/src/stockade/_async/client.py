"""A client of one server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from .. import models
from .._locate import locate
from .._model import T, decode
from .operations import AsyncOperations
from .transport import AsyncTransport


class AsyncClient(AsyncOperations):
    """A client of one server: of the one at `server` (else `STOCKADE_SERVER`) with `api_key` (else
    `STOCKADE_API_KEY`), or of that of the data directory, which `stockade` starts when it is needed.

    It has a method for each operation of the server. `AsyncSandbox` is easier to use.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        api_key: str | None = None,
        data_directory: str | os.PathLike[str] | None = None,
        program: str | None = None,
    ) -> None:
        self.transport = AsyncTransport(locate(server, api_key, data_directory, program))

    async def _call(
        self, operation: str, request: object, response: type[T], key: str | None
    ) -> T:
        return decode(response, await self.transport.call(operation, request, key))

    async def read_output(self, request: models.ReadOutput) -> AsyncIterator[models.OutputItem]:
        """Reads the output of `execute_stream`, beginning at an offset; ends after the command's end."""
        async for value in self.transport.lines("/v0/output", request):
            item: models.OutputItem = decode(_kind(models.OutputItem), value)
            yield item

    async def read_events(self, request: models.ReadEvents) -> AsyncIterator[models.Event]:
        """Reads the events of the caller's sandboxes."""
        async for value in self.transport.lines("/v0/events", request):
            yield decode(models.Event, value)

    async def diff_bundle(self, request: models.DiffBundle) -> AsyncIterator[models.PathDiff]:
        """Shows the changed lines of a bundle, path by path."""
        async for value in self.transport.lines("/v0/diff", request):
            yield decode(models.PathDiff, value)

    async def aclose(self) -> None:
        """Closes the connections. The sandboxes and the server keep running."""
        await self.transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _kind(union: Any) -> Any:
    """A union as the type that `decode` takes."""
    return union
