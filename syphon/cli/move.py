"""`syphon move`: move messages from any queue, subscription or dead-letter queue to any entity."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, InvalidOption, SyphonError, duration, plural, printable, volume
from syphon.worker import MoveOptions

from .drain import carry_out, exit_code_of_refusal
from .shared_options import default_config, load_settings, needs_spark, options_from
from .signals import interruptible
from .tables import say

if TYPE_CHECKING:
    from syphon.operations import MoveForecast, PlannedMove

NOTHING_MOVED = "No message was moved."


@click.command(short_help="Move messages from any queue to any queue or topic.")
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The settings file, which names namespaces. Default: $SYPHON_CONFIG, ./config.yaml, or none.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be moved, how long it takes and what it costs.")
@options_from(MoveOptions)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level, with the output of Spark.")
@needs_spark
def move(
    config_file: Path | None, dry_run: bool, options: MoveOptions, as_json: bool, yes: bool, verbose: bool
) -> None:
    """Move the messages of a queue, subscription or dead-letter queue to a queue or topic of any namespace, byte for
    byte, and verify that no matching message is left.

    A message is completed at the source only after the target has accepted it. One that cannot be moved stays where it
    is: a move dead-letters and defers nothing.

    \b
      syphon move --from 'old:orders/$deadletterqueue' --to old:orders --dry-run
      syphon move --from old:orders --to contoso.primary:orders --rate 500/s
      syphon move --from old:news/subscriptions/audit --to new:audit --limit 10
      syphon move --from env:OLD:orders --to file:/run/secrets/new:orders --yes

    NAMESPACE is a name under `namespaces` in the settings, PAIR.primary or PAIR.secondary, or env:VARIABLE or file:PATH
    with a connection string. The shell replaces $deadletterqueue unless it is quoted.

    \b
    Exit codes: 0 moved · 1 messages are left · 2 it cannot begin as given ·
    69 unreachable · 70 a namespace is unusable · 77 not authorized ·
    78 invalid settings
    """
    from syphon.config import LogFormat, LogLevel
    from syphon.operations import MoveRun, planned_move
    from syphon.status import set_up_logging

    file = config_file or default_config()
    config = None if file is None else load_settings(file)
    set_up_logging(
        LogLevel.DEBUG if verbose else LogLevel.WARNING, LogFormat.CONSOLE if config is None else config.log.format
    )
    try:
        planned = planned_move(config, options)
        if dry_run:
            raise SystemExit(_dry_run(planned, options, as_json))
        with interruptible(NOTHING_MOVED):
            _confirm(planned, options, yes)
            move_run = MoveRun.planned(planned, options)
        raise SystemExit(carry_out(move_run, planned.config.pipeline.master, as_json, NOTHING_MOVED))
    except InvalidOption as error:
        raise click.UsageError(str(error)) from None
    except SyphonError as error:
        raise SystemExit(exit_code_of_refusal(error)) from None


def _confirm(planned: PlannedMove, options: MoveOptions, yes: bool) -> None:
    if yes:
        return
    source, target = options.ends
    pair = planned.queue.pair
    click.echo(f"{source} ({pair.secondary.host}) → {target} ({pair.primary.host})", err=True)
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for confirmation on: add --yes.")
    if not click.confirm("Move its messages?", err=True):
        click.echo(NOTHING_MOVED, err=True)
        raise SystemExit(ExitCode.LEFT)


def _dry_run(planned: PlannedMove, options: MoveOptions, as_json: bool) -> ExitCode:
    from syphon.operations import move_forecast

    click.echo(f"Peeking into {options.ends[0]} …", err=True)
    found = move_forecast(planned, options)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        _show(found)
    return found.exit_code


def _show(found: MoveForecast) -> None:
    from syphon.operations import scheduled_text

    cost = found.cost
    oldest = "" if found.oldest is None else f", the oldest of {found.oldest:%Y-%m-%d %H:%M:%S} UTC"
    say(f"{plural(found.messages, 'message')} would be moved: {volume(found.bytes)}{oldest}", bold=True)
    for why, count in found.stay.items():
        say(printable(f"{plural(count, 'message')} would stay: {why}"), "  ", fg="yellow")
    if found.others:
        say(f"{plural(found.others, 'message')} would stay: the filter does not select them", "  ")
    if found.scheduled:
        say(scheduled_text(found.scheduled), "  ")
    say(f"About {duration(found.seconds)}: {found.per_second:,.0f} messages per second, {found.assumed}")
    say(f"{found.operations:,} operations: {cost.least:,.2f} to {cost.most:,.2f} {cost.currency} ({cost.as_of})")
    say("Dry run: nothing was moved.", bold=True)
