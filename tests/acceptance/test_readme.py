"""The README's first own run, typed as it stands there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import ROOT


@pytest.mark.timeout(400)  # no other test may use the emulator's fixed ports
def test_the_five_lines_of_the_readme_forward_every_message(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().partition("## Your first own run\n")[2]
    lines = section.partition("```sh\n")[2].partition("```")[0].strip()
    assert len(lines.splitlines()) == 5
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    bin_folder = Path(sys.executable).parent
    script = lines.replace(".venv/bin/", f"{bin_folder}/")
    # The emulator goes on in the background, as the README has it, and is ended with its group.
    shell = subprocess.Popen(
        ["bash", "-ec", f"{script}\n"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert shell.stdout is not None
    told = []
    try:
        for line in shell.stdout:
            told.append(line)
            if "Every delivery is accounted for." in line:
                break
        assert shell.wait(60) == 0, "".join(told)
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.stdout.close()
    results = section.partition("```text\n")[2].partition("```")[0].strip().splitlines()
    assert [line for line in map(str.strip, told) if line in results] == results, "".join(told)
