"""Measures a loop: messages, time, and the CPU time and memory of its processes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from bench.usage import cpu, peak_megabytes


@dataclass(frozen=True)
class Taken:
    """The measurements of a loop, as its process prints them."""

    moved: int
    seconds: float
    """From the start to the last message."""
    steady_per_second: float
    """From the first message to the last."""
    cpu: float
    megabytes: float
    stopped: str = ""
    """The error that ended the loop."""


class Watch:
    """Counts the messages that have arrived, and remembers when the first one did."""

    def __init__(self) -> None:
        self.moved = 0
        self.stopped = ""
        self._first = 0
        self._first_at = self._last_at = 0.0
        self._taken: Taken | None = None
        self._process = os.getpid()
        self.begin()

    def begin(self, process: int | None = None) -> None:
        """Starts the measurement, of this process and its descendants: what was started before does not count."""
        self._process = process or self._process
        self._began, self._cpu = time.monotonic(), cpu(self._process)

    def add(self, count: int) -> None:
        if count:
            self._last_at = time.monotonic()
        if not self.moved:
            self._first, self._first_at = count, self._last_at
        self.moved += count

    def end(self) -> Taken:
        """Ends the measurement. The processes must still be alive."""
        if self._taken is None:
            seconds = (self._last_at or time.monotonic()) - self._began
            steady = (self.moved - self._first) / (self._last_at - self._first_at) if self.moved > self._first else 0.0
            used = cpu(self._process) - self._cpu
            self._taken = Taken(self.moved, seconds, steady, used, peak_megabytes(self._process), self.stopped)
        return self._taken
