"""Units, chart and pages use only commands and options that syphon has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module

import click
import pytest

from tests.support.chart import CASES, containers, manifests, pods
from tests.support.tools import ROOT


def understood(words: list[str]) -> bool:
    """Whether syphon has the command and accepts its arguments; the command does not run."""
    command: click.Command = getattr(import_module(f"syphon.cli.{words[0]}"), words[0])
    try:
        command.make_context(words[0], words[1:])
    except click.UsageError:
        return False
    return True


def in_units() -> Iterator[str]:
    examples = (ROOT / "systemd" / "syphon.env.example").read_text()
    arguments = dict(re.findall(r"(?m)^#(SYPHON_\w+)=(.*)$", examples))
    for unit in sorted((ROOT / "systemd").glob("*.service")):
        (line,) = re.findall(r"(?m)^ExecStart=/opt/syphon/bin/syphon (.*)$", unit.read_text())
        yield re.sub(r"\$(\w+)", lambda found: arguments[found[1]], line)


def in_pages() -> Iterator[str]:
    for page in ("systemd/README.md", "helm/syphon/README.md"):
        yield from re.findall(r"(?m)/opt/syphon/bin/syphon (.*)$", (ROOT / page).read_text())


def in_pods() -> Iterator[str]:
    for case in CASES:
        for pod in pods(manifests(case)):
            for container in containers(pod):
                args = container.get("args")
                if args and "syphon" in container["image"]:  # not a sidecar of the operator
                    yield shlex.join(args)


def test_units_start_commands_that_exist() -> None:
    lines = list(in_units())
    assert [line.split()[0] for line in lines] == ["drain", "run"]
    assert [line for line in lines if not understood(shlex.split(line))] == []


def test_pages_show_commands_that_exist() -> None:
    lines = list(in_pages())
    assert lines
    assert [line for line in lines if not understood(shlex.split(line))] == []


def test_pods_start_commands_that_exist() -> None:
    lines = set(in_pods())
    assert {line.split()[0] for line in lines} == {"run", "drain", "check"}
    assert [line for line in lines if not understood(shlex.split(line))] == []


@pytest.mark.parametrize("line", ["run -c a.yaml --provision-not", "drain --yes", "check -c"])
def test_a_wrong_command_is_found(line: str) -> None:
    assert not understood(shlex.split(line))
