"""The interface of a sandbox: its parameters, its states, and which follows which."""

from __future__ import annotations

import copy
import math
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from .._problem import StockadeError


class SandboxError(Exception):
    """A sandbox refuses a call, or has failed. `code` is the stable code of the reason, and `remediation`
    says what to do."""

    def __init__(
        self, message: str, *, code: str = "INVALID_STATE", remediation: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.remediation = remediation

    @classmethod
    def of(cls, error: StockadeError) -> Self:
        """The same for an error of the server."""
        return cls(str(error), code=error.code, remediation=error.remediation)


class SandboxStatus(StrEnum):
    """The state of a sandbox."""

    INIT = "init"
    """Created but not started."""
    RUNNING = "running"
    """Active and accepting tool calls."""
    IDLE = "idle"
    """Stopped but can be restarted."""
    ERROR = "error"
    """Failed; can be started again."""
    CLOSED = "closed"
    """Permanently shut down."""


_TRANSITIONS: Mapping[SandboxStatus, frozenset[SandboxStatus]] = {
    SandboxStatus.INIT: frozenset({SandboxStatus.RUNNING, SandboxStatus.CLOSED}),
    SandboxStatus.RUNNING: frozenset(
        {SandboxStatus.IDLE, SandboxStatus.ERROR, SandboxStatus.CLOSED}
    ),
    SandboxStatus.IDLE: frozenset(
        {SandboxStatus.RUNNING, SandboxStatus.ERROR, SandboxStatus.CLOSED}
    ),
    SandboxStatus.ERROR: frozenset({SandboxStatus.RUNNING, SandboxStatus.CLOSED}),
    SandboxStatus.CLOSED: frozenset(),
}

_ID = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Sandbox(ABC):
    """A sandbox for agents. Subclasses say what `start`, `stop` and `cleanup` do."""

    def __init__(
        self,
        *,
        sandbox_id: str | None = None,
        workspace: list[str] | None = None,
        mcp_config: dict[str, Any] | None = None,
        agents: dict[str, Any] | None = None,
        timeout: float = 30.0,
    ) -> None:
        if not (math.isfinite(timeout) and timeout > 0):
            raise SandboxError(f"{timeout} is not a time in seconds", code="INVALID_INPUT")
        if sandbox_id and not _ID.fullmatch(sandbox_id):
            raise SandboxError(
                f"{sandbox_id!r} is not a valid id",
                code="INVALID_INPUT",
                remediation="use up to 63 lower-case letters, digits and inner hyphens",
            )
        self._sandbox_id = sandbox_id or secrets.token_hex(6)
        self._workspace = list(workspace or [])
        self._mcp_config = copy.deepcopy(mcp_config or {})
        self._agents = copy.deepcopy(agents or {})
        self._timeout = timeout
        self._status = SandboxStatus.INIT

    @property
    def sandbox_id(self) -> str:
        """Unique sandbox identifier."""
        return self._sandbox_id

    @property
    def status(self) -> SandboxStatus:
        """Current lifecycle state."""
        return self._status

    @property
    def workspace(self) -> list[str]:
        """Copy of the allowed workspace directories."""
        return list(self._workspace)

    @property
    def mcp_config(self) -> dict[str, Any]:
        """Copy of the MCP configuration."""
        return copy.deepcopy(self._mcp_config)

    @property
    def agents(self) -> dict[str, Any]:
        """Copy of the agent configurations."""
        return copy.deepcopy(self._agents)

    @property
    def timeout(self) -> float:
        """Execution timeout in seconds, of each tool call."""
        return self._timeout

    @abstractmethod
    async def start(self) -> None:
        """Starts the sandbox environment."""

    @abstractmethod
    async def stop(self) -> None:
        """Stops the sandbox. It may be started again."""

    @abstractmethod
    async def cleanup(self) -> None:
        """Releases all resources and closes the sandbox permanently."""

    def describe(self) -> dict[str, Any]:
        """The state of the sandbox: a copy."""
        return {
            "sandbox_id": self.sandbox_id,
            "status": self.status,
            "workspace": self.workspace,
            "timeout": self.timeout,
        }

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self._close_quietly()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            # The error of the caller is never replaced by one of the cleanup.
            await self._close_quietly()
        elif self.status is not SandboxStatus.CLOSED:
            await self.cleanup()

    async def _close_quietly(self) -> None:
        if self.status is not SandboxStatus.CLOSED:
            try:
                await self.cleanup()
            except SandboxError:
                pass

    def _check_transition(self, target: SandboxStatus) -> None:
        """Raises unless the state may follow the present one."""
        if target not in _TRANSITIONS[self._status]:
            raise SandboxError(f"Cannot transition from {self._status} to {target}")

    def _enter(self, target: SandboxStatus) -> None:
        self._check_transition(target)
        self._status = target
