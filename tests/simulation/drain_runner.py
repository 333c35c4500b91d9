"""A drain as the thing under test: one is run after another until the backlog is empty, as an operator does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from syphon.config import PairSettings, SideSettings
from syphon.control.protocol import HandOver
from syphon.model import SessionOrder
from syphon.servicebus import Connection
from syphon.spark.jobs import JobResult, new_job
from syphon.transfer import DestinationBackoff, PumpOptions
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.emptiness import EmptinessCheck
from syphon.worker.drain.pair_drain import PairDrain
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.drain.shared_limit import SharedLimit
from syphon.worker.pausable_gate import PausableGate

from .connections import connect_and_wait
from .control import SimulatedControl
from .incident import SimulatedFault
from .spark import PAIR, SimulatedSpark, strike_spark
from .threads import SimulatedProcess

if TYPE_CHECKING:
    from .world import World

AGAIN = 5.0
"""Seconds until the next drain."""


class WatchedQueueDrain(QueueDrain):
    """Tells the checker which messages a peek must have seen."""

    world: World

    def peek(self, emptiness: EmptinessCheck) -> None:
        before = self.world.messages_in(self.queue)
        super().peek(emptiness)
        if self.state is DrainState.EMPTY:
            self.world.checker.proven_empty(self.queue, before)


class DrainJobs:
    """Jobs on a simulated Spark: as much of `Jobs` as a drain uses."""

    def __init__(self, spark: SimulatedSpark, job_ended: Callable[[], None], keeps_order: bool) -> None:
        self._session_order = SessionOrder.KEPT if keeps_order else None
        self._spark = spark
        self._job_ended = job_ended
        self.most_slots = spark.most_slots

    def run(
        self,
        _: PairSettings,
        queues: list[HandOver],
        options: list[PumpOptions],
        backing_off: tuple[DestinationBackoff, ...],
        *,
        rate: float | None,
    ) -> JobResult:
        options = [replace(each, session_order=self._session_order) for each in options]
        result = self._spark.run(tuple(queues), options, backing_off, new_job())
        self._job_ended()
        return result


class SimulatedDrain:
    """One drain, from its start to its end or to its crash."""

    def __init__(self, world: World, runner: DrainRunner) -> None:
        self._world = world
        self._runner = runner
        self.process = process = SimulatedProcess(world.time, world.network, world.clock)
        self.control = SimulatedControl(world.time, world.clock)
        self.spark = SimulatedSpark(world, process, self.control)
        backoffs = PausableGate("contoso", now=world.clock.now)
        incident = world.incident
        options = DrainOptions()
        self._after_job: dict[str, set[str]] = {}
        self.queues: list[QueueDrain] = []
        for queue in world.queues:
            drain = WatchedQueueDrain(PAIR, queue, options, backoffs, None, now=world.clock.now)
            drain.world = world
            self.queues.append(drain)
        self.stopping = process.runtime.event()
        self._drain = PairDrain(
            PAIR,
            self.queues,
            options,
            backoffs=backoffs,
            limit=SharedLimit(None, 1),
            stopping=self.stopping,
            now=world.clock.now,
            lease=incident.lease or 60.0,
        )
        self._drain._emptiness = EmptinessCheck(PAIR.secondary, self._connected)
        process.spawn(self._run, "drain")

    @contextmanager
    def _connected(self, _: SideSettings, __: str) -> Iterator[Connection]:
        connection = connect_and_wait(self.process, "contoso-dr")
        try:
            yield connection
        finally:
            connection.close()

    def _run(self) -> None:
        jobs = DrainJobs(self.spark, self._note_messages, self._world.incident.keeps_order)
        self._drain._run(jobs)  # type: ignore[arg-type]  # as much of `Jobs` as a drain uses
        self._drain.finish()
        came_to_its_end = all(queue.state in (DrainState.EMPTY, DrainState.MORE_CAME) for queue in self.queues)
        for queue in self.queues:
            if came_to_its_end and queue.state is DrainState.EMPTY and not queue.error:
                self._world.checker.proven_empty(queue.queue, self._after_job.get(queue.queue, set()))
            self._world.checker.check_balance(queue.totals)
            self._world.note("drained", f"{queue.queue}: {queue.state} {queue.error} {queue.remaining}")
        self._world.checker.drained(all(queue.state is DrainState.EMPTY for queue in self.queues))
        self._runner.ended(self)

    def _note_messages(self) -> None:
        """What is in the queues when a job has ended: a drain must look once more before it calls them empty."""
        self._after_job = {queue.queue: self._world.messages_in(queue.queue) for queue in self.queues}

    def crash(self, silently: bool, with_slots: bool) -> None:
        self.control.is_gone = True
        self.process.crash(silently)
        if with_slots:
            self.spark.kill_all(silently)


class DrainRunner:
    """Runs one drain after another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._drain: SimulatedDrain | None = None
        self._lives: list[SimulatedDrain] = []

    def start(self) -> None:
        self._world.time.call_at(0.0, self._start)

    def _start(self) -> None:
        self._world.note("drain started", "")
        self._drain = SimulatedDrain(self._world, self)
        self._lives.append(self._drain)

    def ended(self, drain: SimulatedDrain) -> None:
        if drain is self._drain:
            self._drain = None
            self._world.time.call_later(0.0, drain.crash, False, True)
            self._world.time.call_later(AGAIN, self._start)

    def crash(self, silently: bool) -> None:
        if self._drain is not None:
            self._drain.crash(silently, with_slots=silently or self._world.rng.random() < 0.5)
            self._drain = None
            self._world.time.call_later(AGAIN, self._start)

    def stand_still(self, seconds: float) -> None:
        if self._drain is not None:
            slots = [attempt.process for attempt in self._drain.spark.attempts]
            self._world.rng.choice([self._drain.process, *slots]).stand_still(seconds)

    def strike(self, fault: SimulatedFault) -> None:
        if self._drain is not None and not strike_spark(self._drain.spark, fault):
            self._drain.stopping.set()

    def is_in_flight(self, lock_token: bytes) -> bool:
        attempts = [attempt for drain in self._lives for attempt in drain.spark.all_attempts]
        return any(attempt.is_in_flight(lock_token) for attempt in attempts)

    def end(self) -> None:
        for drain in self._lives:
            drain.crash(False, with_slots=True)
