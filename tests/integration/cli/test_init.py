"""`syphon init` writes settings that work as they are, and overwrites nothing."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syphon.cli import main
from syphon.config import load_config
from syphon.emulator.settings import default_settings
from syphon.model import ExitCode


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str, answers: str = "") -> Result:
    return CliRunner().invoke(main, ["init", *arguments], input=answers)


def test_without_options_it_is_for_the_two_namespaces_of_the_emulator(folder: Path) -> None:
    done = init()
    assert (done.exit_code, done.stdout) == (0, "Wrote config.yaml. Next: syphon check -c config.yaml\n")
    (pair,) = load_config(folder / "config.yaml").pairs
    assert (pair.name, pair.primary.host, pair.secondary.host) == ("contoso", "127.0.0.1:5672", "127.0.0.1:5673")
    assert [each.amqp_port for each in default_settings().namespaces] == [5672, 5673]


def test_only_its_owner_can_read_the_file_whatever_the_umask(folder: Path) -> None:  # T7
    before = os.umask(0)
    try:
        assert init().exit_code == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE((folder / "config.yaml").stat().st_mode) == 0o600


def test_it_never_overwrites_a_file(folder: Path) -> None:
    (folder / "config.yaml").write_text("mine")
    done = init()
    assert done.exit_code == ExitCode.USAGE
    assert "config.yaml already exists" in done.stderr
    assert (folder / "config.yaml").read_text() == "mine"


def test_for_azure_it_asks_for_both_namespaces_and_writes_no_secret(folder: Path) -> None:
    done = init("own.yaml", "--azure", answers="Contoso\ncontoso-dr.servicebus.windows.net\n")
    assert done.exit_code == 0, done.stderr
    (pair,) = load_config(folder / "own.yaml").pairs
    hosts = pair.primary.host, pair.secondary.host
    assert hosts == ("contoso.servicebus.windows.net", "contoso-dr.servicebus.windows.net")
    assert pair.primary.connection_string is None


@pytest.mark.parametrize(
    ("primary", "secondary", "text"),
    [("con toso", "b", "'con toso' is not a namespace: use contoso"), ("a", "A", "are both")],
)
def test_a_wrong_name_is_refused_and_nothing_is_written(folder: Path, primary: str, secondary: str, text: str) -> None:
    done = init("--primary", primary, "--secondary", secondary)
    assert done.exit_code == ExitCode.USAGE
    assert text in done.stderr
    assert not (folder / "config.yaml").exists()
