"""What a loop is measured with: messages, time, and the CPU time and memory of its processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from bench.usage import cpu, peak_megabytes


@dataclass(frozen=True)
class Taken:
    """What a loop took; how a loop in a process of its own tells it."""

    moved: int
    seconds: float
    """To the last message."""
    steady_per_second: float
    """From the first to the last."""
    cpu: float
    megabytes: float
    stopped: str = ""
    """The error that ended it."""


class Watch:
    """Counts what has arrived, and remembers when the first did."""

    def __init__(self) -> None:
        self.moved = 0
        self.stopped = ""
        self._first = 0
        self._first_at = self._last_at = 0.0
        self._taken: Taken | None = None
        self._process = os.getpid()
        self.begin()

    def begin(self, process: int | None = None) -> None:
        """It counts from here, what had to be started once is not a part of it; and counts that process's tree."""
        self._process = process or self._process
        self._began, self._cpu = time.monotonic(), cpu(self._process)

    def add(self, count: int) -> None:
        if count:
            self._last_at = time.monotonic()
        if not self.moved:
            self._first, self._first_at = count, self._last_at
        self.moved += count

    def end(self) -> Taken:
        """It counts no more: what is to be measured must still be alive."""
        if self._taken is None:
            seconds = (self._last_at or time.monotonic()) - self._began
            steady = (self.moved - self._first) / (self._last_at - self._first_at) if self.moved > self._first else 0.0
            used = cpu(self._process) - self._cpu
            self._taken = Taken(self.moved, seconds, steady, used, peak_megabytes(self._process), self.stopped)
        return self._taken
