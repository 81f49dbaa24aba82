"""The ports of a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import models
from .session import AsyncConnection

if TYPE_CHECKING:
    from .client import AsyncClient


class AsyncPorts:
    """The ports of a sandbox. They are reachable through the server only."""

    def __init__(self, client: AsyncClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def is_listening(self, port: int) -> bool:
        """Whether a process listens on a port."""
        request = models.ResolveEndpoint(id=self._id, port=port)
        return (await self._client.resolve_endpoint(request)).listening

    async def request(
        self,
        port: int,
        path: str = "/",
        *,
        method: models.Method = "GET",
        headers: Mapping[str, str] | None = None,
        body: str | bytes | None = None,
        timeout: float | None = None,
    ) -> models.HttpResponse:
        """Sends an HTTP request to a port."""
        request = models.HttpRequest(
            sandbox_id=self._id,
            port=port,
            path=path,
            method=method,
            headers=dict(headers or {}),
            body=body.decode("utf-8", "surrogateescape") if isinstance(body, bytes) else body,
            timeout_seconds=timeout,
        )
        return await self._client.http_request(request)

    def connect(self, port: int) -> AsyncConnection:
        """A connection to a port, for use in a `with` statement."""
        request = models.Connect(sandbox_id=self._id, port=port)
        return AsyncConnection(self._client.transport, "/v0/connect", request)

    async def open(self, port: int, path: str | None = None) -> models.OpenedPort:
        """A link that opens a port in a browser, once."""
        request = models.OpenPort(sandbox_id=self._id, port=port, path=path)
        return await self._client.open_port(request)
