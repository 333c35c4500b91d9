"""The drain of a pair, without Spark and without a network: what jobs do and what peeks find is given (X2)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from syphon.amqp import data_section
from syphon.backlog import to_backlog
from syphon.config import PairSettings
from syphon.control import HandOver, QueueReport, SlotReport
from syphon.model import DestinationDisabled, DestinationError, ExitCode, Faulted, Interrupted, SyphonError
from syphon.operations.drain_summary import exit_code_of, verdict_of
from syphon.servicebus import MessageState, Peeked
from syphon.spark import JobResult, Jobs
from syphon.transfer import DestinationBackoff
from syphon.worker.drain import pair_drain, result
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.emptiness import PeekCount
from syphon.worker.drain.pair_drain import LOCKED_ELSEWHERE, PairDrain
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.drain.result import DrainResult
from syphon.worker.drain.shared_limit import SharedLimit
from syphon.worker.pausable_gate import PausableGate

PATIENCE = 120.0
PAIR = PairSettings.model_validate(
    {"name": "contoso", "primary": {"namespace": "contoso.example"}, "secondary": {"namespace": "contoso-dr.example"}}
)


class Scene:
    """A clock, two queues with messages that never move, and jobs that take a time of their own."""

    def __init__(self, options: DrainOptions | None = None) -> None:
        self.now = 1000.0
        self.served: list[str] = []
        options = options or DrainOptions(patience=PATIENCE)
        backoffs = PausableGate("contoso")
        self.queues = [QueueDrain(PAIR, name, options, backoffs, None, now=lambda: self.now) for name in "ab"]
        self.drain = PairDrain(
            PAIR,
            self.queues,
            options,
            backoffs=backoffs,
            limit=SharedLimit(None, 1),
            stopping=NoRest(),
            now=lambda: self.now,
        )
        self.drain._emptiness = cast(Any, self)
        self.job_takes = 0.0
        self.result = JobResult(())
        self.most_slots = 1
        self.messages: list[Peeked] | None = None
        """What peeks find; without it, one matching message."""

    def count(self, queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        if self.messages is None:
            return PeekCount(1, 0)
        return PeekCount(min(most, sum(map(wants, self.messages))), 0)

    def run(self, pair: PairSettings, queues: Sequence[HandOver], *more: object, **named: object) -> JobResult:
        self.served += [handed.queue for handed in queues]
        self.now += self.job_takes
        return self.result


class NoRest(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def test_patience_does_not_count_while_jobs_serve_other_queues(monkeypatch: pytest.MonkeyPatch) -> None:  # X2
    monkeypatch.setattr(pair_drain, "MOST_QUEUES", 1)
    scene = Scene()
    scene.job_takes = PATIENCE - 20
    scene.drain._drain(cast(Jobs, scene))
    assert sorted(scene.served) == ["a", "a", "b", "b"]  # each had its patience of two jobs
    assert [queue.state for queue in scene.queues] == [DrainState.STUCK] * 2


def test_patience_begins_with_the_first_job_however_long_spark_took_to_start() -> None:  # X2
    scene = Scene()
    scene.now += 10 * PATIENCE
    scene.job_takes = PATIENCE - 20
    scene.drain._drain(cast(Jobs, scene))
    assert scene.served == ["a", "b"] * 2


class Filling(Scene):
    """Two queues with messages. A job empties those that it serves; then others come, as given for each job."""

    def __init__(self, at_first: dict[str, int], *come: dict[str, int]) -> None:
        super().__init__()
        self.left = Counter(at_first)
        self.come = list(come)
        self.others = 0

    def count(self, queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        return PeekCount(min(most, self.left[queue]), self.others)

    def run(self, pair: PairSettings, queues: Sequence[HandOver], *more: object, **named: object) -> JobResult:
        for handed in queues:
            self.left[handed.queue] = 0
        if self.come:
            self.left.update(self.come.pop(0))
        return super().run(pair, queues)


def test_messages_that_come_into_an_empty_queue_while_others_are_drained_are_moved_too() -> None:  # X2, X7
    scene = Filling({"b": 5}, {"a": 1, "b": 1}, {"a": 1}, {})
    scene.drain._drain(cast(Jobs, scene))
    assert scene.served == ["b", "a", "b", "a"]
    assert scene.left.total() == 0
    assert [queue.state for queue in scene.queues] == [DrainState.EMPTY] * 2


def test_a_drain_ends_beside_senders_that_go_on() -> None:  # X2
    """Each queue gets a message while the other is served: without a last round there would always be one more job."""
    scene = Filling({"a": 1}, *[{"b": 1}, {"a": 1}] * 50)
    scene.drain._drain(cast(Jobs, scene))
    assert len(scene.served) <= 3
    assert sorted(queue.state for queue in scene.queues) == [DrainState.EMPTY, DrainState.MORE_CAME]


def test_messages_that_came_after_their_queue_was_empty_are_counted_and_named() -> None:  # X2, X7
    scene = Filling({"a": 1}, {"b": 1}, {"a": 3, "b": 2}, {})
    scene.drain._drain(cast(Jobs, scene))
    assert scene.left["a"] == 3, "it was empty once, and so was b"
    for queue in scene.queues:
        queue.count_rest(cast(Any, scene))
    result = DrainResult(tuple(scene.queues), 1.0)
    assert [(queue.state, queue.remaining) for queue in scene.queues] == [("more came", 3), ("empty", 0)]
    assert exit_code_of(result, DrainOptions()) is ExitCode.LEFT
    said = "3 messages are in the backlog that arrived after their queue was empty: 0 forwarded. Drain again."
    assert verdict_of(result) == said

    scene.left.clear()  # somebody else has moved them
    for queue in scene.queues:
        queue.count_rest(cast(Any, scene))
    assert [(queue.state, queue.remaining) for queue in scene.queues] == [("empty", 0)] * 2
    assert not all(queue.empty_since for queue in scene.queues), "it did not stay empty"


def test_a_queue_with_messages_that_do_not_match_is_peeked_once() -> None:  # X2
    scene = Filling({"b": 5}, {"a": 1}, {})
    scene.others = 1000
    scene.drain._drain(cast(Jobs, scene))
    assert scene.served == ["b"]


def test_the_last_open_queue_does_not_end_the_drain_before_the_empty_ones_are_peeked() -> None:  # X2, X7
    """The command ends as soon as all states are final: it must not find them so while there are more peeks."""
    scene = Filling({"b": 5}, {"a": 1}, {})
    peeked: list[tuple[str, bool]] = []
    count = scene.count

    def noted(queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        peeked.append((queue, not scene.drain.open_queues))
        return count(queue, wants, most)

    cast(Any, scene).count = noted
    scene.drain.peek()
    scene.drain._drain(cast(Jobs, scene))
    assert scene.served == ["b", "a"]
    assert not any(is_over for _, is_over in peeked)


@pytest.mark.parametrize(
    ("error", "states"),
    [
        (Interrupted("The connection was lost."), [DrainState.EMPTY, DrainState.EMPTY]),
        (DestinationDisabled("It is disabled."), [DrainState.EMPTY, DrainState.EMPTY]),
        (Faulted("The credentials are refused."), [DrainState.EMPTY, DrainState.FAILED]),
    ],
)
def test_an_empty_queue_that_cannot_be_peeked_hides_nothing_and_holds_up_no_other(
    error: SyphonError, states: list[DrainState]
) -> None:  # X2, X7
    scene = Filling({"b": 5}, {"a": 1}, {})
    count, errors = scene.count, [error] if isinstance(error, Interrupted) else [error] * 9

    def failing(queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        if queue == "a" and scene.served and errors:
            raise errors.pop()
        return count(queue, wants, most)

    cast(Any, scene).count = failing
    scene.drain._run(cast(Jobs, scene))
    assert [queue.state for queue in scene.queues] == states
    assert scene.served == (["b", "a"] if isinstance(error, Interrupted) else ["b"])


def test_an_empty_queue_that_fails_in_the_last_round_holds_up_no_other_and_is_not_called_empty() -> None:  # X2, X7
    scene = Filling({"a": 1}, {"b": 1}, {"b": 5}, {})
    count = scene.count

    def failing(queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        if queue == "a" and len(scene.served) > 1:
            raise Interrupted("No answer.")
        return count(queue, wants, most)

    cast(Any, scene).count = failing
    scene.drain._run(cast(Jobs, scene))
    assert scene.served == ["a", "b", "b"]
    for queue in scene.queues:
        queue.count_rest(cast(Any, scene))
    assert [queue.remaining for queue in scene.queues] == [None, 0]
    result = DrainResult(tuple(scene.queues), 1.0)
    assert exit_code_of(result, DrainOptions()) is ExitCode.UNAVAILABLE
    assert "could not be peeked" in verdict_of(result)


class Settling(Scene):
    """Two queues that are empty. Each peek takes some seconds, and one of them loses its connection."""

    def __init__(self, lost_after: float) -> None:
        super().__init__(DrainOptions(patience=PATIENCE, settle=900))
        self.lost_at: float | None = self.now + lost_after

    def count(self, queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        self.now += 5
        if self.lost_at is not None and self.now > self.lost_at:
            self.lost_at = None
            raise Interrupted("The connection was lost.")
        return PeekCount(0, 0)


def test_a_lost_connection_does_not_end_a_drain_that_has_settled_for_longer_than_its_patience() -> None:  # X2, S11
    scene = Settling(lost_after=PATIENCE + 25)
    scene.drain._drain(cast(Jobs, scene))
    assert scene.lost_at is None
    assert [queue.state for queue in scene.queues] == [DrainState.EMPTY] * 2
    assert scene.served == []


def test_what_slots_have_left_counts_for_a_destination_if_its_queues_cannot_be_peeked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # X2, X7
    def unreachable(*_: object) -> None:
        raise Interrupted("The connection broke.")

    monkeypatch.setattr(result, "connected", unreachable)
    scene = Scene()
    scene.queues[0].backoffs.record((DestinationBackoff("Orders", 10.0, "full", 7, 2, DestinationError.FULL),))
    (found,) = result.waiting_destinations(DrainResult(tuple(scene.queues), 1.0))
    assert (found.pair, found.path, found.left, found.error, found.failures) == (
        "contoso",
        "Orders",
        7,
        "DestinationFull",
        2,
    )


def test_no_destination_waits_if_the_queues_hold_nothing_for_it() -> None:  # X2, X7
    scene = Scene()
    scene.queues[0].backoffs.record((DestinationBackoff("orders", 10.0, "full", 7, 2, DestinationError.FULL),))
    for queue in scene.queues:
        queue.remaining = 0
    assert result.waiting_destinations(DrainResult(tuple(scene.queues), 1.0)) == []


@pytest.mark.parametrize(
    ("error", "paths", "is_alone"),
    [
        (DestinationError.MISSING, ["Orders", "orders"], True),
        (DestinationError.DISABLED, ["orders"], True),
        (DestinationError.MISSING, ["orders", "news"], False),
        (DestinationError.FULL, ["orders"], False),
    ],
)
def test_a_queue_only_waits_if_all_its_messages_are_for_destinations_that_need_a_person(
    error: DestinationError, paths: list[str], is_alone: bool
) -> None:  # S4, X2
    scene = Scene()
    scene.messages = [Peeked(to_backlog(data_section(b"x"), path), 1, MessageState.ACTIVE) for path in paths]
    scene.drain.backoffs.record((DestinationBackoff("orders", 10.0, "why", 7, 2, error),))
    assert scene.drain._only_waits(scene.queues[0]) is is_alone


def test_a_drain_whose_primary_is_unreachable_ends_with_the_reason_and_69() -> None:  # X7, D12
    scene = Scene()
    scene.job_takes = PATIENCE - 20
    report = SlotReport(pair="contoso", job="1", slot=0, attempt=0, started_at=0, primary_error="connection refused")
    scene.result = JobResult((report,))
    scene.drain._drain(cast(Jobs, scene))
    for queue in scene.queues:
        queue.remaining = 7
    result = DrainResult(tuple(scene.queues), 1.0)
    said = [(queue.state, queue.error) for queue in scene.queues]
    assert said == [(DrainState.STUCK, "the primary is unreachable: connection refused")] * 2
    assert exit_code_of(result, DrainOptions()) is ExitCode.UNAVAILABLE
    assert verdict_of(result) == (
        "0 forwarded; 14 messages wait in the backlog. The primary is unreachable: connection refused"
    )


@pytest.mark.parametrize(("options", "slots"), [(DrainOptions(), 8), (DrainOptions(slots=2), 2)])
def test_a_deep_backlog_takes_every_place_unless_the_options_leave_some_to_others(
    options: DrainOptions, slots: int
) -> None:  # X6
    class Counting(Scene):
        def run(self, pair: PairSettings, queues: Sequence[HandOver], *more: object, **named: object) -> JobResult:
            self.used = len(cast(Sequence[object], more[0]))
            self.drain._stopping.set()
            return self.result

    scene = Counting(options)
    scene.most_slots = 8
    scene.queues[0].expected = 100_000
    scene.drain._stopping = threading.Event()
    scene.drain._drain(cast(Jobs, scene))
    assert scene.used == slots


def test_messages_that_a_worker_has_locked_are_named_as_the_reason() -> None:  # X7
    """Peeks find them, and no job receives one."""
    scene = Scene()
    scene.job_takes = PATIENCE - 20
    reports = tuple(QueueReport(queue=name) for name in "ab")
    scene.result = JobResult((SlotReport(pair="contoso", job="1", slot=0, attempt=0, started_at=0, queues=reports),))
    scene.drain._drain(cast(Jobs, scene))
    assert [(queue.state, queue.error) for queue in scene.queues] == [(DrainState.STUCK, LOCKED_ELSEWHERE)] * 2
