"""The files of a sandbox."""

from __future__ import annotations

import builtins
import os
from typing import TYPE_CHECKING

from .. import models
from .._model import text_of
from ..errors import FileNotFoundError as NoSuchFileError
from .transport import Content

if TYPE_CHECKING:
    from .client import AsyncClient

Path = str | bytes | os.PathLike[str]


class AsyncFiles:
    """The files of a sandbox. A path is absolute."""

    def __init__(self, client: AsyncClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def read(self, path: Path, *, offset: int = 0, length: int | None = None) -> bytes:
        """The content of a file, or a part of it."""
        request = models.ReadFile(
            sandbox_id=self._id, path=text_of(path), offset=offset, length=length
        )
        parts = [part async for part in self._client.transport.content("/v0/read", request)]
        return b"".join(parts)

    async def read_text(self, path: Path) -> str:
        """The content of a file that is UTF-8."""
        return (await self.read(path)).decode()

    async def write(self, path: Path, content: str | Content, *, mode: int | None = None) -> int:
        """Writes a file, completely or not at all, and returns its length."""
        request = models.WriteFile(sandbox_id=self._id, path=text_of(path), mode=mode)
        data = content.encode() if isinstance(content, str) else content
        async with self._client.transport.open("/v0/write", request, content=data) as response:
            await response.aread()
            return models.WriteResult.from_json(response.json()).size_bytes

    async def stat(self, path: Path, *, follow: bool = False) -> models.FileEntry:
        """The properties of a file; with `follow`, of the target of a link."""
        request = models.StatFile(sandbox_id=self._id, path=text_of(path), follow=follow)
        return await self._client.stat_file(request)

    async def exists(self, path: Path) -> bool:
        """Whether there is a file or directory."""
        try:
            await self.stat(path)
        except NoSuchFileError:
            return False
        return True

    async def list(self, path: Path, *, depth: int = 1) -> builtins.list[models.FileEntry]:
        """The content of a directory, sorted by name."""
        request = models.ListDirectory(sandbox_id=self._id, path=text_of(path), depth=depth)
        return (await self._client.list_directory(request)).entries

    async def search(self, path: Path, pattern: str) -> builtins.list[models.FileEntry]:
        """The files below a directory whose paths match a pattern, such as `**/*.py`."""
        request = models.SearchFiles(sandbox_id=self._id, path=text_of(path), pattern=pattern)
        return (await self._client.search_files(request)).entries

    async def make_directory(self, path: Path, *, mode: int | None = None) -> None:
        """Creates a directory, and missing parent directories."""
        request = models.MakeDirectory(sandbox_id=self._id, path=text_of(path), mode=mode)
        await self._client.make_directory(request)

    async def move(self, source: Path, target: Path) -> None:
        """Renames or moves a file or directory."""
        request = models.MoveFile(sandbox_id=self._id, from_=text_of(source), to=text_of(target))
        await self._client.move_file(request)

    async def remove(self, path: Path) -> None:
        """Removes a file, or a directory with its content."""
        request = models.RemoveFile(sandbox_id=self._id, path=text_of(path))
        await self._client.remove_file(request)
