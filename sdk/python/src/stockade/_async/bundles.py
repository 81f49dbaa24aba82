"""Bundles: changes of a project that wait for a decision."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

from .. import models
from .._model import text_of
from .client import AsyncClient

Path = str | bytes | os.PathLike[str]


class AsyncBundle:
    """A bundle: the changes of a sandbox or of a run. Nothing of it is in the project before `apply`."""

    def __init__(
        self, client: AsyncClient, info: models.Bundle, *, owns_client: bool = False
    ) -> None:
        self._client = client
        self.info = info
        self._owns_client = owns_client

    @classmethod
    async def list(cls, *, client: AsyncClient | None = None) -> builtins.list[models.Bundle]:
        """The readable bundles that wait for a decision, the newest first."""
        own = client or AsyncClient()
        try:
            found = await own.bundles(models.ListBundles())
        finally:
            if client is None:
                await own.aclose()
        return [one for one in found.bundles if isinstance(one, models.Bundle)]

    @classmethod
    async def get(cls, id: str, *, client: AsyncClient | None = None) -> Self:
        """The bundle with an id, a unique prefix of an id, or `latest`."""
        own = client or AsyncClient()
        try:
            found = await own.show_bundle(models.ShowBundle(id=id))
        except BaseException:
            if client is None:
                await own.aclose()
            raise
        info = models.Bundle.from_json(found.to_json())
        return cls(own, info, owns_client=client is None)

    @property
    def id(self) -> str:
        """Its id: the hash of its content."""
        return self.info.id

    async def show(self, paths: Sequence[Path] = ()) -> builtins.list[models.BundleEntry]:
        """Its changes, or those at or below some paths."""
        request = models.ShowBundle(id=self.id, paths=_texts(paths))
        return (await self._client.show_bundle(request)).entries

    async def diff(self, paths: Sequence[Path] = ()) -> AsyncIterator[models.PathDiff]:
        """The changed lines, path by path."""
        request = models.DiffBundle(id=self.id, paths=_texts(paths))
        async for one in self._client.diff_bundle(request):
            yield one

    async def apply(
        self,
        paths: Sequence[Path] = (),
        *,
        conflicts: models.Conflicts = "refuse",
        include_ignored: bool = False,
        allow_executed: bool = False,
        allow_unseen: bool = False,
    ) -> models.AppliedBundle:
        """Applies its changes, or those at or below some paths, to its project: all or none."""
        request = models.ApplyBundle(
            id=self.id,
            paths=_texts(paths),
            conflicts=conflicts,
            include_ignored=include_ignored,
            allow_executed=allow_executed,
            allow_unseen=allow_unseen,
        )
        return await self._client.apply_bundle(request)

    async def reject(self) -> models.RejectedBundle:
        """Deletes it."""
        return await self._client.reject_bundle(models.RejectBundle(id=self.id))

    async def aclose(self) -> None:
        """Closes the connections. The bundle keeps waiting."""
        if self._owns_client:
            await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


def _texts(paths: Sequence[Path]) -> list[str]:
    return [text_of(path) for path in paths]
