"""A drain that settles: a queue is empty only if it stays so, because Service Bus may show a message late (S11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import syphon
from syphon.worker import DrainProgress
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.emptiness import EmptinessCheck, PeekCount
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import DrainState
from tests.support.processes import EmulatedPair, aliased, emulated_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Peeks:
    """A queue with so many messages."""

    messages = 0

    def count(self, *_: object) -> PeekCount:
        return PeekCount(min(self.messages, 1), 0)


def test_a_queue_is_empty_when_it_has_been_so_for_the_whole_time() -> None:  # S11
    clock, peeks = Clock(), Peeks()
    nothing: Any = None
    queue = QueueDrain(nothing, "q", DrainOptions(settle=900), nothing, 0, now=clock.monotonic)

    def state_after(seconds: float, messages: int) -> DrainState:
        clock.now += seconds
        peeks.messages = messages
        queue.peek(cast(EmptinessCheck, peeks))
        return queue.state

    assert state_after(0, 0) is DrainState.SETTLING
    assert state_after(899, 0) is DrainState.SETTLING
    assert state_after(0.5, 1) is DrainState.CHECKING  # it showed up late, and the time starts again
    assert state_after(1, 0) is DrainState.SETTLING
    assert state_after(899, 0) is DrainState.SETTLING
    assert state_after(1, 0) is DrainState.EMPTY


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        yield pair


class Enough(Exception):
    """Stops the drain."""


def test_a_message_that_shows_up_late_is_forwarded_by_the_drain_that_waits(  # S11
    pair: EmulatedPair, spark: SparkSession
) -> None:
    pair.put([aliased(1, "orders")])
    late = iter([aliased(2, "orders")])

    def watch(progress: DrainProgress) -> None:
        if {queue.state for queue in progress.queues} == {DrainState.SETTLING}:
            pair.put(list(late), index=1)
        if progress.moved == 2:
            raise Enough

    with pytest.raises(Enough):
        syphon.drain(pair.config(), spark, settle="1h", progress=watch)
    assert pair.arrived("orders") == Counter(["m1", "m2"])
