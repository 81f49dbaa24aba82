"""Orbiter's sandbox (`orbiter.sandbox`) on Stockade: the same classes, states and refusals, and tools that
really run in a sandbox."""

from .base import Sandbox, SandboxError, SandboxStatus
from .local import LocalSandbox

__all__ = ["LocalSandbox", "Sandbox", "SandboxError", "SandboxStatus"]
