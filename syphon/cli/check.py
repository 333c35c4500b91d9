"""`syphon check`: what would go wrong, before it does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .exit_codes import ExitCode
from .findings import lines, only_our_own_words, show
from .settings_file import config_option, load
from .signals import stopped_by_hand

if TYPE_CHECKING:
    from syphon.backlog import Finding, PreflightCheck

SIDE_BY_SIDE = 16
PATIENCE = 3.0
"""Seconds after which it is told who is waited for."""


@click.command(short_help="Say what would go wrong, and change nothing.")
@config_option
@click.option("--no-provision", is_flag=True, help="For `run --no-provision` and `drain`: ask for no Manage claim.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON (docs/commands.md).")
def check(config_file: Path, no_provision: bool, as_json: bool) -> None:
    """Look at the settings, credentials, claims, backlog queues and destinations of every pair.

    Reads only: no queue is made, no message sent or received. All problems are told at once. It ends within a minute or
    so, whoever is silent.

    \b
      syphon check -c config.yaml
      syphon check -c config.yaml --no-provision
      syphon check -c config.yaml --json | jq .exit_code

    \b
    What a line begins with, and the exit code (of several the highest):
      ok            0  as it should be
      warning       0  it works, but not as one may think
      problem       1  it will not work: missing, disabled or of no use
      unreachable  69  nobody answers; it may work later
      denied       77  credentials or claims
                   78  the settings are wrong, and nothing else was tried
    """
    from syphon.backlog import preflight_checks

    only_our_own_words()
    config = load(config_file, as_json)
    slots = threading.Semaphore(SIDE_BY_SIDE)
    under_way = [_Looking(look, slots) for pair in config.pairs for look in preflight_checks(pair, not no_provision)]
    findings: list[Finding] = []
    with stopped_by_hand("Nothing was changed."):
        for looking in under_way:
            found = looking.wait()
            findings += found
            if not as_json:
                click.echo(f"{looking.look}")
                show(lines((finding.level.value, finding.entity, finding.text) for finding in found))
                click.echo()
    code = _exit_code(findings)
    if as_json:
        told = [asdict(finding) for finding in findings]
        click.echo(json.dumps({"exit_code": code, "settings": [], "findings": told}, indent=2))
    else:
        click.echo(_verdict(findings))
    raise SystemExit(code)


class _Looking(threading.Thread):
    """A look on its way. Nobody waits for its end who does not want to know."""

    def __init__(self, look: PreflightCheck, slots: threading.Semaphore) -> None:
        super().__init__(name=str(look), daemon=True)
        self.look = look
        self._slots = slots
        self._found: list[Finding] = []
        self._bug: BaseException | None = None
        self.start()

    def run(self) -> None:
        with self._slots:
            try:
                self._found = list(self.look.findings())
            except BaseException as bug:  # raised where somebody hears it
                self._bug = bug

    def wait(self) -> list[Finding]:
        self.join(PATIENCE)
        if self.is_alive():
            click.echo(f"Waiting for {self.look} …", err=True)
            self.join()
        if self._bug is not None:
            raise self._bug
        return self._found


def _verdict(findings: Iterable[Finding]) -> str:
    wrong = [finding for finding in findings if not finding.level.is_good]
    warnings = sum(finding.level == "warning" for finding in findings)
    return f"{_counted(len(wrong), 'problem').capitalize()}, {_counted(warnings, 'warning')}."


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _exit_code(findings: Iterable[Finding]) -> ExitCode:
    levels = {finding.level.value for finding in findings}
    if "denied" in levels:
        return ExitCode.NOT_AUTHORIZED
    if "unreachable" in levels:
        return ExitCode.UNAVAILABLE
    return ExitCode.LEFT if "problem" in levels else ExitCode.OK
