"""`syphon status`: shows in a terminal what a running worker does."""

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
    from syphon.ops import PairStatus, SideStatus, WorkerStatus

EVENTS = 8
COLOURS = {"critical": "red", "warning": "yellow", "notice": "magenta"}
"""By the severity of a problem."""


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
        _show_page(lambda: _show_whole(found, folded=True))
    else:
        _show_whole(found)


class _Page(io.StringIO):
    """Collects what is printed for the terminal, with its colours."""

    def isatty(self) -> bool:
        return True


def _show_page(show: Callable[[], None]) -> None:
    """Shows the first lines, as many as the terminal has: the headline never scrolls away."""
    page = _Page()
    with redirect_stdout(page):
        show()
    lines, height = page.getvalue().splitlines(), shutil.get_terminal_size().lines
    if len(lines) >= height:
        more = len(lines) - height + 2
        lines = [*lines[: height - 2], f"… and {more} more lines: enlarge the terminal, or leave out --watch"]
    # Each line is written over the one before, and not on an empty screen: that would flicker.
    click.echo("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J", nl=False)


def _show_whole(found: WorkerStatus, folded: bool = False) -> None:
    """Prints the status, the most important parts first. If `folded`, quiet queues are one line."""
    totals, flow = found.totals, found.outlook.flow
    click.secho(f"syphon {found.version}, {flow.words}, up {span(found.started, found.at)}", bold=True)
    say(_how_it_goes(found))
    say(
        f"Since the start: {totals.forwarded:,} forwarded, {totals.dead_lettered:,} dead-lettered, "
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
    """The numbers that an operator asks for first. What is not known is not shown as zero."""
    outlook = found.outlook
    parts = [f"{sum(pair.per_second for pair in found.pairs):,.0f} per second"]
    parts += [
        f"{pair.name} limited to {pair.rate_limit:,.0f} per second, the {pair.rate_limit_set_by} is throttled"
        for pair in found.pairs
        if pair.rate_limit is not None and pair.rate_limit_set_by in ("primary", "secondary")
    ]
    if outlook.left is not None:
        parts.append(f"{outlook.left:,} left")
    if outlook.stuck:
        parts.append(f"at least {outlook.stuck:,} of them stuck")
    if outlook.seconds is not None:
        rest = " for the others" if outlook.stuck else ""
        parts.append(f"about {duration(round(outlook.seconds))} to go{rest}")
    if outlook.dead_letters is not None:
        parts.append(f"{outlook.dead_letters:,} in the dead letters now")
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
        titles = ("queue", "state", "in flight", "per second", "left", "oldest", "forwarded", "dead-lettered")
        show_table(titles, rows, "  ")
    if quiet := len(pair.queues) - len(rows):
        say(f"  {plural(quiet, 'queue')} with nothing in {'it' if quiet == 1 else 'them'}")
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
