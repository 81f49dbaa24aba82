"""Commands that run without their caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from .. import models
from .._model import bytes_of, decode
from .._output import Lost, Output
from .._problem import error_of
from ..errors import BY_CODE, IoError
from .session import SessionEvent

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncCommand:
    """A command that was started. Its output is stored, and it continues when its caller ends."""

    def __init__(self, client: AsyncClient, workflow_id: str) -> None:
        self._client = client
        self.workflow_id = workflow_id

    async def info(self) -> models.CommandInfo:
        """Its properties."""
        return await self._client.get_command(self.workflow_id)

    async def output(self, *, follow: bool = True) -> AsyncIterator[SessionEvent]:
        """Its output from the beginning, and last its end; without `follow`, what there is now."""
        request = models.ReadOutput(workflow_id=self.workflow_id, follow=follow)
        async for item in self._client.read_output(request):
            if isinstance(item, models.OutputItemStdout):
                yield Output("stdout", bytes_of(item.data))
            elif isinstance(item, models.OutputItemStderr):
                yield Output("stderr", bytes_of(item.data))
            elif isinstance(item, models.OutputItemTruncated):
                yield Lost(item.bytes)
            else:
                yield decode(models.OutputEnd, item.to_json())

    async def wait(self) -> models.OutputEnd:
        """Waits for its end."""
        while True:
            info = await self._client.wait_operation(self.workflow_id)
            if info.error is not None:
                raise error_of(info.error.to_json(), BY_CODE) or IoError(info.error.message)
            if info.status == "succeeded":
                return decode(models.OutputEnd, info.result)

    async def kill(self, signal: int | None = None) -> models.CommandInfo:
        """Ends it with all processes that it has started, or sends a signal to its process group."""
        request = models.KillCommand(workflow_id=self.workflow_id, signal=signal)
        return await self._client.kill_command(request)
