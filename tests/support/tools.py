"""The tools that check what operators install: helm, promtool and others, put into .tools by `.ci/tools`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (ROOT / ".tools" / "bin", ROOT / ".tools" / "venv" / "bin")


def tool(name: str) -> str:
    """The path of a tool. Without the tool a test is skipped locally, and fails in CI."""
    found = shutil.which(name, path=os.pathsep.join([*map(str, PLACES), os.environ.get("PATH", os.defpath)]))
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is missing, and this is a build server: .ci/tools installs it")
    if found is None:
        pytest.skip(f"{name} is missing: .ci/tools installs it")
    return found


def run(name: str, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a tool; `given` is its standard input."""
    command = [tool(name), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, input=given, capture_output=True, text=True, check=False, timeout=60)


def said(result: subprocess.CompletedProcess[str]) -> str:
    return result.stdout + result.stderr
