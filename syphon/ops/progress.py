"""The progress of a drain: a live table on a terminal, JSON lines anywhere else."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syphon.model import printable
from syphon.spark import Totals
from syphon.worker import Drain, QueueDrain

from .throughput import RateMeter

LINE_EVERY = 1.0
"""Seconds between JSON lines."""


@contextmanager
def drain_progress(drain: Drain, total: int | None) -> Iterator[Callable[[], None]]:
    """Yields a function that shows the progress; the drain calls it again and again."""
    if sys.stderr.isatty():
        table = _Table(drain, total)
        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield lambda: live.update(table.rendered(), refresh=True)
    else:
        lines = _Lines(drain, total)
        yield lines.write


class _Table:
    """A table with a row for each queue, and a total."""

    def __init__(self, drain: Drain, total: int | None) -> None:
        self._drain = drain
        self._total = total
        self._rates = {queue.queue: RateMeter() for queue in drain.queues}
        self._rate = RateMeter()

    def rendered(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("queue", "state", "moved", "left", "per second", "in flight", "dead-lettered", "ETA"):
            table.add_column(heading, justify="left" if heading in ("queue", "state") else "right")
        every_total = [self._drain.live(queue) for queue in self._drain.queues]
        for queue, totals in zip(self._drain.queues, every_total, strict=True):
            rate = self._rates[queue.queue].at(totals.moved)
            table.add_row(*map(_text, _cells(queue.queue, _state(queue), totals, queue.expected, rate)))
        total = Totals.total(every_total)
        rate = self._rate.at(total.moved)
        stopping = "stopping" if self._drain.is_stopping else ""
        table.add_row(*_cells("all", stopping, total, self._total, rate), style="bold")
        backing_off = [
            _text(
                f"  {destination.path} backs off for {destination.seconds:.0f} s: {destination.reason}", style="yellow"
            )
            for destination in self._drain.backing_off()
        ]
        return Group(table, *backing_off[:8])


def _text(text: str, style: str = "") -> Text:
    """The text as it is: rich would read [brackets] in a plain string as its own markup, and fails on some."""
    return Text(printable(text), style=style)


def _state(queue: QueueDrain) -> str:
    return f"{queue.state}: {queue.error[:60]}" if queue.error else queue.state.value


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
