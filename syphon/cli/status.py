"""`syphon status`: shows in a terminal what a running worker does."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import printable

from .output import show_table
from .worker_client import WorkerClient, find_worker, worker_options

if TYPE_CHECKING:
    from syphon.ops import PairStatus, SideStatus, WorkerStatus

EVENTS = 8


@click.command(short_help="Show what a running worker does.")
@worker_options
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON; docs/status.md has the contract.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between two looks, with --watch.",
)
def status(config_file: Path | None, url: str | None, as_json: bool, watch: bool, every: float) -> None:
    """Show pairs with both sides, backlog queues, destinations and the last events of a running worker.

    A destination is available, backing off (its messages wait in the backlog), rejecting (its messages go to the dead
    letters) or paused.

    \b
      syphon status -c config.yaml
      syphon status -c config.yaml --watch
      syphon status --url http://127.0.0.1:8080 --json | jq .totals

    \b
    Exit codes: 0 the worker has answered · 69 it does not answer · 77 it refused the token
    """
    worker = find_worker(config_file, url)
    while True:
        _show(worker, as_json, watch)
        if not watch:
            return
        try:
            time.sleep(every)
        except KeyboardInterrupt:
            return


def _show(worker: WorkerClient, as_json: bool, watch: bool) -> None:
    from syphon.ops import WorkerStatus

    answer = worker.ask("/status")
    if as_json:
        # With --watch one line each: other programs read it line by line.
        click.echo(answer if watch else WorkerStatus.model_validate_json(answer).model_dump_json(indent=2))
        return
    found = WorkerStatus.model_validate_json(answer)
    if watch and sys.stdout.isatty():
        click.clear()
    _show_whole(found)


def _show_whole(found: WorkerStatus) -> None:
    totals = found.totals
    click.secho(f"syphon {found.version}, {found.state}, up {span(found.started, found.at)}", bold=True)
    click.echo(
        f"{totals.forwarded:,} forwarded, {totals.dead_lettered:,} dead-lettered, "
        f"{totals.possible_duplicates:,} possible duplicates; "
        f"{sum(pair.per_second for pair in found.pairs):,.0f} a second"
    )
    if found.ledger_error:
        click.secho(f"The ledger is not complete: {printable(found.ledger_error)}", fg="red")
    for pair in found.pairs:
        _show_pair(pair, found.at)
    click.echo()
    for event in found.events[:EVENTS]:
        times = f" ({event.times} times)" if event.times > 1 else ""
        colour = {"error": "red", "warning": "yellow"}.get(event.level)
        click.secho(f"{event.at.astimezone():%H:%M:%S}  {printable(event.text)}{times}", fg=colour)


def _show_pair(pair: PairStatus, now: datetime) -> None:
    click.echo()
    click.secho(f"{pair.name}{', paused' if pair.paused else ''}", bold=True)
    for role, side in (("secondary", pair.secondary), ("primary", pair.primary)):
        click.echo(f"  {role:<9} {side.host}  ", nl=False)
        click.secho(_side(side, now), fg="green" if side.connected else "yellow" if side.state == "starting" else "red")
    rows = [
        (
            queue.name,
            queue.state,
            queue.in_flight,
            round(queue.per_second),
            "?" if queue.left is None else queue.left,
            span(queue.oldest, now),
            queue.totals.forwarded,
            queue.totals.dead_lettered,
        )
        for queue in pair.queues
    ]
    click.echo()
    show_table(
        ("queue", "state", "in flight", "per second", "left", "oldest", "forwarded", "dead-lettered"), rows, "  "
    )
    if pair.destinations:
        click.echo()
        show_table(
            ("destination", "state", "since", "next try", "left", "forwarded", "dead-lettered"),
            [
                (
                    found.path,
                    found.state.words,
                    span(found.since, now),
                    span(now, found.next_try),
                    f"≥ {found.left:,}" if found.left else None,
                    found.forwarded,
                    found.dead_lettered,
                )
                for found in pair.destinations
            ],
            "  ",
        )
    reasons = [(queue.name, queue.reason) for queue in pair.queues]
    reasons += [(found.path, found.reason) for found in pair.destinations]
    for name, reason in reasons:
        if reason:
            click.secho(f"  {printable(name)}: {printable(reason)}", fg="yellow")


def _side(side: SideStatus, now: datetime) -> str:
    state = side.state.value if side.state != "opened" else "connected" if side.connected else "out of reach"
    reason = "" if side.connected or side.reason is None else f": {printable(side.reason)}"
    return f"{state} for {span(side.since, now)}{reason}"


def span(since: datetime | None, until: datetime | None) -> str | None:
    """The time between two moments, for people."""
    if since is None or until is None:
        return None
    seconds = max(0, round((until - since).total_seconds()))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"
