"""The standard tests of LangChain for sandboxes, with its provider for E2B, against a server of Stockade.

Run by `cargo xtask ci` through the end-to-end tests, as `pytest test_langchain_e2b.py` with E2B_API_URL,
E2B_SANDBOX_URL and E2B_API_KEY.
"""

from collections.abc import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestE2B(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxBackendProtocol]:
        sandbox = Sandbox.create(timeout=600)
        try:
            yield E2BSandbox(sandbox=sandbox)
        finally:
            sandbox.kill()
