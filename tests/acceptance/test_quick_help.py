"""Help answers at once, because nothing heavy is imported for it (DESIGN D11)."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("aiohttp", "azure", "cryptography", "pydantic", "pyspark", "uvloop", "yaml")

PROBE = """
import sys
from syphon.cli import main
try:
    main(sys.argv[1:], prog_name="syphon")
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", *sorted(sys.modules))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["emulator", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    result = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True)
    loaded = result.stdout.rpartition("loaded:")[2].split()
    assert "click" in loaded
    assert [name for name in loaded if name.partition(".")[0] in HEAVY] == []
