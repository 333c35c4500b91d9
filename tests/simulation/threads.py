"""Processes and threads of a simulated incident.

A thread is a greenlet: the product's own blocking code runs in it, and where a real thread would wait, it gives control
back to the scheduler until its time has come or something wakes it. Only one runs at a time, in an order that the
incident alone decides. A process that crashes loses its threads, its memory and its sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

from syphon.servicebus import Runtime
from syphon.servicebus.wire_session import Wire

from .network import Link, Network
from .scheduler import Event, ProcessClock, VirtualTime

SHORTEST_WAIT = 0.2
"""Seconds between two turns without traffic. A pump looks more often while it opens a connection; here the end of the
opening wakes it."""
REACTION = 0.0005
"""Seconds from the arrival of bytes to the turn that reads them: several arrivals are read together."""


def scheduler() -> greenlet:
    """The greenlet that runs all others: the outermost one. A process may be created in a thread of another process."""
    found = getcurrent()
    while found.parent is not None:
        found = found.parent
    return found


class SimulatedThread:
    """One thread of a simulated process: as much of `threading.Thread` as the product uses."""

    def __init__(self, process: SimulatedProcess, run: Callable[[], None], name: str) -> None:
        self.name = name
        self._process = process
        self._time = process.time
        self._run = run
        self._greenlet = greenlet(self._main, process.hub)
        self._ended = SimulatedEvent(process)
        self._next: Event | None = None
        self._next_at = 0.0

    def start(self) -> None:
        self._process.threads[self._greenlet] = self
        self._resume_at(self._time.now)

    def join(self, timeout: float | None = None) -> None:
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def _main(self) -> None:
        try:
            self._run()
        finally:
            self._ended.set()
            self._process.threads.pop(self._greenlet, None)

    def block(self, seconds: float | None) -> None:
        """Waits until it is woken, at most so many seconds of the process's clock. Only in the thread itself."""
        if self._process.is_dead:
            raise GreenletExit
        if seconds is not None:
            self._resume_at(self._time.now + seconds / self._process.clock.rate)
        self._process.hub.switch()

    def wake(self, delay: float = REACTION) -> None:
        """Runs it soon."""
        if not self._process.is_dead:
            self._resume_at(self._time.now + delay)

    def _resume_at(self, when: float) -> None:
        if self._next is not None:
            if self._next_at <= when:
                return
            self._next.cancel()
        self._next_at = when
        self._next = self._time.call_at(when, self._resume)

    def _resume(self) -> None:
        process = self._process
        self._next = None
        if process.is_dead:
            return
        if self._time.now < process.still_until:
            self._resume_at(process.still_until)
            return
        self._greenlet.switch()

    def kill(self) -> None:
        """Ends it where it is. Its process is dead: what it does on the way out reaches no one."""
        if self._greenlet:
            self._greenlet.throw(GreenletExit)


class SimulatedEvent:
    """As much of `threading.Event` as the product uses."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self._is_set = False
        self._waiting: list[SimulatedThread] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for thread in self._waiting:
            thread.wake(0.0)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._is_set or (timeout is not None and timeout <= 0):
            return self._is_set
        thread = self._process.current()
        until = None if timeout is None else self._process.clock.now() + timeout
        self._waiting.append(thread)
        try:
            while not self._is_set:
                left = None if until is None else until - self._process.clock.now()
                if left is not None and left <= 1e-9:
                    break
                thread.block(left)
        finally:
            self._waiting.remove(thread)
        return self._is_set


class SimulatedRuntime(Runtime):
    """The clocks, waits and threads of a simulated process."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self.next_look: Callable[[], float] | None = None
        """When the pump of this process next checks its locks and connections. Until then it need not turn."""
        self.now = process.clock.now  # type: ignore[method-assign]  # one call less, in what is called most
        self.wall = process.clock.wall  # type: ignore[method-assign]

    def cpu(self) -> float:
        return 0.0

    def wait(self, wires: Iterable[Wire], seconds: float) -> None:
        has_failed = False
        for wire in wires:
            wire.flush()
            has_failed = has_failed or wire.failure is not None
        if has_failed:
            seconds = REACTION
        else:
            look = self.next_look() if self.next_look is not None else self.now()
            if look:  # else it paces messages, and its own turn counts
                seconds = max(seconds, SHORTEST_WAIT, look - self.now())
        self._process.current().block(seconds)

    def event(self) -> Any:
        return SimulatedEvent(self._process)

    def thread(self, run: Callable[[], None], name: str) -> Any:
        return SimulatedThread(self._process, run, name)


class SimulatedProcess:
    """A process: threads that share a clock and the sockets that they open."""

    def __init__(self, time: VirtualTime, network: Network, clock: ProcessClock) -> None:
        self.time = time
        self.network = network
        self.clock = clock
        self.is_dead = False
        self.still_until = 0.0
        self.links: list[Link] = []
        self.threads: dict[greenlet, SimulatedThread] = {}
        self.hub = scheduler()
        self.runtime = SimulatedRuntime(self)

    def current(self) -> SimulatedThread:
        """The thread that runs now."""
        thread = self.threads.get(getcurrent())
        if thread is None:
            raise GreenletExit  # the thread of a process that is dead
        return thread

    def spawn(self, run: Callable[[], None], name: str) -> SimulatedThread:
        thread = SimulatedThread(self, run, name)
        thread.start()
        return thread

    def stand_still(self, seconds: float) -> None:
        """The process gets no processor for so many seconds."""
        self.still_until = self.time.now + seconds

    def crash(self, silently: bool = False) -> None:
        """Kills the process. Its machine closes the sockets, unless it was lost too."""
        if self.is_dead:
            return
        self.is_dead = True
        for link in self.links:
            link.socket.forget()
            if silently:
                link.vanish()
            else:
                link.closed_by_client()
        for thread in list(self.threads.values()):
            thread.kill()
        self.threads.clear()
