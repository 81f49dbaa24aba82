"""The standard tests of LangChain for sandboxes, against a server of Stockade.

Run by `cargo xtask ci` through the end-to-end tests, as
`pytest test_langchain_opensandbox.py` with OPEN_SANDBOX_DOMAIN and OPEN_SANDBOX_API_KEY.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_opensandbox import OpenSandboxBackend
from langchain_tests.integration_tests import SandboxIntegrationTests
from opensandbox import SandboxSync
from opensandbox.config import ConnectionConfigSync


class TestOpenSandbox(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        config = ConnectionConfigSync(request_timeout=timedelta(seconds=120))
        sandbox = SandboxSync.create("host", connection_config=config)
        try:
            yield OpenSandboxBackend(sandbox=sandbox)
        finally:
            sandbox.kill()
            sandbox.close()
