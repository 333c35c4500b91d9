"""`syphon drain --dry-run`: shows what a drain would forward, how long it takes and what it costs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from syphon.model import ExitCode, SyphonError, plural, printable, volume

from .tables import say, say_renames, show_table

if TYPE_CHECKING:
    from syphon.backlog import SelectedQueue
    from syphon.config import Config
    from syphon.operations import DryRun
    from syphon.worker import DrainOptions


def dry_run_of(config: Config, chosen: list[SelectedQueue], options: DrainOptions, as_json: bool) -> ExitCode:
    """Show what the drain would do, and return the exit code it would have."""
    from syphon.operations import exit_code_of_error, forecast

    click.echo(f"Peeking into {len(chosen)} backlog queues …", err=True)
    try:
        result = forecast(config, chosen, options)
    except SyphonError as error:
        click.echo(str(error), err=True)
        return exit_code_of_error(error)
    if as_json:
        click.echo(json.dumps(result.as_json(), indent=2))
    else:
        _show(result)
    return result.exit_code


def _show(result: DryRun) -> None:
    from syphon.operations import words_for

    rows = [
        (
            found.destination or "(none)",
            found.messages,
            volume(found.bytes),
            "" if found.oldest is None else f"{found.oldest:%Y-%m-%d %H:%M:%S}",
            found.dead_letters,
            found.waiting,
        )
        for found in result.destinations
    ]
    if rows:
        show_table(("destination", "messages", "bytes", "oldest (UTC)", "would be dead-lettered", "would wait"), rows)
    say_renames(result.destinations)
    for found in result.dead_letters:
        why = printable(f"{found.reason}: {found.example}")
        say(f"{found.messages:,} would be dead-lettered: {why}", "  ", fg="yellow")
    for waits in result.waiting:
        say(printable(f"{waits.left:,} would wait for {waits.path}: {waits.reason}"), "  ", fg="yellow")
    if words := words_for(waits.error for waits in result.waiting):
        say(f"--give-up {words} would dead-letter messages for missing or disabled destinations.")
    for each in result.unchecked:
        say(printable(f"{each.pair}: the destinations could not be checked: {each.error}"), "  ", fg="red")
    cost = result.cost
    click.echo()
    say(
        f"{plural(result.messages, 'message')}, {volume(result.bytes)}: "
        f"about {_lasting(result.seconds)} at {result.per_second:,.0f} messages per second; "
        f"{result.operations:,} operations, "
        f"{cost.least:,.2f} to {cost.most:,.2f} {cost.currency} at Standard list prices as of {cost.as_of}"
    )
    for assumed in result.assumed:
        say(f"Assumption for {assumed}.", "  ")
    if result.others:
        verb = "does" if result.others == 1 else "do"
        if not result.messages:
            click.secho("No message in the backlog matches the filter.", fg="yellow")
        click.echo(f"{plural(result.others, 'message')} in the backlog {verb} not match the filter.")
    click.secho("Dry run: nothing was forwarded.", bold=True)


def _lasting(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"
