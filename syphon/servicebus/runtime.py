"""The runtime of a process: its clocks, its waits and its threads. A simulation has another one (D18)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from .connection import wait_for_traffic
from .wire import Wire


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
