"""A sandbox: commands, files, ports, snapshots, its life, and what it has changed."""

from __future__ import annotations

import builtins
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from .. import models
from .._errors import CommandFailedError
from .._model import UNSET, Unset, text_of
from .bundles import AsyncBundle
from .client import AsyncClient
from .commands import AsyncCommand
from .files import AsyncFiles
from .ports import AsyncPorts
from .session import AsyncSession

Words = str | Sequence[str | os.PathLike[str]]
"""A command: a line for a shell, or a program and its arguments."""


class AsyncSandbox:
    """A sandbox. At the end of a `with` statement it is killed; what it has changed in its workspace is a
    bundle then."""

    def __init__(self, client: AsyncClient, info: models.Sandbox, *, owns_client: bool = False) -> None:
        self.client = client
        self.id = info.id
        self.files = AsyncFiles(client, info.id)
        self.ports = AsyncPorts(client, info.id)
        self._owns_client = owns_client
        self._is_killed = False

    @classmethod
    async def create(
        cls,
        image: str | None = None,
        *,
        id: str | None = None,
        workspace: str | os.PathLike[str] | models.Workspace | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        limits: models.Limits | None = None,
        network: models.Network | Iterable[str] | None = None,
        ttl_seconds: float | None | Unset = UNSET,
        options: models.CreateSandbox | None = None,
        client: AsyncClient | None = None,
        key: str | None = None,
    ) -> Self:
        """Creates a sandbox. The default has the programs of the server's machine and no network.

        `workspace` is a directory of this machine that the sandbox sees copy-on-write, at the same path;
        commands start there. `network` names the hosts that may be reached. With `ttl_seconds=None` it never
        expires. `options` has everything else.
        """
        changes: dict[str, object] = {
            "image": image,
            "id": id,
            "working_directory": None if working_directory is None else text_of(working_directory),
            "environment": None if environment is None else dict(environment),
            "metadata": None if metadata is None else dict(metadata),
            "limits": limits,
            "network": _network(network),
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if workspace is not None:
            changes["workspace"] = seen = _workspace(workspace)
            changes.setdefault("working_directory", seen.inside)
        if not isinstance(ttl_seconds, Unset):
            changes["ttl_seconds"] = ttl_seconds
        request = _replaced(options or models.CreateSandbox(), changes)
        own = client or AsyncClient()
        try:
            info = await own.create(request, key=key)
        except BaseException:
            if client is None:
                await own.aclose()
            raise
        return cls(own, info, owns_client=client is None)

    @classmethod
    async def connect(cls, id: str, *, client: AsyncClient | None = None) -> Self:
        """A sandbox that exists."""
        own = client or AsyncClient()
        try:
            info = await own.get_status(models.GetSandbox(id=id))
        except BaseException:
            if client is None:
                await own.aclose()
            raise
        return cls(own, info, owns_client=client is None)

    @classmethod
    async def restore(
        cls,
        snapshot_id: str,
        *,
        options: models.CreateSandbox | None = None,
        client: AsyncClient | None = None,
        key: str | None = None,
    ) -> Self:
        """Creates a sandbox with the files of a snapshot."""
        request = models.Restore(
            snapshot_id=snapshot_id, sandbox=options or models.CreateSandbox()
        )
        own = client or AsyncClient()
        try:
            info = await own.restore(request, key=key)
        except BaseException:
            if client is None:
                await own.aclose()
            raise
        return cls(own, info, owns_client=client is None)

    @classmethod
    async def list(cls, *, client: AsyncClient | None = None) -> builtins.list[models.Sandbox]:
        """The properties of the caller's sandboxes, the newest first."""
        own = client or AsyncClient()
        try:
            found: builtins.list[models.Sandbox] = []
            after = None
            while True:
                page = await own.list(models.ListSandboxes(after=after))
                found.extend(page.sandboxes)
                if not page.more:
                    return found
                after = page.sandboxes[-1].id
        finally:
            if client is None:
                await own.aclose()

    async def info(self, *, metrics: bool = False) -> models.Sandbox:
        """Its properties; with `metrics`, also its resource usage."""
        return await self.client.get_status(models.GetSandbox(id=self.id, metrics=metrics))

    async def run(
        self,
        command: Words,
        *,
        input: str | bytes | None = None,
        environment: Mapping[str, str] | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        check: bool = False,
        key: str | None = None,
    ) -> models.ExecuteResult:
        """Runs a command and waits for its end. With `check`, an exit code other than 0 is an error.

        A command still runs if its caller no longer waits: `timeout` ends it after so many seconds.
        """
        request = self._execute(command, environment, working_directory, user, timeout)
        if input is not None:
            request = dataclasses.replace(request, stdin=text_of(input))
        result = await self.client.execute(request, key=key)
        if check and result.exit_code != 0:
            raise CommandFailedError(result)
        return result

    async def start_command(
        self,
        command: Words,
        *,
        environment: Mapping[str, str] | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
        key: str | None = None,
    ) -> AsyncCommand:
        """Starts a command whose output is stored, and does not wait for it."""
        request = self._execute(command, environment, working_directory, user, timeout)
        info = await self.client.execute_stream(request, key=key)
        return AsyncCommand(self.client, info.workflow_id)

    def open_session(
        self,
        command: Words,
        *,
        input: bool = False,
        terminal: models.Terminal | None = None,
        environment: Mapping[str, str] | None = None,
        working_directory: str | os.PathLike[str] | None = None,
        user: str | int | None = None,
        timeout: float | None = None,
    ) -> AsyncSession:
        """A command whose streams the caller has, for use in a `with` statement. With `input`, the caller
        writes to its standard input."""
        request = self._execute(command, environment, working_directory, user, timeout)
        opened = models.OpenSession(execute=request, input=input, terminal=terminal)
        return AsyncSession(self.client.transport, opened)

    async def run_tool(
        self, tool: str, arguments: Mapping[str, object], *, timeout: float | None = None
    ) -> models.ToolResult:
        """Runs a tool of the server in the sandbox."""
        request = models.RunTool(
            sandbox_id=self.id, tool=tool, arguments=dict(arguments), timeout_seconds=timeout
        )
        return await self.client.run_tool(request)

    async def start(self) -> models.Sandbox:
        """Starts it again after `stop`, or after it has failed."""
        return await self.client.start(models.ById(id=self.id))

    async def stop(self) -> models.Sandbox:
        """Ends its processes and keeps its files."""
        return await self.client.stop(models.ById(id=self.id))

    async def pause(self) -> models.Sandbox:
        """Freezes all its processes."""
        return await self.client.pause(models.ById(id=self.id))

    async def resume(self) -> models.Sandbox:
        """Continues its processes after `pause`."""
        return await self.client.resume(models.ById(id=self.id))

    async def renew(self, ttl_seconds: float | None, *, shorten: bool = False) -> models.Sandbox:
        """Lets it live so many seconds from now on; with `None` it never expires."""
        request = models.Renew(id=self.id, ttl_seconds=ttl_seconds, shorten=shorten)
        return await self.client.renew(request)

    async def snapshot(self, name: str | None = None) -> models.Snapshot:
        """Takes a snapshot of its files, from which `restore` creates sandboxes."""
        return await self.client.snapshot(models.TakeSnapshot(sandbox_id=self.id, name=name))

    async def collect(
        self, exclude: Sequence[str | os.PathLike[str]] = ()
    ) -> AsyncBundle | None:
        """What it has changed in its workspace as a bundle; `None` if nothing has changed."""
        request = models.CollectChanges(
            sandbox_id=self.id, exclude=[text_of(path) for path in exclude]
        )
        found = (await self.client.collect_changes(request)).bundle
        return None if found is None else AsyncBundle(self.client, found)

    async def kill(self, *, discard: bool = False) -> models.Sandbox:
        """Terminates it and removes its files. What it has changed in its workspace becomes a bundle first,
        unless it is discarded."""
        killed = await self.client.kill(models.KillSandbox(id=self.id, discard=discard))
        self._is_killed = True
        return killed

    async def aclose(self) -> None:
        """Closes the connections. The sandbox keeps running."""
        if self._owns_client:
            await self.client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._is_killed:
                await self.kill()
        finally:
            await self.aclose()

    def _execute(
        self,
        command: Words,
        environment: Mapping[str, str] | None,
        working_directory: str | os.PathLike[str] | None,
        user: str | int | None,
        timeout: float | None,
    ) -> models.Execute:
        words = command if isinstance(command, str) else [text_of(word) for word in command]
        return models.Execute(
            sandbox_id=self.id,
            command=words,
            environment=dict(environment or {}),
            working_directory=None if working_directory is None else text_of(working_directory),
            uid=user if isinstance(user, int) else None,
            user=user if isinstance(user, str) else None,
            timeout_seconds=timeout,
        )


def _workspace(named: str | os.PathLike[str] | models.Workspace) -> models.Workspace:
    if isinstance(named, models.Workspace):
        return named
    path = os.path.abspath(text_of(named))
    return models.Workspace(host=path, inside=path)


def _network(named: models.Network | Iterable[str] | None) -> models.Network | None:
    if named is None or isinstance(named, models.Network):
        return named
    return models.Network(allow=[named] if isinstance(named, str) else [*named])


def _replaced(request: models.CreateSandbox, changes: dict[str, object]) -> models.CreateSandbox:
    members = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    return models.CreateSandbox(**(members | changes))
