"""The drain of one queue: what it says of the messages that do not match. What peeks find is given (X2, X7)."""

from __future__ import annotations

from typing import cast

from syphon.model import Interrupted
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.emptiness import EmptinessCheck, PeekCount
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import DrainEvent, DrainState
from syphon.worker.drain.result import DrainResult
from syphon.worker.pausable_gate import PausableGate
from tests.unit.worker.test_pair_drain import PAIR


class Peeks:
    """A queue with matching messages, and others."""

    def __init__(self, wanted: int, others: int = 0) -> None:
        self._found = PeekCount(wanted, others)

    def count(self, *_: object) -> PeekCount:
        return self._found


def peeked(wanted: int, others: int = 0) -> QueueDrain:
    queue = QueueDrain(PAIR, "q", DrainOptions(), PausableGate("contoso"), None)
    queue.peek(cast(EmptinessCheck, Peeks(wanted, others)))
    return queue


def test_a_queue_without_a_matching_message_says_how_many_others_it_has() -> None:  # X2, X7
    queue = peeked(wanted=0, others=7)
    queue.count_rest(cast(EmptinessCheck, None))
    assert (queue.state, queue.remaining, queue.others) == (DrainState.EMPTY, 0, 7)
    assert DrainResult((queue,), 1.0).has_no_match  # the filter may be mistaken


def test_a_queue_that_is_really_empty_is_no_mistake_of_the_filter() -> None:  # X2
    assert not DrainResult((peeked(wanted=0, others=0),), 1.0).has_no_match


def test_a_peek_that_finds_a_message_has_not_counted_the_others() -> None:  # X7
    assert peeked(wanted=1, others=3).others is None  # the count ended early


def test_the_last_error_stays_when_a_drain_ends_without_one() -> None:  # X2
    queue = peeked(wanted=1)
    queue.error = str(Interrupted("The connection was lost."))
    queue.happened(DrainEvent.HELD_UP)
    assert queue.error == "The connection was lost."
    queue.happened(DrainEvent.BROKEN, "Spark is gone.")
    assert queue.error == "Spark is gone."
