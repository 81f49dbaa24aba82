"""Stockade: run untrusted code in a sandbox, and review what it changes.

    from stockade import Sandbox

    with Sandbox.create() as sandbox:
        print(sandbox.run("echo hello").stdout)
"""

from . import errors, models
from ._async.bundles import AsyncBundle
from ._async.client import AsyncClient
from ._async.commands import AsyncCommand
from ._async.sandbox import AsyncSandbox
from ._async.session import AsyncConnection, AsyncSession
from ._errors import CommandFailedError
from ._model import UNSET, bytes_of
from ._output import Lost, Output
from ._problem import StockadeError
from ._protocol import VERSION as __version__
from ._sync.bundles import Bundle
from ._sync.client import Client
from ._sync.commands import Command
from ._sync.sandbox import Sandbox
from ._sync.session import Connection, Session
from .orbiter import LocalSandbox

__all__ = [
    "UNSET",
    "AsyncBundle",
    "AsyncClient",
    "AsyncCommand",
    "AsyncConnection",
    "AsyncSandbox",
    "AsyncSession",
    "Bundle",
    "Client",
    "Command",
    "CommandFailedError",
    "Connection",
    "LocalSandbox",
    "Lost",
    "Output",
    "Sandbox",
    "Session",
    "StockadeError",
    "__version__",
    "bytes_of",
    "errors",
    "models",
]
