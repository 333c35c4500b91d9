"""`syphon report`: reads from the ledger what happened to every message."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, Extra, InvalidOption, SyphonError
from syphon.option_declarations import END_TIME, TIME

from .shared_options import Reads, default_config, load_settings

if TYPE_CHECKING:
    from syphon.config import PipelineSettings
    from syphon.ledger import Report

_STARTS = "A worker or a drain creates it with the first transfer. A relative path is relative to the current folder."


@click.command(short_help="Show what happened to every message.")
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The worker's settings file, for the path of the ledger.",
)
@click.option("--ledger", metavar="PATH", help="Path of the ledger: a folder, or any path that Spark can read.")
@click.option("--from", "since", type=Reads(TIME), help="Only messages settled at or after this time.")
@click.option("--to", "until", type=Reads(END_TIME), help="Only messages settled before this time.")
@click.option("--pair", metavar="NAME", help="Only this pair.")
@click.option("--list", "lists_runs", is_flag=True, help="List past drains with their results instead.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON (docs/report.md).")
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the report as an HTML page.",
)
def report(
    config_file: Path | None,
    ledger: str | None,
    since: datetime | None,
    until: datetime | None,
    pair: str | None,
    lists_runs: bool,
    as_json: bool,
    html_file: Path | None,
) -> None:
    """Show from the ledger what happened to every message: which arrived, and how late; which were dead-lettered, and
    why; which were left in the backlog, and which arrived more than once.

    The counts balance: received = forwarded + dead-lettered + left in the backlog + unaccounted. Unaccounted messages
    were received by a task or driver that was killed before it recorded their outcome. A job whose driver was killed
    is shown with the counts of its last report.

    \b
      syphon report -c config.yaml
      syphon report -c config.yaml --from 2h
      syphon report --from 2026-10-05 --to 2026-10-05 --pair contoso
      syphon report -c config.yaml --html incident.html
      syphon report --ledger ./ledger --json
      syphon report -c config.yaml --list

    A TIME is 2026-10-05T14:30Z, a date, or a duration before now: 30m, 2h, 1d12h. It is UTC unless it has an offset,
    and a date after --to includes that day.

    Exit codes: 0 every message arrived, or nothing is recorded yet · 1 some were left, dead-lettered or
    unaccounted, a job is open, or a ledger file is corrupt · 2 wrong usage, or no ledger at --ledger ·
    69 the ledger cannot be read · 78 invalid settings
    """
    from syphon.operations import is_local

    Extra.SPARK.require("`syphon report`", "pyarrow", "jinja2")  # Spark itself reads large ledgers only
    pipeline = _pipeline(config_file if ledger else config_file or default_config(), ledger, pair)
    _check(since, until, html_file)
    if ledger is not None and is_local(pipeline) and not Path(ledger).is_dir():
        raise click.UsageError(f"There is no ledger at {Path(ledger).absolute()}. {_STARTS}")
    if lists_runs:
        if html_file is not None:
            raise click.UsageError("--list has no page: omit --html.")
        _list_runs(pipeline, since, until, pair, as_json)
        return
    try:
        found = _query(pipeline, since, until, pair)
    except SyphonError as error:
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.UNAVAILABLE) from None
    if html_file is not None:
        _write_page(found, html_file)
    _print(found, as_json)
    raise SystemExit(found.exit_code)


def _list_runs(
    pipeline: PipelineSettings, since: datetime | None, until: datetime | None, pair: str | None, as_json: bool
) -> None:
    from syphon.operations import past_runs

    from .report_tables import show_runs

    try:
        runs, broken = past_runs(pipeline, since, until, pair, _waiting())
    except SyphonError as error:
        click.echo(str(error), err=True)
        raise SystemExit(ExitCode.UNAVAILABLE) from None
    if as_json:
        click.echo(json.dumps({"runs": [run.as_json() for run in runs], "unreadable_files": broken}, indent=2))
    elif runs:
        show_runs(runs)
    else:
        click.echo("No drain is on record.", err=True)
    for file in broken:
        click.echo(f"{file} cannot be read.", err=True)
    if broken:
        raise SystemExit(ExitCode.LEFT)


def _pipeline(config_file: Path | None, ledger: str | None, pair: str | None) -> PipelineSettings:
    if config_file is None and ledger is None:
        raise click.UsageError("Which ledger? Use -c FILE (the worker's settings) or --ledger PATH.")
    from syphon.config import PipelineSettings

    if config_file is None:
        return PipelineSettings(ledger=ledger or "")
    config = load_settings(config_file)
    names = [each.name for each in config.pairs]
    if pair is not None and pair not in names:
        known = ", ".join(names)
        raise click.BadParameter(
            f"There is no pair '{pair}' in {config_file}; its pairs are: {known}.", param_hint="--pair"
        )
    return config.pipeline if ledger is None else config.pipeline.model_copy(update={"ledger": ledger})


def _check(since: datetime | None, until: datetime | None, html_file: Path | None) -> None:
    """Finds errors that are known before the ledger is read, which may take a while."""
    from syphon.operations import check_period

    try:
        check_period(since, until)
    except InvalidOption as error:
        raise click.UsageError(str(error)) from None
    if html_file is not None and not html_file.parent.is_dir():
        raise click.BadParameter(f"the folder {html_file.parent} does not exist.", param_hint="--html")


def _query(pipeline: PipelineSettings, since: datetime | None, until: datetime | None, pair: str | None) -> Report:
    from syphon.operations import ask_ledger

    return ask_ledger(pipeline, since, until, pair, waiting=_waiting())


def _waiting() -> Callable[[], AbstractContextManager[object]]:
    """What a person at a terminal sees while Spark reads the ledger."""
    from rich.console import Console

    stderr = Console(stderr=True)
    return (lambda: stderr.status("Reading the ledger …")) if stderr.is_terminal else nullcontext


def _write_page(found: Report, file: Path) -> None:
    from syphon.ledger import html_page

    done = "Replaced" if file.exists() else "Wrote"
    try:
        file.write_text(html_page(found, datetime.now(UTC)), "utf-8")
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be written: {error.strerror}.", param_hint="--html") from None
    click.echo(f"{done} {file}.", err=True)


def _print(found: Report, as_json: bool) -> None:
    from .report_tables import show

    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        show(found)
    if found.empty:
        click.echo(_why_empty(found), err=True)


def _why_empty(found: Report) -> str:
    if not found.pairs:
        return f"The ledger at {found.ledger} is empty, or does not exist yet. {_STARTS}"
    return f"The ledger at {found.ledger} has transfers of {', '.join(found.pairs)}, but none that match the options."
