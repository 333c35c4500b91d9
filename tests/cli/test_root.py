"""`syphon` without a command."""

from __future__ import annotations

from syphon import __version__
from syphon.cli import ExitCode
from tests.support.cli_process import run_syphon


def test_it_prints_its_version() -> None:
    assert run_syphon("--version").stdout == f"syphon, version {__version__}\n"


def test_its_help_names_every_exit_code() -> None:
    text = run_syphon("--help").stdout
    assert all(f"{code.value}  " in text for code in ExitCode)


def test_an_unknown_command_is_an_error_of_usage() -> None:
    result = run_syphon("emulatr")
    assert result.returncode == ExitCode.USAGE
    assert "emulatr" in result.stderr
