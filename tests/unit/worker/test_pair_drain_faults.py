"""The drain of a pair ends for each of its queues, whatever happens. Without Spark and without a network (X2, C3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from syphon.config import PairSettings
from syphon.control import HandOver, SlotReport
from syphon.model import Faulted, SyphonError
from syphon.servicebus import Peeked, SideFault
from syphon.spark import JobResult, Jobs
from syphon.worker.drain.emptiness import PeekCount
from syphon.worker.drain.queue_state import DrainEvent, DrainState
from tests.unit.worker.test_pair_drain import Scene

REFUSED = "The credentials are refused."


class Failing(Scene):
    """A peek or a job fails. The second queue is empty, so that only the first one is open then."""

    def __init__(self, of_peek: Exception | None = None, of_job: Exception | SideFault | None = None) -> None:
        super().__init__()
        self.of_peek = of_peek
        self.of_job = of_job
        self.queues[1].happened(DrainEvent.PROVEN_EMPTY)

    def count(self, queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        if self.of_peek is not None:
            raise self.of_peek
        return PeekCount(1 if queue == "a" else 0, 0)

    def run(self, pair: PairSettings, queues: Sequence[HandOver], *more: object, **named: object) -> JobResult:
        if isinstance(self.of_job, Exception):
            raise self.of_job
        report = SlotReport(pair="contoso", job="1", slot=0, attempt=0, started_at=0, queues=(), fault=self.of_job)
        return JobResult((report,))

    def states(self) -> list[tuple[DrainState, str, SideFault | None]]:
        return [(queue.state, queue.error, queue.fault) for queue in self.queues]


def test_a_slot_whose_side_is_faulted_fails_the_queues_that_are_open() -> None:  # C1, C3
    """Without that the drain would wait forever: only final states end it."""
    fault = SideFault.of("primary", Faulted(REFUSED))
    scene = Failing(of_job=fault)
    scene.drain._run(cast(Jobs, scene))
    assert scene.states() == [(DrainState.FAILED, REFUSED, fault), (DrainState.EMPTY, "", None)]


def test_a_secondary_that_refuses_a_peek_fails_the_queues_that_are_open() -> None:  # C3
    scene = Failing(of_peek=Faulted(REFUSED))
    scene.drain._run(cast(Jobs, scene))
    assert scene.states() == [
        (DrainState.FAILED, REFUSED, SideFault.of("secondary", Faulted(REFUSED))),
        (DrainState.EMPTY, "", None),
    ]


def test_a_job_that_cannot_be_run_fails_the_queues_that_are_open_and_is_no_fault_of_a_namespace() -> None:  # X2
    scene = Failing(of_job=SyphonError("Spark is gone."))
    scene.drain._run(cast(Jobs, scene))
    assert scene.states() == [(DrainState.FAILED, "Spark is gone.", None), (DrainState.EMPTY, "", None)]


def test_an_unexpected_error_fails_the_queues_too_and_is_not_hidden() -> None:  # X2
    scene = Failing(of_job=KeyError("slot"))
    with pytest.raises(KeyError):
        scene.drain._run(cast(Jobs, scene))
    assert scene.states()[0][:2] == (DrainState.FAILED, "KeyError: 'slot'")
