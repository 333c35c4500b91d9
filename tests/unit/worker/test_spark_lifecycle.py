"""Spark on demand: every state and event, and what happens between a ring, the idle timer and a stop (D20, X8)."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest

from syphon.model import SyphonError
from syphon.servicebus import Runtime
from syphon.spark import JobResult
from syphon.time_budget import FIRST_SPARK_RETRY, LONGEST_SPARK_RETRY, LOST_JOBS_END_WITHIN, STARTS_WITHIN
from syphon.worker.spark_lifecycle import TRANSITIONS, SparkEvent, SparkLifecycle, SparkState
from tests.support.stub_spark import StubSpark

IDLE = 60.0
STOPPED, STARTING, RUNNING = SparkState.STOPPED, SparkState.STARTING, SparkState.RUNNING
STOPPING, BACKING_OFF = SparkState.STOPPING, SparkState.BACKING_OFF


class Clock(Runtime):
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time


class Scene:
    """The lifecycle, turned by the test."""

    def __init__(self, idle_shutdown: float = IDLE) -> None:
        self.clock, self.spark, self.is_needed = Clock(), StubSpark(lambda *_, **__: JobResult(())), False
        self.life = SparkLifecycle(self.spark, idle_shutdown, is_needed=lambda: self.is_needed, runtime=self.clock)

    @property
    def state(self) -> SparkState:
        return self.life.view.state

    def after(self, seconds: float) -> SparkState:
        """The state after one turn, so much later."""
        self.clock.time += seconds
        self.life._turn()
        return self.state

    def ring(self, pair: str = "contoso") -> bool:
        """A pair has messages, and asks as a dispatcher does. Returns whether it has a slot now."""
        if self.life.budget.take(pair):
            return True
        self.life.budget.ask(pair)
        return False

    def run_a_job(self) -> JobResult:
        return self.life.run(cast(Any, "contoso"), [], [])

    def start(self) -> None:
        """Spark runs, and one pair has a slot."""
        self.ring()
        assert self.after(0.2) is RUNNING
        assert self.ring()


@pytest.mark.parametrize(("state", "event"), [*product(SparkState, SparkEvent)])
def test_every_state_has_a_way_back_to_running_and_no_event_leads_out_of_the_table(
    state: SparkState, event: SparkEvent
) -> None:
    reachable, before = {state}, set[SparkState]()
    while reachable != before:
        before = set(reachable)
        reachable |= {after for (found, _), after in TRANSITIONS.items() if found in before}
    assert SparkState.RUNNING in reachable
    assert TRANSITIONS.get((state, event)) != state


def test_spark_starts_with_the_first_ring_and_not_before() -> None:  # X8
    scene = Scene()
    assert scene.after(1e6) is STOPPED
    assert not scene.ring()
    assert scene.after(0.2) is RUNNING
    assert scene.ring()
    assert scene.spark.started == 1


def test_spark_stops_after_the_time_without_a_job_and_starts_again() -> None:
    scene = Scene()
    scene.start()
    assert scene.after(10 * IDLE) is RUNNING, "a job runs"
    scene.life.budget.release("contoso")
    assert scene.after(IDLE - 1) is RUNNING
    assert scene.after(1) is STOPPED
    assert scene.spark.stopped == 1
    assert not scene.ring()
    assert scene.after(0.2) is RUNNING
    assert scene.spark.started == 2


def test_a_ring_at_the_moment_of_the_stop_either_keeps_spark_or_starts_it_again() -> None:
    scene = Scene()
    scene.start()
    scene.life.budget.release("contoso")
    scene.clock.time += IDLE
    scene.life.budget.ask("fabrikam")  # between the last look and the stop
    assert not scene.life.budget.close_if_unused()
    assert scene.after(0) is RUNNING
    assert scene.spark.stopped == 0


def test_a_ring_while_spark_stops_is_not_lost() -> None:
    scene = Scene()
    scene.start()
    scene.life.budget.release("contoso")
    scene.spark.when_stopped = scene.ring
    assert scene.after(IDLE) is STOPPED
    assert scene.after(0.2) is RUNNING


def test_spark_starts_at_boot_and_never_stops_if_the_time_is_zero() -> None:
    scene = Scene(idle_shutdown=0)
    assert scene.after(0) is RUNNING
    assert scene.after(1e6) is RUNNING


def test_a_session_of_others_is_never_stopped() -> None:
    scene = Scene()
    scene.spark.is_ours = False
    scene.start()
    scene.life.budget.release("contoso")
    assert scene.after(1e6) is RUNNING
    assert scene.spark.stopped == 0


def test_spark_does_not_stop_while_rows_wait_that_need_it_and_starts_for_them() -> None:
    scene = Scene()
    scene.start()
    scene.life.budget.release("contoso")
    scene.is_needed = True
    assert scene.after(1e6) is RUNNING
    scene.spark.failure = SyphonError("Spark's JVM was killed.")
    assert scene.after(0) is BACKING_OFF
    assert scene.after(FIRST_SPARK_RETRY) is RUNNING


def test_a_spark_that_does_not_start_is_retried_with_growing_pauses_and_stays_in_view() -> None:
    scene = Scene()
    scene.spark.refusal = SyphonError("There is no Java.")
    scene.ring()
    began, pauses = scene.clock.time, []
    for _ in range(9):
        assert scene.after(0) is BACKING_OFF
        view = scene.life.view
        assert (view.error, view.failing_since, view.next_attempt is None) == ("There is no Java.", began, False)
        pauses.append(round((view.next_attempt or 0) - scene.clock.time))
        assert scene.after(pauses[-1] - 0.5) is BACKING_OFF
        scene.clock.time += 0.5
    assert pauses[:3] == [FIRST_SPARK_RETRY, 2 * FIRST_SPARK_RETRY, 4 * FIRST_SPARK_RETRY]
    assert pauses[-1] == LONGEST_SPARK_RETRY
    scene.spark.refusal = None
    assert scene.after(0) is RUNNING
    assert (scene.life.view.error, scene.life.view.failing_since) == ("", None)


def test_a_spark_that_does_not_start_is_not_retried_when_nothing_waits_any_more() -> None:
    scene = Scene()
    scene.spark.refusal = ValueError("a bug\nof two lines")
    scene.ring()
    assert scene.after(0) is BACKING_OFF
    scene.life.budget.withdraw("contoso")
    assert scene.after(1e6) is BACKING_OFF
    assert scene.life.view.error == "ValueError: a bug"


def test_a_lost_spark_starts_again_when_its_jobs_have_ended() -> None:
    scene = Scene()
    scene.start()
    scene.spark.failure = SyphonError("Spark's JVM was killed.")
    assert scene.after(0) is BACKING_OFF
    assert not scene.ring("fabrikam"), "no slot starts on a lost Spark"
    assert scene.after(2 * FIRST_SPARK_RETRY) is BACKING_OFF, "its job has not ended"
    scene.life.budget.release("contoso")
    assert scene.after(0) is RUNNING
    assert scene.ring("fabrikam")


def test_a_spark_that_is_lost_again_and_again_backs_off_until_a_job_has_succeeded() -> None:
    scene = Scene()
    pauses = []
    for turn in range(4):
        scene.start()
        if turn == 2:
            scene.run_a_job()
        scene.life.budget.release("contoso")
        scene.spark.failure = SyphonError("lost")
        scene.after(0)
        pauses.append(round((scene.life.view.next_attempt or 0) - scene.clock.time))
        scene.clock.time += pauses[-1]
    assert pauses == [2, 4, 2, 4]


def test_a_job_that_begins_on_a_lost_spark_fails_and_the_worker_goes_on() -> None:
    scene = Scene()
    scene.start()
    scene.spark.failure = SyphonError("Spark's JVM was killed.")
    scene.after(0)
    assert "Spark's JVM was killed" in scene.run_a_job().error
    assert scene.life.failure is None


def test_a_lost_spark_whose_jobs_hang_ends_the_worker() -> None:
    scene = Scene()
    scene.start()
    scene.spark.failure = SyphonError("The server is unreachable.")
    scene.after(0)
    scene.after(LOST_JOBS_END_WITHIN - 1)
    assert scene.life.failure is None
    scene.after(2)
    assert "The server is unreachable. 1 of its jobs do not end." in str(scene.life.failure)


def test_a_start_that_hangs_is_killed() -> None:
    scene = Scene()
    seen: list[int] = []

    def hang() -> StubSpark:
        for _ in range(2):
            scene.life.check()
            seen.append(scene.spark.killed)
            scene.clock.time += STARTS_WITHIN + 1
        raise SyphonError("killed")

    scene.spark.start = hang  # type: ignore[method-assign]
    scene.ring()
    assert scene.after(0) is BACKING_OFF
    assert seen == [0, 1]


def test_the_end_of_the_worker_kills_a_start_and_it_is_no_failure() -> None:
    scene = Scene()

    def start() -> StubSpark:
        scene.life.end()
        raise SyphonError("killed")

    scene.spark.start = start  # type: ignore[method-assign]
    scene.ring()
    scene.after(0)
    assert scene.spark.killed == 1
    assert scene.life.view.error == ""


def test_the_end_of_the_worker_stops_a_spark_that_runs() -> None:  # X9
    scene = Scene()
    scene.start()
    scene.life.stop(lambda: 1.0)
    assert scene.spark.stopped == 1
