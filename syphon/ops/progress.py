"""The progress of a drain: a live table on a terminal, JSON lines anywhere else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syphon.model import plural, printable, short_queue_names
from syphon.spark import Totals
from syphon.worker import Drain

from .throughput import RateMeter

LINE_EVERY = 1.0
"""Seconds between JSON lines."""
WIDE = 120
"""The columns of a terminal that has room for the whole names of queues."""
OTHER_LINES = 10
"""Lines of the terminal that the rows of the queues leave to all else."""
MOST_NOTES = 4


@contextmanager
def drain_progress(drain: Drain, total: int | None) -> Iterator[Callable[[], None]]:
    """Yields a function that shows the progress; the drain calls it again and again."""
    if sys.stderr.isatty():
        console = Console(stderr=True)
        table = _Table(drain, total, console)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda: live.update(table.rendered(), refresh=True)
    else:
        lines = _Lines(drain, total)
        yield lines.write


class _Table:
    """A table with a row for each queue, and a total."""

    def __init__(self, drain: Drain, total: int | None, console: Console) -> None:
        self._drain = drain
        self._total = total
        self._console = console
        self._rates = {(queue.pair.name, queue.queue): RateMeter() for queue in drain.queues}
        self._rate = RateMeter()

    def rendered(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("queue", "state", "moved", "left", "per second", "in flight", "dead-lettered", "ETA"):
            justify: Literal["left", "right"] = "left" if heading in ("queue", "state") else "right"
            table.add_column(heading, justify=justify, no_wrap=True)
        queues = self._drain.queues
        names = [queue.queue for queue in queues]
        shown = names if self._console.width >= WIDE else short_queue_names(names)
        every_total = [self._drain.live(queue) for queue in queues]
        rows = []
        for queue, name, totals in zip(queues, shown, every_total, strict=True):
            rate = self._rates[queue.pair.name, queue.queue].at(totals.moved)
            rows.append((queue.state.is_final, _cells(name, queue.state.value, totals, queue.expected, rate)))
        # A table that is higher than the terminal would lose its end: queues that are done give way first.
        most = max(1, self._console.height - OTHER_LINES)
        for _, cells in sorted(rows, key=lambda row: row[0])[:most]:
            table.add_row(*map(_text, cells))
        total = Totals.total(every_total)
        rate = self._rate.at(total.moved)
        table.add_row(*_cells("all", "", total, self._total, rate), style="bold")
        more = len(rows) - most
        lines = [_text(f"  … and {more} more queues")] if more > 0 else []
        return Group(table, *lines, *self._notes(total))

    def _notes(self, total: Totals) -> Iterator[Text]:
        """The lines below the table."""
        if self._drain.is_stopping:
            waits = plural(total.in_hand, "message") + " in hand" if total.in_hand else "its jobs to end"
            yield _text(
                f"Stopping: the drain waits for {waits}. Messages in hand are finished or given back. "
                "Ctrl-C again leaves at once; nothing is lost either way.",
                style="bold yellow",
            )
        notes = [
            f"  {queue.queue}: {queue.error}"
            for queue in self._drain.queues
            if queue.error and not queue.state.is_final
        ]
        notes += [
            f"  {destination.path} backs off for {destination.seconds:.0f} s: {destination.reason}"
            for destination in self._drain.backing_off()
        ]
        for note in list(dict.fromkeys(notes))[:MOST_NOTES]:
            line = _text(note, style="yellow")
            line.truncate(self._console.width, overflow="ellipsis")
            yield line


def _text(text: str, style: str = "") -> Text:
    """The text as it is: rich would read [brackets] in a plain string as its own markup, and fails on some."""
    return Text(printable(text), style=style)


def _cells(name: str, state: str, totals: Totals, expected: int | None, rate: float) -> list[str]:
    left = None if expected is None else max(0, expected - totals.moved)
    return [
        name,
        state,
        f"{totals.moved:,}",
        "?" if left is None else f"{left:,}",
        f"{rate:,.0f}",
        f"{totals.in_hand:,}",
        f"{totals.dead_lettered:,}",
        eta(left, rate),
    ]


def eta(left: int | None, rate: float) -> str:
    """The time that the rest will take, as far as it is known."""
    if left == 0:
        return ""
    if left is None or rate < 0.5:
        return "?"
    seconds = round(left / rate)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class _Lines:
    """Writes one JSON object about once a second, and only if something has changed."""

    def __init__(self, drain: Drain, total: int | None) -> None:
        self._drain = drain
        self._total = total
        self._rate = RateMeter()
        self._written_at = 0.0
        self._last: dict[str, Any] = {}

    def write(self) -> None:
        now = time.monotonic()
        if now - self._written_at < LINE_EVERY:
            return
        self._written_at = now
        line = self._line()
        if line != self._last:
            print(json.dumps({"progress": line}), file=sys.stderr, flush=True)
        self._last = line

    def _line(self) -> dict[str, Any]:
        queues = []
        moved = 0
        for queue in self._drain.queues:
            totals = self._drain.live(queue)
            moved += totals.moved
            queues.append(
                {
                    "pair": queue.pair.name,
                    "queue": queue.queue,
                    "state": queue.state.value,
                    "error": queue.error,
                    "moved": totals.moved,
                    "left": None if queue.expected is None else max(0, queue.expected - totals.moved),
                    "in_flight": totals.in_hand,
                    "dead_lettered": totals.dead_lettered,
                }
            )
        rate = self._rate.at(moved)
        left = None if self._total is None else max(0, self._total - moved)
        return {
            "moved": moved,
            "left": left,
            "per_second": round(rate, 1),
            "eta": eta(left, rate),
            "queues": queues,
            "waiting": [destination._asdict() for destination in self._drain.backing_off()],
        }
