"""Virtual time: everything in a simulated incident happens in one thread, in the order of one list of events.

`VirtualTime` is also the event loop that the emulator's connections ask for (`asyncio.get_running_loop`), as far as
they use one: `time`, `call_soon`, `call_later`, `call_at`. There are no sockets and no coroutines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

EPOCH = 1_700_000_000_000
"""The wall clock at the start of every incident, in milliseconds since 1970."""


class Event(list[Any]):
    """A call that happens at its time unless it is cancelled: its time, its number, the call and its arguments.

    It is a list because the heap compares events, and nothing is compared as fast.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]  # connections keep their timers in a set

    def cancel(self) -> None:
        self[2] = None


class VirtualTime:
    """The time of an incident, in seconds since its start, and what happens next."""

    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        """How many events have happened."""
        self._later: list[Event] = []
        self._soon: deque[Event] = deque()
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., Any], *arguments: Any) -> Event:
        event = Event((0.0, 0, call, arguments))
        self._soon.append(event)
        return event

    def call_at(self, when: float, call: Callable[..., Any], *arguments: Any) -> Event:
        self._count += 1
        event = Event((when, self._count, call, arguments))
        heappush(self._later, event)
        return event

    def call_later(self, delay: float, call: Callable[..., Any], *arguments: Any) -> Event:
        self._count += 1
        event = Event((self.now + delay, self._count, call, arguments))
        heappush(self._later, event)
        return event

    def run(self, until: float, is_over: Callable[[], bool]) -> None:
        """Lets events happen in their order, until that time or until `is_over` says so after an event."""
        soon, later = self._soon, self._later
        while True:
            if soon:
                call, arguments = soon.popleft()[2:]
            elif later and later[0][0] <= until:
                when, _, call, arguments = heappop(later)
                if when > self.now:
                    self.now = when
            else:
                self.now = until
                return
            if call is not None:
                self.steps += 1
                call(*arguments)
                if is_over():
                    return

    @contextmanager
    def as_event_loop(self) -> Iterator[None]:
        """Makes this the event loop that the emulator's connections find."""
        asyncio._set_running_loop(self)  # type: ignore[arg-type]  # as much of a loop as the connections use
        try:
            yield
        finally:
            asyncio._set_running_loop(None)


class BrokerClock:
    """The wall clock of a broker: it may be ahead of the syphon's, or behind it."""

    def __init__(self, time: VirtualTime, ahead: float = 0.0) -> None:
        self._time = time
        self._start = start = EPOCH + round(ahead * 1000)
        # Clocks are read more often than anything else is called: a function costs less than a method.
        self.now: Callable[[], int] = lambda: start + int(time.now * 1000 + 1e-6)

    def seconds(self) -> float:
        return self.now() / 1000

    def call_at(self, when: int, callback: Callable[[], None]) -> Event:
        return self._time.call_at((when - self._start) / 1000, callback)


class ProcessClock:
    """The clocks of a syphon's process: a monotonic one that runs too fast or too slow, and a wall clock."""

    def __init__(self, time: VirtualTime, rate: float = 1.0) -> None:
        self.rate = rate
        self.now: Callable[[], float] = lambda: 1000.0 + time.now * rate
        self.wall: Callable[[], int] = lambda: EPOCH + int(time.now * rate * 1000)

    def seconds(self) -> float:
        return self.wall() / 1000
