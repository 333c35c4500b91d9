"""`syphon drill`: a game day on one entity, with a page about it."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, SyphonError, duration, exit_code_for, printable
from syphon.option_declarations import DURATION

from .shared_options import Reads, config_option, load_settings, needs_spark
from .tables import say

if TYPE_CHECKING:
    from syphon.config import Config, PairSettings
    from syphon.operations import Drill


@click.command(short_help="Rehearse an outage of one entity, and report on it.")
@config_option
@click.option("--entity", required=True, metavar="PATH", help="The queue or topic of the primary to disable.")
@click.option("--pair", metavar="NAME", help="Its pair; needed if the settings have several.")
@click.option(
    "--for", "lasts", type=Reads(DURATION), default="1m", show_default=True, help="How long sending stays disabled."
)
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page about it.",
)
@click.option("--restore", is_flag=True, help="Only enable sending, after a drill that was killed.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON (docs/commands.md).")
@needs_spark
def drill(
    config_file: Path,
    entity: str,
    pair: str | None,
    lasts: float,
    html_file: Path | None,
    restore: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Rehearse an outage of one queue or topic: disable sending, watch its senders fail over to the backlog, enable
    sending again, and drain what came.

    Senders without failover get errors meanwhile: choose an entity and a time for which that is acceptable. The entity
    must be active, and the backlog must hold none of its messages. It is enabled again however the drill ends: also
    after an error, Ctrl-C or SIGTERM. After SIGKILL, a power cut, or a drill that could not enable it use --restore.
    Needs Manage on the primary.

    \b
      syphon drill -c config.yaml --entity drill --for 2m --html drill.html
      syphon drill -c config.yaml --entity drill --restore

    Exit codes: 0 messages failed over and all were forwarded · 1 none failed over, some were left or dead-lettered, the
    drill was stopped, or the page could not be written · 2 wrong usage · 69 a namespace is unreachable · 70 the entity
    is still disabled · 77 not authorized · 78 invalid settings
    """
    from syphon.config import LogLevel
    from syphon.operations import AdministeredEntity, drill_of
    from syphon.servicebus import AllowedUse
    from syphon.status import set_up_logging

    if html_file is not None and not html_file.parent.is_dir():
        raise click.BadParameter(f"the folder {html_file.parent} does not exist.", param_hint="--html")
    config = load_settings(config_file)
    set_up_logging(LogLevel.ERROR, config.log.format)
    chosen = _pair(config, pair)
    try:
        if restore:
            AdministeredEntity(chosen, entity).set(AllowedUse.ACTIVE)
            click.echo(f"Enabled sending to {entity} in {chosen.primary.host}.")
            return
        _ask(chosen, entity, lasts, yes)
        drilled = drill_of(
            config,
            chosen,
            entity,
            lasts,
            say=lambda text: click.echo(printable(text), err=True),
            started=lambda: _stop_on_signals(drilled),  # again: Spark has installed its own handler
        )
        raise SystemExit(_run(drilled, html_file, as_json))
    except SyphonError as error:
        click.echo(str(error), err=True)
        raise SystemExit(exit_code_for([error])) from None


def _pair(config: Config, name: str | None) -> PairSettings:
    names = [pair.name for pair in config.pairs]
    if name is None and len(names) > 1:
        raise click.UsageError(f"Which pair? Use --pair with one of {', '.join(names)}.")
    if name is not None and name not in names:
        raise click.UsageError(f"There is no pair {name}; there are: {', '.join(names)}.")
    return config.pairs[0] if name is None else next(pair for pair in config.pairs if pair.name == name)


def _ask(pair: PairSettings, entity: str, lasts: float, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for confirmation on: add --yes.")
    question = f"Disable sending to {entity} in {pair.primary.host} for {duration(lasts)}?"
    if not click.confirm(question, err=True):
        click.echo("Nothing was changed.", err=True)
        raise SystemExit(ExitCode.LEFT)


def _stop_on_signals(drilled: Drill) -> None:
    def handle(number: int, frame: object) -> None:  # noqa: ARG001
        drilled.stop()  # never at once: the entity must be enabled first

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handle)


def _run(drilled: Drill, html_file: Path | None, as_json: bool) -> ExitCode:
    _stop_on_signals(drilled)
    report = drilled.run()
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        say(printable(report.verdict), bold=True, fg="green" if report.exit_code is ExitCode.OK else "yellow")
    if html_file is None:
        return report.exit_code
    try:
        html_file.write_text(report.as_html(), "utf-8")
    except OSError as error:
        click.echo(f"{html_file} cannot be written: {error.strerror}.", err=True)
        return max(report.exit_code, ExitCode.LEFT)
    click.echo(f"Wrote {html_file}.", err=True)
    return report.exit_code
