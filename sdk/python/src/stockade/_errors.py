"""Errors that are not those of a server."""

from __future__ import annotations

from . import models
from ._problem import StockadeError


class CommandFailedError(StockadeError):
    """A command that was to succeed has ended in another way."""

    code = "COMMAND_FAILED"

    def __init__(self, result: models.ExecuteResult) -> None:
        how = result.ending if result.exit_code is None else f"the exit code {result.exit_code}"
        super().__init__(f"the command has ended with {how}", cause=result.stderr.strip() or None)
        self.result = result
