"""A worker and a drain leave in the time that their ending has, whatever their slots do. Time is moved here (X9)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from syphon.backlog import QueueName, SelectedQueue
from syphon.config import Config
from syphon.control import FAULTED, STOPPED, ControlServer, Ending
from syphon.control.slot_control import SlotControl
from syphon.model import QueueKey
from syphon.servicebus import Peeked, Runtime, SideFault
from syphon.spark import JobResult, SparkLost, SparkWatch
from syphon.time_budget import WORKER_TURN
from syphon.worker.drain import whole_drain
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.emptiness import PeekCount
from syphon.worker.drain.result import DrainProgress
from syphon.worker.drain.whole_drain import Drain
from syphon.worker.pair_worker import PairFault, PairWorker
from syphon.worker.start_stop import Engine
from syphon.worker.worker import Worker
from tests.support.stub_spark import spark_that_runs
from tests.unit.worker.test_pair_drain import PAIR

QUEUE = QueueName("contoso/x-servicebus-transfer/0")
LOST = SparkLost("Spark's JVM was killed.")
START = 1000.0


class Clock:
    """Takes the place of the module `time`: a sleep moves it."""

    def __init__(self) -> None:
        self.now = START

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < START + 60.0, "it does not end"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(whole_drain, "time", clock)
    return clock


class Watch(SparkWatch):
    """Finds Spark lost from the look with this number on."""

    def __init__(self, lost_at: float = inf) -> None:
        super().__init__()
        self.looks, self.lost_at = 0, lost_at

    @property
    def failure(self) -> SparkLost | None:
        self.looks += 1
        return LOST if self.looks >= self.lost_at else None


# --- the worker ---------------------------------------------------------------------------------------------------


class StubPair:
    """A pair, as far as a worker that leaves uses it."""

    settings, listener, failure, has_worked = PAIR, None, None, True

    def __init__(self, clock: Clock, is_working: bool, fault: SideFault | None = None) -> None:
        self.is_working = is_working
        self.fault = None if fault is None else PairFault(fault, 0.0, 30.0, 30.0)
        self.silenced = self.stopped = inf
        """How many seconds after the start it was told so."""
        self._clock = clock

    def silence(self) -> None:
        self.silenced = self._clock.now - START

    def stop(self) -> None:
        self.stopped = self._clock.now - START


class MovingEvent(threading.Event):
    """A wait moves the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set():
            self._clock.sleep(timeout or 0.0)
        return self.is_set()


class MovingRuntime(Runtime):
    """The runtime of a worker whose waits move the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def event(self) -> threading.Event:
        return MovingEvent(self._clock)


def worker_of(pair: StubPair, clock: Clock) -> Worker:
    worker = Worker(
        Config(pairs=[PAIR]),
        spark_that_runs(),
        cast(ControlServer, SlotControl()),
        ending=Ending(clock.monotonic),
        runtime=MovingRuntime(clock),
    )
    worker.pairs = [cast(PairWorker, pair)]
    return worker


def test_a_worker_that_is_stopped_waits_for_its_slots_as_long_as_their_share(clock: Clock) -> None:  # X9
    pair = StubPair(clock, is_working=True)
    worker = worker_of(pair, clock)
    worker.stop()
    assert worker.run() is None
    assert pair.silenced == 0.0
    assert pair.stopped == pytest.approx(STOPPED.slots, abs=WORKER_TURN)


def test_a_worker_with_a_fault_waits_for_its_slots_as_long_as_their_share(clock: Clock) -> None:  # C1, X9
    pair = StubPair(clock, is_working=True, fault=SideFault("primary", True, "The credentials are refused."))
    reason = worker_of(pair, clock).run()
    assert str(reason).endswith("the worker exits: the primary of contoso: The credentials are refused.")
    assert pair.silenced == pytest.approx(WORKER_TURN)
    assert pair.stopped == pytest.approx(WORKER_TURN + FAULTED.slots, abs=WORKER_TURN)


def test_a_fault_shortens_the_ending_of_a_worker_that_was_told_to_stop(clock: Clock) -> None:  # X9
    pair = StubPair(clock, is_working=True)
    worker = worker_of(pair, clock)
    worker.stop()
    worker._shut_down(LOST, lambda: None)
    assert pair.stopped == pytest.approx(FAULTED.slots, abs=WORKER_TURN)


def test_a_worker_whose_slots_have_ended_leaves_at_once(clock: Clock) -> None:
    pair = StubPair(clock, is_working=False)
    worker = worker_of(pair, clock)
    worker.stop()
    worker.run()
    assert pair.silenced == pair.stopped == 0.0


def test_a_worker_leaves_in_the_turn_in_which_it_cannot_recover_from_the_loss_of_spark(clock: Clock) -> None:  # X9
    pair = StubPair(clock, is_working=False)
    worker = worker_of(pair, clock)
    worker.spark.failure = LOST
    assert worker.run() is LOST
    assert pair.silenced == pair.stopped == pytest.approx(WORKER_TURN)


# --- the drain ----------------------------------------------------------------------------------------------------


class EndlessJob:
    """A drain of a queue with messages, and a job that does not end before the drain has left."""

    most_slots = 1

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.began = inf
        """When the drain was told to end, or lost Spark."""
        self.is_running, self.has_left = threading.Event(), threading.Event()
        self.drain = Drain([SelectedQueue(PAIR, QUEUE)], DrainOptions(), {QueueKey(PAIR.name, QUEUE): 3})
        (pair,) = self.drain._pair_drains
        pair._emptiness = cast(Any, self)
        self.ending = Ending(clock.monotonic)
        self.watch = Watch()

    def count(self, queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        return PeekCount(1, 0)

    def run(self, *arguments: object, **named: object) -> JobResult:
        self.is_running.set()
        self.has_left.wait()
        return JobResult(())

    def seconds_to_leave(self, end: Callable[[], None]) -> float:
        """Ends the drain in the middle of its job. Returns the seconds until it has left."""

        def show(progress: DrainProgress) -> None:
            assert self.is_running.wait(60)
            if self.began == inf:
                self.began = self.clock.now
                end()

        engine = SimpleNamespace(control_server=SlotControl(), jobs=self, ending=self.ending, watch=self.watch)
        try:
            self.drain.run(cast(Engine, engine), show)
            return self.clock.now - self.began
        finally:
            self.has_left.set()


def test_a_drain_that_is_stopped_waits_for_its_slots_as_long_as_their_share(clock: Clock) -> None:  # X9
    scene = EndlessJob(clock)
    assert scene.seconds_to_leave(scene.drain.stop) == pytest.approx(STOPPED.slots, abs=1.0)
    assert scene.drain._lost is None


def test_a_drain_whose_jvm_has_ended_waits_for_its_slots_as_long_as_their_share(clock: Clock) -> None:  # X9
    scene = EndlessJob(clock)

    def lose_spark() -> None:
        scene.watch.lost_at = 0

    assert scene.seconds_to_leave(lose_spark) == pytest.approx(FAULTED.slots, abs=1.0)
    assert scene.drain._lost is LOST
