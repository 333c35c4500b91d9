"""`syphon` without a command."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from syphon import __version__
from syphon.cli import main
from syphon.cli.root import COMMANDS
from syphon.model import ExitCode
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


def test_help_of_a_command_is_what_the_command_says_of_itself() -> None:
    for words in (["drain"], ["dead-letters", "export"], []):
        assert run_syphon("help", *words).stdout == run_syphon(*words, "--help").stdout


def test_help_of_everything_names_every_command() -> None:
    text = run_syphon("help", "--all").stdout
    named = [line.removeprefix("Usage: syphon ").split(" [")[0] for line in text.splitlines() if line.startswith("Usa")]
    assert {command.name for command in COMMANDS} <= set(named)
    assert {"dead-letters import", "dead-letters replay"} <= set(named)


def test_help_of_an_unknown_command_is_an_error_of_usage() -> None:
    result = run_syphon("help", "dead-letters", "replya")
    assert result.returncode == ExitCode.USAGE
    assert "There is no command 'syphon dead-letters replya'" in result.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [("syphon dr", "drain"), ("syphon dead-letters ex", "export"), ("syphon help dead-letters im", "import")],
)
def test_a_shell_completes_commands(words: str, found: str) -> None:
    place = str(len(words.split()) - 1)
    environ = {"_SYPHON_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}
    done = CliRunner().invoke(main, [], prog_name="syphon", env=environ)
    assert done.output == f"plain,{found}\n"
