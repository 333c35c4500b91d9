"""The progress of a drain: a live table on a terminal, JSON lines anywhere else."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syphon.model import by_cause, plural, printable, short_queue_names
from syphon.time_budget import PROGRESS_LINE_EVERY
from syphon.worker import DrainProgress, QueueProgress

from .history import RateMeter

WIDE = 120
"""Terminal width from which the full names of queues fit."""
OTHER_LINES = 10
"""Terminal lines reserved for everything except the rows of queues."""
MOST_NOTES = 4


def is_screen(stream: TextIO) -> bool:
    """Whether a stream is a terminal on which lines can be written over."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def drain_progress() -> Iterator[Callable[[DrainProgress], None]]:
    """Yield a function that shows the progress, for the drain to call."""
    if is_screen(sys.stderr):
        console = Console(stderr=True)
        table = _Table(console)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda progress: live.update(table.rendered(progress), refresh=True)
    else:
        yield _Lines().write


class _Table:
    """A table with a row for each queue, and a total."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rates: dict[tuple[str, str], RateMeter] = defaultdict(RateMeter)
        self._rate = RateMeter()

    def rendered(self, progress: DrainProgress) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("queue", "state", "done", "waiting", "per second", "in flight", "dead-lettered", "ETA"):
            justify: Literal["left", "right"] = "left" if heading in ("queue", "state") else "right"
            table.add_column(heading, justify=justify, no_wrap=True)
        names = [queue.queue for queue in progress.queues]
        shown = names if self._console.width >= WIDE else short_queue_names(names)
        rows = []
        for queue, name in zip(progress.queues, shown, strict=True):
            rate = self._rates[queue.pair, queue.queue].at(queue.moved)
            rows.append((queue.state.is_final, _cells(name, queue.state.value, queue, rate)))
        # A table that is higher than the terminal would lose its end: finished queues are dropped first.
        most = max(1, self._console.height - OTHER_LINES)
        for _, cells in sorted(rows, key=lambda row: row[0])[:most]:
            table.add_row(*map(_text, cells))
        table.add_row(*_cells("all", "", progress, self._rate.at(progress.moved)), style="bold")
        more = len(rows) - most
        lines = [_text(f"  … and {more} more queues")] if more > 0 else []
        return Group(table, *lines, *self._notes(progress))

    def _notes(self, progress: DrainProgress) -> Iterator[Text]:
        """The lines below the table."""
        if progress.is_stopping:
            waits = plural(progress.in_flight, "message") + " in flight" if progress.in_flight else "its jobs to end"
            yield _text(
                f"Stopping: waiting for {waits}. Messages in flight are finished or abandoned. "
                "Press Ctrl-C again to exit now; no message is lost.",
                style="bold yellow",
            )
        troubled = [(queue.queue, queue.error) for queue in progress.queues if not queue.state.is_final and queue.error]
        notes = [f"  {line}" for line in by_cause(troubled)]
        notes += [f"  {pair}: at most {limit}" for pair, limit in progress.limits.items() if limit.is_throttled]
        notes += [
            f"  {each.path} is unavailable: {each.reason.rstrip('.')}; retrying in {each.seconds:.0f} s"
            for each in progress.backing_off
        ]
        for note in list(dict.fromkeys(notes))[:MOST_NOTES]:
            line = _text(note, style="yellow")
            line.truncate(self._console.width, overflow="ellipsis")
            yield line


def _text(text: str, style: str = "") -> Text:
    """Literal text: rich would parse [brackets] in a plain string as markup, and fail on some."""
    return Text(printable(text), style=style)


def _cells(name: str, state: str, counted: DrainProgress | QueueProgress, rate: float) -> list[str]:
    remaining = counted.remaining
    return [
        name,
        state,
        f"{counted.moved:,}",
        "?" if remaining is None else f"{remaining:,}",
        f"{rate:,.0f}",
        f"{counted.in_flight:,}",
        f"{counted.dead_lettered:,}",
        eta(remaining, rate),
    ]


def eta(remaining: int | None, rate: float) -> str:
    """The estimated time until the queue is empty, as far as known."""
    if remaining == 0:
        return ""
    if remaining is None or rate < 0.5:
        return "?"
    seconds = round(remaining / rate)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class _Lines:
    """Write one JSON object about once per second, and only if something has changed."""

    def __init__(self) -> None:
        self._rate = RateMeter()
        self._written_at = 0.0
        self._last: dict[str, Any] = {}

    def write(self, progress: DrainProgress) -> None:
        now = time.monotonic()
        if now - self._written_at < PROGRESS_LINE_EVERY:
            return
        self._written_at = now
        line = self._line(progress)
        if line != self._last:
            print(json.dumps({"progress": line}), file=sys.stderr, flush=True)
        self._last = line

    def _line(self, progress: DrainProgress) -> dict[str, Any]:
        rate = self._rate.at(progress.moved)
        return {
            "moved": progress.moved,
            "remaining": progress.remaining,
            "per_second": round(rate, 1),
            "eta": eta(progress.remaining, rate),
            "limits": [
                {"pair": pair, "per_second": round(limit.per_second or 0.0, 1), "set_by": limit.set_by}
                for pair, limit in progress.limits.items()
            ],
            "queues": [
                {
                    "pair": queue.pair,
                    "queue": queue.queue,
                    "state": queue.state.value,
                    "error": queue.error,
                    "moved": queue.moved,
                    "remaining": queue.remaining,
                    "in_flight": queue.in_flight,
                    "dead_lettered": queue.dead_lettered,
                }
                for queue in progress.queues
            ],
            "waiting": [destination._asdict() for destination in progress.backing_off],
        }
