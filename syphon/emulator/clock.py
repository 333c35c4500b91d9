"""The clock of the emulator.

Every time in the emulator is a whole number of milliseconds since 1970 (UTC), like an AMQP timestamp. Locks, time to
live, schedules, idle links and duplicate windows all use an `EmulatorClock`, so that a test can move the time and never
waits for it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

Millis = int

FOREVER: Millis = 922_337_203_685_477
"""TimeSpan.MaxValue, `P10675199DT2H48M5.4775807S`: Service Bus writes it for "never"."""


class Timer(Protocol):
    """A callback that will run unless it is cancelled."""

    def cancel(self) -> None: ...


class EmulatorClock(Protocol):
    """Returns the time, and calls back at a given time."""

    def now(self) -> Millis: ...

    def call_at(self, when: Millis, callback: Callable[[], None]) -> Timer: ...


class SystemClock:
    """The time of the machine, with asyncio's timers."""

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000

    def call_at(self, when: Millis, callback: Callable[[], None]) -> Timer:
        # At most one day: asyncio refuses timers centuries ahead, and each callback checks the time again.
        delay = min(max(0, when - self.now()), 86_400_000)
        return asyncio.get_running_loop().call_later(delay / 1000, callback)


class FakeClock:
    """A clock that stands still until `advance` moves it. Due timers then run in order."""

    def __init__(self, start: Millis = 1_700_000_000_000) -> None:
        self._now = start
        self._order = itertools.count()
        self._timers: list[tuple[Millis, int, _FakeTimer]] = []

    def now(self) -> Millis:
        return self._now

    def call_at(self, when: Millis, callback: Callable[[], None]) -> Timer:
        timer = _FakeTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        target = self._now + round(seconds * 1000)
        while self._timers and self._timers[0][0] <= target:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            timer.run()
        self._now = target


class _FakeTimer:
    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()
