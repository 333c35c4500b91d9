"""`syphon` without a command."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from syphon import __version__
from syphon.cli import main
from syphon.cli.root import COMMANDS
from syphon.model import ExitCode
from tests.support.cli_process import run_syphon
from tests.support.status_server import served
from tests.support.terminal import terminal


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
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_help_of_an_unknown_command_is_an_error_of_usage() -> None:
    result = run_syphon("help", "dead-letters", "replya")
    assert result.returncode == ExitCode.USAGE
    assert "There is no command 'syphon dead-letters replya'" in result.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [("syphon dra", "drain"), ("syphon dead-letters ex", "export"), ("syphon help dead-letters im", "import")],
)
def test_a_shell_completes_commands(words: str, found: str) -> None:
    place = str(len(words.split()) - 1)
    environ = {"_SYPHON_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}
    done = CliRunner().invoke(main, [], prog_name="syphon", env=environ)
    assert done.output == f"plain,{found}\n"


INVALID = "pairs: []\n"


def test_the_settings_file_is_that_of_the_environment_or_config_yaml_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SYPHON_CONFIG", raising=False)
    none = CliRunner().invoke(main, ["provision"])
    assert (none.exit_code, "There is no ./config.yaml, and $SYPHON_CONFIG is not set." in none.stderr) == (2, True)
    none = CliRunner().invoke(main, ["report"])
    assert (none.exit_code, "Which ledger? Use -c FILE" in none.stderr) == (2, True)
    Path("config.yaml").write_text(INVALID)
    for command in ("provision", "status", "report"):
        found = CliRunner().invoke(main, [command])
        assert (found.exit_code, "config.yaml" in found.stderr) == (ExitCode.CONFIG, True), command
    Path("other.yaml").write_text(INVALID)
    monkeypatch.setenv("SYPHON_CONFIG", "other.yaml")
    assert "other.yaml" in CliRunner().invoke(main, ["provision"]).stderr


def test_a_pause_of_nothing_is_an_error_of_usage() -> None:
    with served() as here:
        done = run_syphon("pause", "--url", f"http://127.0.0.1:{here.port}", "--destination", "")
    assert (done.returncode, "rejected the request" in done.stderr) == (ExitCode.USAGE, True)


def test_a_full_disk_is_a_sentence_and_no_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "syphon", "cost"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=100,
            check=False,
        )
    assert (done.returncode, done.stderr) == (ExitCode.LEFT, "Cannot write the output: No space left on device.\n")


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {}])
def test_output_has_no_colours_where_nobody_wants_them(variable: dict[str, str]) -> None:
    with terminal([sys.executable, "-m", "syphon", "cost"], 80, 50, None, **variable) as shown:
        assert shown.wait(100) == 0
        assert (b"\x1b[" in shown.received) == (not variable)


def test_ctrl_c_while_the_command_line_is_imported_shows_no_traceback() -> None:
    interrupting = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'syphon.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from syphon.__main__ import start\n"
        "start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", interrupting], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
