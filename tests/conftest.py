"""What all tests share."""

from __future__ import annotations

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def node() -> str:
    """The path of node. Without it tests are skipped at a desk and fail on a build server, where nobody reads skips."""
    found = shutil.which("node")
    if found is None and os.environ.get("CI"):
        pytest.fail("node is missing, and this is a build server: install nodejs and npm")
    if found is None:
        pytest.skip("node is missing: install nodejs and npm to run the JavaScript suite")
    return found
