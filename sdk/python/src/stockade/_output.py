"""What a command writes while it runs."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class Output:
    """Bytes that a command has written."""

    stream: Literal["stdout", "stderr"]
    data: bytes

    @property
    def text(self) -> str:
        """The bytes as text. A character that is cut in two is not readable in either part."""
        return self.data.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class Lost:
    """Bytes of the output that could not be stored."""

    bytes: int
