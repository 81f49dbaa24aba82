"""Requests to one server, and what comes back: JSON, lines of JSON, bytes, or the connection itself."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from .._locate import LocalServer, RemoteServer
from .._model import encode
from .._problem import StockadeError, error_of
from .._protocol import VERSION
from ..errors import BY_CODE, IoError, UnreachableError, UnsupportedError

Content = bytes | AsyncIterator[bytes]
"""The content of a file: bytes, or an iterator of bytes."""

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 600.0
WAITING = {"create", "execute", "restore", "run_node", "run_tool", "wait_operation"}
"""Operations that last as long as a command, or the download of an image."""


class AsyncTransport:
    """Sends requests to a server. The server of a data directory is started when it does not run."""

    def __init__(self, server: LocalServer | RemoteServer) -> None:
        self.server = server
        self._client: httpx.AsyncClient | None = None

    async def call(self, operation: str, request: object, key: str | None) -> Any:
        """Calls a plain operation. If the connection is lost, it is sent once more: the key makes sure that
        it is done once."""
        headers = {"idempotency-key": key or secrets.token_hex(16)}
        timeout = None if operation in WAITING else ANSWER_SECONDS
        path = f"/v0/call/{operation}"
        try:
            response = await self._send(path, request, headers, timeout)
        except UnreachableError:
            response = await self._send(path, request, headers, timeout)
        try:
            await response.aread()
        finally:
            await response.aclose()
        return _parse(response.content)

    @asynccontextmanager
    async def open(
        self,
        path: str,
        request: object,
        *,
        content: Content | None = None,
        upgrade: bool = False,
    ) -> AsyncIterator[httpx.Response]:
        """Opens a response that is not only JSON. With `content`, that is the body of the request; with
        `upgrade`, the connection is that of the operation afterwards."""
        headers = {"idempotency-key": secrets.token_hex(16)}
        if upgrade:
            headers |= {"connection": "upgrade", "upgrade": "stockade"}
        response = await self._send(path, request, headers, None, content)
        try:
            yield response
        finally:
            await response.aclose()

    async def lines(self, path: str, request: object) -> AsyncIterator[Any]:
        """Reads lines of JSON. A failure is the last one."""
        async with self.open(path, request) as response:
            async for line in _read(response.aiter_lines()):
                value = _parse(line)
                if isinstance(value, dict) and set(value) == {"error"}:
                    error = error_of(value, BY_CODE)
                    if error is not None:
                        raise error
                yield value

    async def content(self, path: str, request: object) -> AsyncIterator[bytes]:
        """Reads bytes."""
        async with self.open(path, request) as response:
            async for part in _read(response.aiter_bytes()):
                yield part

    async def aclose(self) -> None:
        """Closes the connections. The server keeps running."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None
        if isinstance(self.server, LocalServer):
            self.server.close()

    async def _send(
        self,
        path: str,
        request: object,
        headers: dict[str, str],
        timeout: float | None,
        content: Content | None = None,
    ) -> httpx.Response:
        body = json.dumps(encode(request)).encode()
        if content is None:
            headers = headers | {"content-type": "application/json"}
        else:
            headers = headers | {"stockade-request": base64.b64encode(body).decode()}
        client = await self._connected()
        built = client.build_request(
            "POST",
            path,
            headers=headers,
            content=body if content is None else content,
            timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
        )
        try:
            response = await client.send(built, stream=True)
        except httpx.ConnectError as error:
            # Nothing was sent. A server of the data directory ends when it has nothing to do.
            await self._forget()
            raise UnreachableError("the server does not answer", cause=str(error), retryable=True) from error
        except httpx.TransportError as error:
            await self._forget()
            cause = str(error) or type(error).__name__
            raise UnreachableError("the connection was lost", cause=cause, retryable=True) from error
        if response.status_code < 400:
            return response
        try:
            await response.aread()
        finally:
            await response.aclose()
        raise _failure(response)

    async def _connected(self) -> httpx.AsyncClient:
        if self._client is None:
            try:
                self._client = await self._opened()
            except UnreachableError:
                # A server that is ending may still have taken the connection that looked for it.
                if not isinstance(self.server, LocalServer):
                    raise
                self._client = await self._opened()
        return self._client

    async def _opened(self) -> httpx.AsyncClient:
        client = self._new_client()
        try:
            await _check_version(client)
        except BaseException:
            await client.aclose()
            raise
        return client

    def _new_client(self) -> httpx.AsyncClient:
        headers = {"stockade-version": VERSION}
        if isinstance(self.server, LocalServer):
            self.server.start()
            transport = httpx.AsyncHTTPTransport(uds=self.server.socket())
            return httpx.AsyncClient(transport=transport, base_url="http://stockade", headers=headers)
        if self.server.api_key is not None:
            headers["authorization"] = f"Bearer {self.server.api_key}"
        verify = self.server.context()
        url = f"{self.server.url}/stockade"
        return httpx.AsyncClient(base_url=url, headers=headers, verify=verify, trust_env=False)

    async def _forget(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


async def _check_version(client: httpx.AsyncClient) -> None:
    try:
        response = await client.get("/v0/health", timeout=CONNECT_SECONDS)
    except httpx.TransportError as error:
        cause = str(error) or type(error).__name__
        raise UnreachableError("the server does not answer", cause=cause, retryable=True) from error
    if response.status_code >= 400:
        raise _failure(response)
    version = _parse(response.content)["version"]
    if version != VERSION:
        raise UnsupportedError(
            f"the package `stockade` is {VERSION}, and the server is {version}",
            remediation=f"pip install stockade=={version}",
        )


async def _read(parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        async for part in parts:
            yield part
    except httpx.TransportError as error:
        cause = str(error) or type(error).__name__
        raise UnreachableError("the connection was lost", cause=cause, retryable=True) from error


def _failure(response: httpx.Response) -> StockadeError:
    try:
        error = error_of(json.loads(response.content), BY_CODE)
    except ValueError:
        error = None
    return error or IoError(
        "the server's response cannot be read", cause=f"status {response.status_code}"
    )


def _parse(text: bytes | str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise IoError("the server's response cannot be read", cause=str(error)) from error


def header_json(response: httpx.Response) -> Any:
    """The JSON of a response whose body is something else."""
    return _parse(base64.b64decode(response.headers.get("stockade-answer", "")))
