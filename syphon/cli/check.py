"""`syphon check`: what would go wrong, before it does."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.cli.exit_codes import ExitCode
from syphon.cli.settings_file import config_option, load
from syphon.pipeline.wording import harmless

if TYPE_CHECKING:
    from syphon.backlog.preflight import Finding


@click.command(short_help="Say what would go wrong, and change nothing.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def check(config_file: Path, as_json: bool) -> None:
    """Look at the settings, credentials, claims, backlog queues and destinations of every pair.

    Reads only: no queue is made, no message sent or received. All problems are told at once.

    \b
      syphon check -c config.yaml
      syphon check -c config.yaml --json

    \b
    Exit codes: 0 all is well (warnings may stand) · 1 something is missing · 69 a namespace is out of reach ·
    77 credentials or claims · 78 the settings are wrong
    """
    from syphon.backlog.preflight import check as check_pair

    config = load(config_file)
    findings = [finding for pair in config.pairs for finding in check_pair(pair)]
    if as_json:
        click.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _show(findings)
    raise SystemExit(_exit_code(findings))


def _show(findings: list[Finding]) -> None:
    about = None
    for finding in findings:
        place = f"{finding.pair}: {finding.about}"
        if place != about:
            click.echo(("" if about is None else "\n") + place)
            about = place
        click.echo(f"  {finding.level:<12}{harmless(finding.text)}")
    wrong = sum(finding.level not in ("ok", "warning") for finding in findings)
    warnings = sum(finding.level == "warning" for finding in findings)
    click.echo(f"\n{_counted(wrong, 'problem').capitalize()}, {_counted(warnings, 'warning')}.")


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _exit_code(findings: list[Finding]) -> ExitCode:
    levels = {finding.level.value for finding in findings}
    if "denied" in levels:
        return ExitCode.NOT_AUTHORIZED
    if "unreachable" in levels:
        return ExitCode.UNAVAILABLE
    return ExitCode.LEFT if "problem" in levels else ExitCode.OK
