"""The frame: what a fresh clone promises."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def dry_run(*arguments: str, folder: Path = ROOT) -> str:
    command = ["make", "-n", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_make_alone_says_what_there_is_to_make() -> None:
    text = dry_run()
    assert all(target in text for target in ("make test", "make check", "make clean"))


def test_the_environment_is_set_up_once_and_again_only_when_its_description_changed(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    assert "pip install" in dry_run("test", folder=tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".ready").touch()
    assert "pip install" not in dry_run("test", folder=tmp_path)
    later = (tmp_path / ".venv" / ".ready").stat().st_mtime + 5
    os.utime(tmp_path / "pyproject.toml", (later, later))
    assert "pip install" in dry_run("test", folder=tmp_path)


def test_a_python_that_is_too_old_is_told_so(tmp_path: Path) -> None:
    old = tmp_path / "python-of-old"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.1\nexit 1\n')
    old.chmod(0o755)
    for name in ("Makefile", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    command = ["make", "test", f"PYTHON={old}"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "syphon needs Python 3.11 or newer" in result.stderr
    assert not (tmp_path / ".venv").exists()
