"""How a drain is getting on: a live table on a terminal, JSON lines anywhere else."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from syphon.model import harmless
from syphon.spark import Totals
from syphon.worker import Drain, QueueDrain

LINE_EVERY = 1.0
"""Seconds between JSON lines."""
WINDOW = 10.0
"""Seconds over which a rate is taken."""


class Pace:
    """How fast something counts up, over the last few seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, count: int) -> float:
        """Takes in a count; gives back how many a second."""
        now = self._now()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()
        (since, first), span = self._seen[0], now - self._seen[0][0]
        return (count - first) / span if span > 0.2 else 0.0 * since


@contextmanager
def shown(drain: Drain, total: int | None) -> Iterator[Callable[[], None]]:
    """Yields what is to be called now and then."""
    if sys.stderr.isatty():
        table = _Table(drain, total)
        with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
            yield lambda: live.update(table.rendered(), refresh=True)
    else:
        lines = _Lines(drain, total)
        yield lines.write


class _Table:
    """A line for each queue, and a total."""

    def __init__(self, drain: Drain, total: int | None) -> None:
        self._drain = drain
        self._total = total
        self._paces = {queue.queue: Pace() for queue in drain.queues}
        self._pace = Pace()

    def rendered(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for heading in ("queue", "state", "moved", "left", "per second", "in flight", "dead-lettered", "ETA"):
            table.add_column(heading, justify="left" if heading in ("queue", "state") else "right")
        accounts = [self._drain.live(queue) for queue in self._drain.queues]
        for queue, account in zip(self._drain.queues, accounts, strict=True):
            rate = self._paces[queue.queue].at(account.moved)
            table.add_row(*map(_text, _cells(queue.queue, _state(queue), account, queue.expected, rate)))
        total = Totals.total(accounts)
        rate = self._pace.at(total.moved)
        stopping = "stopping" if self._drain.is_stopping else ""
        table.add_row(*_cells("all", stopping, total, self._total, rate), style="bold")
        waiting = [
            _text(f"  {destination.path} waits {destination.seconds:.0f} s: {destination.reason}", style="yellow")
            for destination in self._drain.backing_off()
        ]
        return Group(table, *waiting[:8])


def _text(text: str, style: str = "") -> Text:
    """As it is: in a plain string rich reads [brackets] as its own, and stumbles over some."""
    return Text(harmless(text), style=style)


def _state(queue: QueueDrain) -> str:
    return f"{queue.state}: {queue.error[:60]}" if queue.error else queue.state.value


def _cells(name: str, state: str, account: Totals, hint: int | None, rate: float) -> list[str]:
    left = None if hint is None else max(0, hint - account.moved)
    return [
        name,
        state,
        f"{account.moved:,}",
        "?" if left is None else f"{left:,}",
        f"{rate:,.0f}",
        f"{account.in_hand:,}",
        f"{account.dead_lettered:,}",
        eta(left, rate),
    ]


def eta(left: int | None, rate: float) -> str:
    """How long it will still take, if that can be said."""
    if left == 0:
        return ""
    if left is None or rate < 0.5:
        return "?"
    seconds = round(left / rate)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class _Lines:
    """One JSON object about once a second, and only when there is news."""

    def __init__(self, drain: Drain, total: int | None) -> None:
        self._drain = drain
        self._total = total
        self._pace = Pace()
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
            account = self._drain.live(queue)
            moved += account.moved
            queues.append(
                {
                    "pair": queue.pair.name,
                    "queue": queue.queue,
                    "state": queue.state.value,
                    "error": queue.error,
                    "moved": account.moved,
                    "left": None if queue.expected is None else max(0, queue.expected - account.moved),
                    "in_flight": account.in_hand,
                    "dead_lettered": account.dead_lettered,
                }
            )
        rate = self._pace.at(moved)
        left = None if self._total is None else max(0, self._total - moved)
        return {
            "moved": moved,
            "left": left,
            "per_second": round(rate, 1),
            "eta": eta(left, rate),
            "queues": queues,
            "waiting": [destination._asdict() for destination in self._drain.backing_off()],
        }
