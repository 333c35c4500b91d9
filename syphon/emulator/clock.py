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


class MovableClock(EmulatorClock, Protocol):
    """The clock of a whole emulator: people and tests can move it."""

    def advance(self, seconds: float) -> None:
        """Moves the time forward. What is due until then happens in its order, each at its time."""


class SystemClock:
    """The time of the machine, with asyncio's timers, and ahead of it once it was moved."""

    def __init__(self) -> None:
        self._ahead: Millis = 0
        self._timers: set[_SystemTimer] = set()

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000 + self._ahead

    def call_at(self, when: Millis, callback: Callable[[], None]) -> Timer:
        timer = _SystemTimer(when, callback, self._timers)
        timer.start(when - self.now())
        return timer

    def advance(self, seconds: float) -> None:
        target = self.now() + round(seconds * 1000)
        while due := [timer for timer in self._timers if timer.when <= target]:
            first = min(due, key=lambda timer: timer.when)
            self._ahead += max(0, first.when - self.now())
            first.run()
        self._ahead += max(0, target - self.now())
        for timer in self._timers:
            timer.start(timer.when - self.now())


class _SystemTimer:
    __slots__ = ("_callback", "_handle", "_pending", "when")

    def __init__(self, when: Millis, callback: Callable[[], None], pending: set[_SystemTimer]) -> None:
        self.when = when
        self._callback = callback
        self._pending = pending
        self._handle: asyncio.TimerHandle | None = None
        pending.add(self)

    def start(self, delay: Millis) -> None:
        if self._handle is not None:
            self._handle.cancel()
        # At most one day: asyncio refuses timers centuries ahead, and each callback checks the time again.
        delay = min(max(0, delay), 86_400_000)
        self._handle = asyncio.get_running_loop().call_later(delay / 1000, self.run)

    def cancel(self) -> None:
        self._pending.discard(self)
        if self._handle is not None:
            self._handle.cancel()

    def run(self) -> None:
        self.cancel()
        self._callback()


class FakeClock:
    """A clock that moves only by `advance`. Due timers then run in order."""

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
