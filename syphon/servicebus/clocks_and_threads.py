"""The clocks, waits and threads of a process. A simulation has its own (D18)."""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable, Iterable

from .wire_session import Wire

# Not select(): in a process with a thousand open files it cannot watch further sockets.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)

Wait = Callable[[Iterable[Wire], float], None]
"""Waits for traffic on wires: `wait_for_traffic`, or what a simulation does instead."""


def wait_for_traffic(wires: Iterable[Wire], seconds: float) -> None:
    """Writes pending frames, then waits until a socket can be read or written.

    Returns at once if bytes are already decrypted, or a wire has failed. Without wires it only waits.
    """
    wires = list(wires)
    if not wires:
        time.sleep(seconds)
        return
    for wire in wires:
        wire.flush()
    with _Selector() as waiting:
        for wire in wires:
            if wire.failure is not None or wire.has_unread():
                return
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.wants_to_write() else 0)
            waiting.register(wire, events)
        waiting.select(seconds)


class Runtime:
    """The real clocks, waits and threads."""

    def now(self) -> float:
        """The monotonic clock, in seconds: for waits and deadlines."""
        return time.monotonic()

    def wall(self) -> int:
        """The wall clock, in milliseconds since 1970: for what is recorded."""
        return time.time_ns() // 1_000_000

    def cpu(self) -> float:
        """The seconds of CPU that this thread has used."""
        return time.thread_time()

    def wait(self, wires: Iterable[Wire], seconds: float) -> None:
        """Waits until there is traffic on a wire, but not longer than `seconds`."""
        wait_for_traffic(wires, seconds)

    def event(self) -> threading.Event:
        return threading.Event()

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """A thread that is not started yet."""
        return threading.Thread(target=run, name=name, daemon=True)


RUNTIME = Runtime()
