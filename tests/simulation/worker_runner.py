"""A whole worker as the thing under test: listener, doorbells, dispatcher, control, and slots on a simulated Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from syphon.control.protocol import HandOver
from syphon.model import SessionOrder
from syphon.servicebus import Pair
from syphon.spark.jobs import JobResult
from syphon.time_budget import BACKSTOP, DISPATCHER_TURN, LINGER, NOTICING_DELAY
from syphon.transfer import DestinationBackoff, Listener, PumpOptions
from syphon.worker.dispatcher import Dispatcher
from syphon.worker.pausable_gate import PausableGate
from syphon.worker.slots import SlotBudget

from .connections import simulated_namespace
from .control import SimulatedControl
from .incident import SimulatedFault
from .spark import SimulatedSpark, strike_spark
from .threads import SimulatedProcess

if TYPE_CHECKING:
    from .world import World

RESTART = 3.0
"""Seconds until a worker that has ended runs again."""
LISTENER_OPENS_WITHIN = 2.5
STOPPING = 25.0
"""Seconds that a worker has to end."""


class SimulatedWorker:
    """One life of a worker, put together as `PairWorker` does it."""

    def __init__(self, world: World, ended: Callable[[SimulatedWorker, object], None]) -> None:
        """`ended` is called with the worker and the reason of its end."""
        incident = world.incident
        self._world = world
        self._ended = ended
        self.process = driver = SimulatedProcess(world.time, world.network, world.clock)
        self.control = SimulatedControl(world.time, world.clock)
        self.spark = SimulatedSpark(world, driver, self.control)
        self.backoffs = PausableGate("contoso", now=world.clock.now)
        self.is_stopping = False
        self.lease = incident.lease or 60.0
        self.pair = Pair(
            simulated_namespace(driver, "contoso", NOTICING_DELAY, LISTENER_OPENS_WITHIN),
            simulated_namespace(driver, "contoso-dr", NOTICING_DELAY, LISTENER_OPENS_WITHIN),
        )
        self.listener = Listener(
            "contoso",
            self.pair,
            world.queues,
            lambda queue, ring: self.dispatcher.ring(queue, ring),
            gate=self.backoffs,
            runtime=driver.runtime,
        )
        self.dispatcher = Dispatcher(
            "contoso",
            world.queues,
            self.listener,
            self.control,
            run_job=self._run_job,
            backoffs=self.backoffs,
            budget=SlotBudget(incident.slots),
            lease=self.lease,
            is_paused=lambda _: False,
            one_slot_per_queue=world.incident.keeps_order and world.incident.seed % 2 == 0,
            background=self._in_the_background,
            now=world.clock.now,
        )
        self.dispatcher.news = driver.runtime.event()
        self.listener.start()
        driver.spawn(self._dispatch, "pair")

    def _dispatch(self) -> None:
        checker, control, dispatcher = self._world.checker, self.control, self.dispatcher
        until: float | None = None
        while not self.pair.has_ended and (until is None or self._world.clock.now() < until):
            dispatcher.turn()
            if dispatcher.failure is not None:
                raise dispatcher.failure
            if self.listener.failure is not None:
                raise self.listener.failure
            if self.is_stopping and until is None:
                until = self._world.clock.now() + STOPPING
                control.stop_all()
                self.listener.silence()
                dispatcher.stop()
            if until is not None and not dispatcher.is_working:
                break
            dispatcher.news.wait(DISPATCHER_TURN)
        checker.check_totals(control)
        self.listener.stop()
        checker.check_pair(self.pair)
        self._ended(self, self.pair.fault)

    def _run_job(
        self, job: str, queues: tuple[HandOver, ...], backing_off: tuple[DestinationBackoff, ...]
    ) -> JobResult:
        incident = self._world.incident
        options = PumpOptions(
            window=incident.window,
            max_links=incident.max_links,
            lease=self.lease + BACKSTOP,
            linger=LINGER,
            session_order=SessionOrder.KEPT if incident.keeps_order else None,
        )
        return self.spark.run(queues, [options], backing_off, job)

    def _in_the_background(self, run: Callable[[], None]) -> None:
        self.process.spawn(run, "spark job")

    def stop(self) -> None:
        self.is_stopping = True

    def crash(self, silently: bool, with_slots: bool) -> None:
        """The driver dies. Its slots die with it, or go on until they notice that it does not answer."""
        self.control.is_gone = True
        self.process.crash(silently)
        if with_slots:
            self.spark.kill_all(silently)


class WorkerLife(Protocol):
    """One life of a worker, from its start to its end or crash."""

    process: SimulatedProcess
    control: SimulatedControl
    spark: SimulatedSpark

    def stop(self) -> None:
        """Tells it to end, as a signal does."""

    def crash(self, silently: bool, with_slots: bool) -> None: ...


class WorkerRunner:
    """Runs a worker, and starts it again when it has ended."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._worker: WorkerLife | None = None
        self._lives: list[WorkerLife] = []

    def start(self) -> None:
        self._world.time.call_at(0.0, self._start)

    def _start(self) -> None:
        self._world.note("worker started", "")
        self._worker = self._new_life()
        self._lives.append(self._worker)

    def _new_life(self) -> WorkerLife:
        return SimulatedWorker(self._world, self.ended)

    def ended(self, worker: WorkerLife, reason: object) -> None:
        self._world.note("worker ended", reason or "")
        if worker is self._worker:
            self._worker = None
            self._world.time.call_later(0.0, worker.crash, False, True)
            self._world.time.call_later(RESTART, self._start)

    def is_in_flight(self, lock_token: bytes) -> bool:
        """Whether a running slot has the message with this lock in flight."""
        attempts = [attempt for worker in self._lives for attempt in worker.spark.all_attempts]
        return any(attempt.is_in_flight(lock_token) for attempt in attempts)

    def crash(self, silently: bool) -> None:
        if self._worker is not None:
            self._worker.crash(silently, with_slots=silently or self._world.rng.random() < 0.5)
            self._worker = None
            self._world.time.call_later(RESTART, self._start)

    def stand_still(self, seconds: float) -> None:
        """The OS pauses one process: the driver, or one that runs slots."""
        worker = self._worker
        if worker is not None:
            slots = [attempt.process for attempt in worker.spark.attempts]
            self._world.rng.choice([worker.process, *slots]).stand_still(seconds)

    def strike(self, fault: SimulatedFault) -> None:
        worker = self._worker
        if worker is None:
            return
        if not strike_spark(worker.spark, fault):
            worker.stop()

    def end(self) -> None:
        if self._worker is not None:
            self._world.checker.check_totals(self._worker.control)
        for worker in self._lives:
            worker.crash(False, with_slots=True)
