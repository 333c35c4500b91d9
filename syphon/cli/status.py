"""`syphon status`: shows in a terminal what a running worker is doing."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import duration, plural, printable

from .output import say, show_table, shown_queues
from .worker_client import WorkerClient, find_worker, worker_options

if TYPE_CHECKING:
    from syphon.status import PairStatus, SideStatus, WorkerStatus

EVENTS = 8
COLOURS = {"critical": "red", "warning": "yellow", "notice": "magenta"}
"""By the severity of a problem."""


@click.command(short_help="Show what a running worker is doing.")
@worker_options
@click.option("--json", "as_json", is_flag=True, help="Print the status as JSON (docs/status.md).")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Seconds between refreshes, with --watch.",
)
def status(config_file: Path | None, url: str | None, as_json: bool, watch: bool, every: float) -> None:
    """Show the pairs, backlog queues, destinations and latest events of a running worker.

    A destination is available, backing off (its messages wait in the backlog), rejecting (its messages are
    dead-lettered) or paused.

    \b
      syphon status -c config.yaml
      syphon status -c config.yaml --watch
      syphon status --url http://127.0.0.1:8080 --json | jq .totals

    \b
    Exit codes: 0 the worker answered · 69 no answer · 77 it rejected the token
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
    from syphon.status import WorkerStatus

    answer = worker.ask("/status")
    if as_json:
        # With --watch one line per refresh: other programs read it line by line.
        click.echo(answer if watch else WorkerStatus.model_validate_json(answer).model_dump_json(indent=2))
        return
    found = WorkerStatus.model_validate_json(answer)
    if watch and sys.stdout.isatty():
        _show_page(lambda: _show_whole(found, folded=True))
    else:
        _show_whole(found)


class _Page(io.StringIO):
    """Collects what is printed for the terminal, with its colours."""

    def isatty(self) -> bool:
        return True


def _show_page(show: Callable[[], None]) -> None:
    """Show as many lines as fit into the terminal, so that the headline never scrolls away."""
    page = _Page()
    with redirect_stdout(page):
        show()
    lines, height = page.getvalue().splitlines(), shutil.get_terminal_size().lines
    if len(lines) >= height:
        more = len(lines) - height + 2
        lines = [*lines[: height - 2], f"… and {more} more lines: enlarge the terminal, or omit --watch"]
    # Each line is written over the one before, and not on an empty screen: that would flicker.
    click.echo("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", nl=False)


def _show_whole(found: WorkerStatus, folded: bool = False) -> None:
    """Print the status, the most important parts first. If `folded`, idle queues share one line."""
    totals, flow = found.totals, found.outlook.flow
    click.secho(f"syphon {found.version}, {flow.words}, up {span(found.started, found.at)}", bold=True)
    say(_how_it_goes(found))
    say(
        f"Since startup: {totals.forwarded:,} forwarded, {totals.dead_lettered:,} dead-lettered, "
        f"{totals.possible_duplicates:,} possible duplicates"
    )
    for problem in found.problems:
        say(f"{problem.severity}: {printable(problem.text)}", "  ", fg=COLOURS[problem.severity])
        say(f"  {printable(problem.remedy)}", "  ")
    for pair in found.pairs:
        _show_pair(pair, found.at, folded)
    click.echo()
    for event in found.events[:EVENTS]:
        times = f" ({event.times} times)" if event.times > 1 else ""
        colour = {"error": "red", "warning": "yellow"}.get(event.level)
        say(f"{event.at.astimezone():%H:%M:%S}  {printable(event.text)}{times}", " " * 10, fg=colour)


def _how_it_goes(found: WorkerStatus) -> str:
    """The numbers an operator wants first. An unknown number is omitted, not shown as zero."""
    outlook = found.outlook
    parts = [f"{sum(pair.per_second for pair in found.pairs):,.0f} forwarded/s"]
    parts += [
        f"{pair.name} limited to {pair.rate_limit:,.0f}/s because the {pair.rate_limit_set_by} throttles"
        for pair in found.pairs
        if pair.rate_limit is not None and pair.rate_limit_set_by in ("primary", "secondary")
    ]
    if outlook.left is not None:
        parts.append(f"{outlook.left:,} waiting in the backlog")
    if outlook.stuck:
        parts.append(f"at least {outlook.stuck:,} of them blocked")
    if outlook.seconds is not None:
        rest = " (without blocked)" if outlook.stuck else ""
        parts.append(f"about {duration(round(outlook.seconds))} to empty{rest}")
    if outlook.dead_letters is not None:
        parts.append(plural(outlook.dead_letters, "dead letter"))
    return "; ".join(parts)


def _show_pair(pair: PairStatus, now: datetime, folded: bool) -> None:
    click.echo()
    click.secho(f"{pair.name}{', paused' if pair.paused else ''}", bold=True)
    for role, side in (("secondary", pair.secondary), ("primary", pair.primary)):
        colour = "green" if side.connected else "yellow" if side.state == "starting" else "red"
        say(f"  {role:<9} {side.host}  {_side(side, now)}", " " * 12, fg=colour)
    names = shown_queues([queue.name for queue in pair.queues])
    busy = [queue.in_flight or queue.left != 0 or queue.reason or round(queue.per_second) for queue in pair.queues]
    rows = [
        (
            name,
            queue.state,
            queue.in_flight,
            round(queue.per_second),
            "?" if queue.left is None else queue.left,
            span(queue.oldest, now),
            queue.totals.forwarded,
            queue.totals.dead_lettered,
        )
        for name, queue, is_busy in zip(names, pair.queues, busy, strict=True)
        if is_busy or not folded
    ]
    click.echo()
    if rows:
        titles = ("queue", "state", "in flight", "per second", "waiting", "oldest", "forwarded", "dead-lettered")
        show_table(titles, rows, "  ")
    if quiet := len(pair.queues) - len(rows):
        say(f"  {plural(quiet, 'backlog queue')}, empty when last counted")
    if pair.destinations:
        click.echo()
        show_table(
            ("destination", "state", "for", "retry in", "waiting", "forwarded", "dead-lettered"),
            [
                (
                    found.path,
                    found.state.words,
                    span(found.since, now),
                    span(now, found.next_attempt),
                    f"≥ {found.left:,}" if found.left else None,
                    found.forwarded,
                    found.dead_lettered,
                )
                for found in pair.destinations
            ],
            "  ",
        )


def _side(side: SideStatus, now: datetime) -> str:
    state = side.state.value if side.state != "opened" else "connected" if side.connected else "unreachable"
    reason = "" if side.connected or side.reason is None else f": {printable(side.reason)}"
    return f"{state} for {span(side.since, now)}{reason}"


def span(since: datetime | None, until: datetime | None) -> str | None:
    """Format the time between two moments for people."""
    if since is None or until is None:
        return None
    seconds = max(0, round((until - since).total_seconds()))
    if seconds < 90:
        return f"{seconds} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"
