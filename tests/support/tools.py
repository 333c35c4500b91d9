"""The tools that check what operators install: real ones, put into .tools by `.ci/tools`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (ROOT / ".tools" / "bin", ROOT / ".tools" / "venv" / "bin")


def tool(name: str) -> str:
    """The path of a tool. Without it a test is skipped at a desk, and fails on a build server."""
    found = shutil.which(name, path=os.pathsep.join([*map(str, PLACES), os.environ.get("PATH", os.defpath)]))
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is missing, and this is a build server: .ci/tools installs it")
    if found is None:
        pytest.skip(f"{name} is missing: .ci/tools installs it")
    return found


def run(name: str, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """What a tool says, and how it ends; `given` is its standard input."""
    command = [tool(name), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=False, timeout=60)


def said(result: subprocess.CompletedProcess[str]) -> str:
    return result.stdout + result.stderr
