"""What a drain shows while it runs and when it has ended. Without Spark and without a network (X2, X7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from syphon.backlog import QueueName, SelectedQueue
from syphon.config import PairSettings
from syphon.control import Ending, HandOver, QueueReport, SlotReport
from syphon.control.slot_control import SlotControl
from syphon.model import Counters, QueueKey
from syphon.servicebus import Peeked
from syphon.spark import JobResult
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.emptiness import PeekCount
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.drain.result import DrainProgress, DrainResult
from syphon.worker.drain.whole_drain import Drain
from syphon.worker.pausable_gate import PausableGate
from syphon.worker.start_stop import Engine
from tests.unit.worker.test_pair_drain import PAIR

QUEUE = QueueName("contoso/x-servicebus-transfer/0")


class OneJob:
    """A queue with three messages, and a job that moves them once the drain has shown something."""

    most_slots = 1

    def __init__(self) -> None:
        self.left = 3
        self.shown: list[DrainProgress] = []
        self._has_shown = threading.Event()

    def show(self, progress: DrainProgress) -> None:
        self.shown.append(progress)
        self._has_shown.set()

    def count(self, queue: str, wants: Callable[[Peeked], bool], most: int) -> PeekCount:
        return PeekCount(min(self.left, most), 0)

    def run(self, pair: PairSettings, queues: Sequence[HandOver], *more: object, **named: object) -> JobResult:
        assert self._has_shown.wait(20)
        moved, self.left = self.left, 0
        report = QueueReport(queue=QUEUE, counters=Counters(received=moved, forwarded=moved))
        return JobResult(
            (SlotReport(pair="contoso", job="1", slot=0, attempt=0, started_at=0, queues=(report,), finished=True),)
        )


def test_the_last_progress_is_that_of_the_end() -> None:  # X7
    scene = OneJob()
    drain = Drain([SelectedQueue(PAIR, QUEUE)], DrainOptions(), {QueueKey(PAIR.name, QUEUE): 3})
    (pair,) = drain._pair_drains
    pair._emptiness = cast(Any, scene)
    watch = SimpleNamespace(failure=None, wait_for_failure=lambda: None)
    engine = SimpleNamespace(control_server=SlotControl(), jobs=scene, ending=Ending(), watch=watch)
    drain.run(cast(Engine, engine), scene.show, every=60.0)
    first, last = scene.shown[0], scene.shown[-1]
    assert (first.moved, first.remaining) == (0, 3)
    assert (last.moved, last.remaining, last.in_flight) == (3, 0, 0)
    assert [queue.state for queue in last.queues] == [DrainState.EMPTY]


def test_a_killed_attempt_counts_once_however_many_queues_it_has_served() -> None:
    served = tuple(QueueReport(queue=name) for name in "abcd")
    attempts = [
        SlotReport(pair=PAIR.name, job="1", slot=0, attempt=number, started_at=0, queues=served) for number in range(2)
    ]
    queues = [QueueDrain(PAIR, name, DrainOptions(), PausableGate(PAIR.name), None) for name in "abcd"]
    for queue in queues:
        queue.add(JobResult(tuple(attempts)))
    assert DrainResult(tuple(queues), 0.0).totals.killed == 2


def test_the_time_to_go_does_not_count_messages_outside_the_filter() -> None:  # X7
    """The namespace counts all of them: how many match is not known before they are received."""
    for options, left in ((DrainOptions(), 3), (DrainOptions(destinations=["orders"]), None)):
        progress = Drain([SelectedQueue(PAIR, QUEUE)], options, {QueueKey(PAIR.name, QUEUE): 3}).progress()
        assert (progress.remaining, progress.queues[0].remaining) == (left, left)
