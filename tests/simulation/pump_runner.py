"""A single pump as the thing under test: it is started when there are messages, and again after a crash."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syphon.model import Outcome, SessionOrder, SyphonError
from syphon.time_budget import PUMP_TICK
from syphon.transfer import Pump, PumpOptions

from .connections import simulated_namespace
from .incident import SimulatedFault
from .scheduler import ProcessClock
from .threads import SimulatedProcess

if TYPE_CHECKING:
    from .world import World

RESTART = 1.0
"""Seconds between two looks for messages: a ring, or the restart of a process that has crashed."""
QUIET = 3.0


def holds(pump: Pump, lock_token: bytes) -> bool:
    """Whether a pump has the message with this lock in flight."""
    return any(
        arrival.lock_token == lock_token for queue in pump.queues.values() for arrival in queue.unsettled.transfers
    )


def next_look(pump: Pump) -> Callable[[], float]:
    """When a pump next has something to do without traffic: a message may be sent, or locks have to be checked."""
    return lambda: 0.0 if pump.is_paced else pump._ticked_at + PUMP_TICK


class PumpRunner:
    """Runs one pump after another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clock = ProcessClock(world.time, world.incident.drift)
        self._process: SimulatedProcess | None = None
        self._pump: Pump
        self._known: list[tuple[float, Any]] = []

    def start(self) -> None:
        self._world.time.call_at(0.0, self._look)

    def strike(self, fault: SimulatedFault) -> None:
        raise NotImplementedError(f"a pump alone has no {fault.kind}")

    def is_in_flight(self, lock_token: bytes) -> bool:
        """Whether a running pump has the message with this lock in flight."""
        return self._process is not None and holds(self._pump, lock_token)

    def crash(self, silently: bool) -> None:
        if self._process is not None:
            self._process.crash(silently)
            self._process = None

    def stand_still(self, seconds: float) -> None:
        if self._process is not None:
            self._process.stand_still(seconds)

    def end(self) -> None:
        self.crash(False)

    def _look(self) -> None:
        """Looks for messages every second, as the worker's doorbells do: a pump that runs gets the queue again."""
        world = self._world
        world.time.call_later(RESTART, self._look)
        for queue in world.queues_with_messages():
            if self._process is None:
                self._start_process(queue)
            elif self._pump.accepting and not (queue in self._pump.queues and self._pump.queues[queue].is_served):
                world.note("queue handed over", queue)
                self._pump.serve(queue, deferred=True)

    def _start_process(self, queue: str) -> None:
        world, incident = self._world, self._world.incident
        world.note("pump started", "")
        process = self._process = SimulatedProcess(world.time, world.network, self._clock)
        options = PumpOptions(
            window=incident.window,
            max_links=incident.max_links,
            quiet=QUIET,
            lease=incident.lease,
            grace=10.0,
            linger=incident.linger,
            session_order=SessionOrder.KEPT if incident.keeps_order else None,
        )
        secondary, primary = simulated_namespace(process, "contoso-dr"), simulated_namespace(process, "contoso")
        outcomes: list[Outcome] = []
        pump = self._pump = Pump(
            secondary,
            primary,
            outcomes.append,
            options,
            self._clock.now,
            wait=process.runtime.wait,
            wall=self._clock.wall,
        )
        process.runtime.next_look = next_look(pump)
        pump.serve(queue, deferred=True)
        for until, known in self._known:
            pump.back_off(known._replace(seconds=max(0.0, until - self._clock.now())))

        def run() -> None:
            error: SyphonError | None = None
            try:
                for _ in pump.turns():
                    world.checker.turned(pump, len(outcomes))
            except SyphonError as caught:
                error = caught
            secondary.close()
            primary.close()
            self._ended(pump, error)

        process.spawn(run, "pump")

    def _ended(self, pump: Pump, error: SyphonError | None) -> None:
        self._world.note("pump ended", f"{error or pump.counters}")
        now = self._clock.now()
        self._known = [(now + known.seconds, known) for known in pump.backing_off()]
        self._process = None
