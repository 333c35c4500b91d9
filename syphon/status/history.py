"""What a single snapshot of the worker does not show: rates, the last minutes, and the last success.

A file beside the pauses keeps the time of the last success over a restart. It is a hint for people and alerts: a file
that cannot be read or written is reported once, and nothing else depends on it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from syphon.durable_files import write_state
from syphon.time_budget import LAST_SUCCESS_EVERY

from .snapshot import Throughput

WINDOW = 10.0
"""Seconds over which a rate is taken."""
SPAN = 5
"""Seconds that one count of the history covers."""
SPANS = 120


class RateMeter:
    """Measures how fast a count grows, over the last few seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, count: int) -> float:
        """Takes in a count, and returns its growth per second."""
        now = self._now()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[0][0] < now - WINDOW:
            self._seen.popleft()
        since, first = self._seen[0]
        passed = now - since
        return (count - first) / passed if passed > 0.2 else 0.0


@dataclass(slots=True)
class ThroughputSpan:
    """What happened in a few seconds."""

    forwarded: int = 0
    dead_lettered: int = 0
    backlog: int | None = None
    """Messages in the backlog at its end; None if they were not counted."""
    unreachable: bool = False
    """Whether a namespace was unreachable at its end."""


class ThroughputHistory:
    """Keeps the growth of the totals, and the size of the backlog, in spans of a few seconds."""

    def __init__(self, began: float) -> None:
        self._spans: deque[ThroughputSpan] = deque([ThroughputSpan()], maxlen=SPANS)
        self._number = int(began // SPAN)
        self._totals = (0, 0)

    def add(
        self, now: float, forwarded: int, dead_lettered: int, backlog: int | None, unreachable: bool = False
    ) -> None:
        """Takes in the totals and the backlog at a moment, and whether a namespace is unreachable."""
        number = int(now // SPAN)
        for _ in range(min(number - self._number, SPANS)):
            self._spans.append(ThroughputSpan())
        self._number = max(number, self._number)  # after a clock has stepped back, the current span continues
        current = self._spans[-1]
        current.forwarded += forwarded - self._totals[0]
        current.dead_lettered += dead_lettered - self._totals[1]
        current.backlog, current.unreachable = backlog, unreachable
        self._totals = forwarded, dead_lettered

    def throughput(self) -> Throughput:
        return Throughput(
            seconds=SPAN,
            forwarded=[span.forwarded for span in self._spans],
            dead_lettered=[span.dead_lettered for span in self._spans],
            backlog=[span.backlog for span in self._spans],
            unreachable=[span.unreachable for span in self._spans],
        )


log = logging.getLogger(__name__)

_TIMES = TypeAdapter(dict[str, float])


class LastSuccess:
    """Remembers the last success of each pair, in seconds since 1970."""

    def __init__(self, state_file: Path | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """Without the file that keeps the pauses, a restart forgets it."""
        self._file = None if state_file is None else state_file.with_name(f"{state_file.stem}-last-success.json")
        self._now = now
        self._times = self._read()
        self._written_at = now()
        self._is_written = True
        self._has_failed = False

    def of(self, pair: str) -> float | None:
        return self._times.get(pair)

    def succeeded(self, pair: str, wall: float) -> None:
        """A message of the pair was forwarded."""
        self._times[pair], self._is_written = wall, False
        if self._now() - self._written_at >= LAST_SUCCESS_EVERY:
            self.write()

    def write(self) -> None:
        """Write the times that changed since the last write."""
        if self._file is None or self._is_written:
            return
        self._written_at, self._is_written = self._now(), True
        try:
            write_state(self._file, _TIMES.dump_json(self._times, indent=2).decode())
        except OSError as error:
            if not self._has_failed:
                log.warning(
                    "the time of the last success will not survive a restart: cannot write %s: %s", self._file, error
                )
            self._has_failed = True

    def _read(self) -> dict[str, float]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            return _TIMES.validate_json(self._file.read_bytes())
        except (OSError, ValidationError) as error:
            log.warning(
                "the time of the last success is unknown: cannot read %s (%s)", self._file, type(error).__name__
            )
            return {}
