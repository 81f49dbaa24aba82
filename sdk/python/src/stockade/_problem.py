"""The base of all errors. `errors` has a class for each stable code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class StockadeError(Exception):
    """An operation failed: what failed, why, and what to do about it."""

    code: ClassVar[str] = "UNKNOWN"
    """The stable code. Its page is `docs/errors/CODE.md`."""

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        remediation: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.remediation = remediation
        self.retryable = retryable

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.message}"]
        if self.cause is not None:
            lines.append(f"because {self.cause}")
        if self.remediation is not None:
            lines.append(f"to do: {self.remediation}")
        return "\n".join(lines)


def error_of(body: object, classes: Mapping[str, type[StockadeError]]) -> StockadeError | None:
    """The error that the body of a failed response describes, if it describes one."""
    if not isinstance(body, Mapping):
        return None
    problem: Any = body.get("error", body)
    if not isinstance(problem, Mapping) or not isinstance(problem.get("message"), str):
        return None
    code = str(problem.get("code"))
    # A later server may have codes that this version does not know.
    kind = classes.get(code)
    if kind is None:
        kind = type("StockadeError", (StockadeError,), {"code": code})
    return kind(
        problem["message"],
        cause=problem.get("cause"),
        remediation=problem.get("remediation"),
        retryable=bool(problem.get("retryable")),
    )
