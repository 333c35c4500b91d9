"""What the README promises of `make demo`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(600)
def test_the_demo_loses_nothing_and_says_so_even_on_a_machine_without_java(tmp_path: Path) -> None:  # D11
    command = [sys.executable, "-m", "syphon", "demo", "--messages", "300", "--folder", str(tmp_path / "demo")]
    path = _path_without_java(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PATH": str(path), "JAVA_HOME": ""}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=580, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "'orders' failed over" in done.stdout
    assert "'orders' is back" in done.stdout
    assert "300 sent, none failed" in done.stdout
    assert "300 of 300 arrived; sessions, time to live and schedule as the sender set them" in done.stdout
    balance = (
        r"The counts balance:  (\d+) received = (\d+) forwarded \+ 1 dead-lettered"
        r" \+ 0 left in the backlog \+ 0 unaccounted"
    )
    account = re.search(balance, done.stdout)
    assert account is not None, done.stdout
    assert int(account[1]) == int(account[2]) + 1 > 150
    assert "No message was lost." in done.stdout
    assert (tmp_path / "demo" / "report.html").read_text().startswith("<!doctype html>")
    assert re.search(r"syphon report --ledger \S+/demo/ledger/\w+\n", done.stdout)
    assert done.stderr == ""


def _path_without_java(folder: Path) -> Path:
    """Everything of the PATH but java."""
    links = folder / "path"
    links.mkdir()
    for directory in os.environ["PATH"].split(os.pathsep):
        for file in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if not file.name.startswith("java") and not (links / file.name).exists():
                (links / file.name).symlink_to(file)
    return links
