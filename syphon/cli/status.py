"""`syphon status`: shows in a terminal what a running worker is doing."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from syphon.model import duration, plural, printable

from .tables import WIDE, say, show_table, shown_queues, terminal_width
from .worker_client import NoAnswer, WorkerClient, find_worker, worker_options

if TYPE_CHECKING:
    from syphon.status import PairStatus, SideStatus, WorkerStatus

EVENTS = 8
MOST_FOLDED = 3
"""Problems that `--watch` shows on a terminal: the tables must fit below them."""
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

    Exit codes: 0 the worker answered · 69 no answer · 77 it rejected the token
    """
    worker = find_worker(config_file, url)
    _show(worker, as_json, watch)
    silent_since: datetime | None = None
    while watch:
        try:
            time.sleep(every)
            _show(worker, as_json, watch)
            silent_since = None
        except NoAnswer as error:  # the worker may be restarting
            _show_silence(error, silent_since, as_json)
            silent_since = silent_since or datetime.now(UTC)
        except KeyboardInterrupt:
            return


def _show_silence(error: NoAnswer, since: datetime | None, as_json: bool) -> None:
    """Say on a terminal each time, elsewhere once, that the worker does not answer."""
    from syphon.status import is_screen

    def show() -> None:
        moment = since or datetime.now(UTC)
        click.secho(f"The worker has not answered since {moment:%H:%M:%S} UTC. Waiting for it …", bold=True, fg="red")
        say(error.format_message())

    if is_screen(sys.stdout) and not as_json:
        _show_page(show)
    elif since is None:
        error.show()


def _show(worker: WorkerClient, as_json: bool, watch: bool) -> None:
    from syphon.status import WorkerStatus, is_screen

    answer = worker.ask("/status")
    if as_json:
        # With --watch one line per refresh: other programs read it line by line.
        click.echo(answer if watch else WorkerStatus.model_validate_json(answer).model_dump_json(indent=2))
        return
    found = WorkerStatus.model_validate_json(answer)
    if watch and is_screen(sys.stdout):
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
    """Print the status, the most important parts first.

    If `folded`, so that the tables fit on the screen: problems without their remedies, and no queues without messages.
    """
    flow = found.outlook.flow
    click.secho(f"syphon {found.version}, {flow.words}, up {span(found.started, found.at)}", bold=True)
    say(found.outlook.headline, bold=True)
    say(_numbers(found))
    if found.spark is not None:
        say(f"Spark is {found.spark.state.words} for {span(found.spark.since, found.at)}")
    most = MOST_FOLDED if folded else len(found.problems)
    for problem in found.problems[:most]:
        text = f"{problem.severity}: {printable(problem.text)}"
        if folded:
            text = _cut(text, (terminal_width() or WIDE) - 2)
        say(f"  {text}", "  ", fg=COLOURS[problem.severity])
        if not folded:
            say(f"  {printable(problem.remedy)}", "  ")
    if folded and found.problems:
        more = len(found.problems) - most
        others = f"{plural(more, 'more problem')}; w" if more > 0 else "W"
        say(f"  {others}hat to do: syphon status without --watch")
    for pair in found.pairs:
        _show_pair(pair, found.at, folded)
    if not folded:
        click.echo()
    for event in found.events[:EVENTS]:
        times = f" ({event.times} times)" if event.times > 1 else ""
        colour = {"error": "red", "warning": "yellow"}.get(event.level)
        say(f"{event.at:%H:%M:%S}Z  {printable(event.text)}{times}", " " * 11, fg=colour)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1]}…"


def _numbers(found: WorkerStatus) -> str:
    """The numbers of the page's tiles. An unknown number is a dash, not zero."""
    outlook = found.outlook
    per_second = sum(pair.per_second for pair in found.pairs)
    in_flight = sum(queue.in_flight for pair in found.pairs for queue in pair.queues)
    counted = f" (counted {span(outlook.counted, found.at)} ago)" if outlook.counted is not None else ""
    parts = [
        f"Forwarded/s {per_second:,.0f}",
        f"Backlog {_known(outlook.left)}{counted}",
        f"Stuck {f'≥ {outlook.stuck:,}' if outlook.stuck else '–'}",
        f"ETA {'–' if outlook.seconds is None else duration(round(outlook.seconds))}",
        f"Dead letters {_known(outlook.dead_letters)}",
        f"In flight {in_flight:,}",
        f"Possible duplicates {found.totals.possible_duplicates:,}",
    ]
    return " · ".join(parts)


def _known(number: int | None) -> str:
    return "–" if number is None else f"{number:,}"


def _show_pair(pair: PairStatus, now: datetime, folded: bool) -> None:
    click.echo()
    limit = ""
    if pair.rate_limit is not None and pair.rate_limit_set_by in ("primary", "secondary"):
        limit = f", at most {pair.rate_limit:,.0f}/s: the {pair.rate_limit_set_by} throttles"
    click.secho(f"{pair.name}{', paused' if pair.paused else ''}{limit}", bold=True)
    for role, side in (("secondary", pair.secondary), ("primary", pair.primary)):
        colour = "green" if side.connected else "yellow" if side.state == "starting" else "red"
        text = f"{role:<9} {side.host}  {_side(side, now)}"
        say(f"  {_cut(text, (terminal_width() or WIDE) - 2) if folded else text}", " " * 12, fg=colour)
    if pair.destinations:
        if not folded:
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
    if not folded:
        click.echo()
    if rows:
        titles = ("queue", "state", "in flight", "per second", "waiting", "oldest", "forwarded", "dead-lettered")
        show_table(titles, rows, "  ")
    if quiet := len(pair.queues) - len(rows):
        say(f"  {plural(quiet, 'backlog queue')}, empty when last counted")


def _side(side: SideStatus, now: datetime) -> str:
    state = side.state.value if side.state != "opened" else "connected" if side.connected else "unreachable"
    reason = "" if side.connected or side.reason is None else f": {printable(side.reason)}"
    return f"{state} for {span(side.since, now)}{reason}"


def span(since: datetime | None, until: datetime | None) -> str | None:
    """Format the time between two moments for people."""
    if since is None or until is None:
        return None
    seconds = max(0, int((until - since).total_seconds()))
    return duration(seconds if seconds < 60 else seconds // 60 * 60) if seconds else "0 s"
