"""The backlog queues that senders take turns with (F4). Pure: time comes in as an argument, chance at the start."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence

from syphon.backlog import QueueName

from .changes import Change, QueueTakenBack, QueueTakenOut

OUT_FOR = 60.0
"""Seconds a queue that failed is left out, before it is tried again."""


class Rotation:
    """The queues of one pair. One that fails is out for all senders."""

    def __init__(
        self, queues: Sequence[QueueName], choose: Callable[[Sequence[QueueName]], QueueName] = random.choice
    ) -> None:
        self.queues = tuple(queues)
        self._choose = choose
        self._out: dict[QueueName, float] = {}

    def has(self, queue: QueueName, now: float) -> bool:
        """Whether a queue is in rotation."""
        return self._out.get(queue, now) <= now

    def pick(self, tried: Collection[QueueName], now: float) -> QueueName | None:
        """One of those in rotation, at random. With none left, the one that has been out longest: but only one."""
        able = [queue for queue in self.queues if self.has(queue, now) and queue not in tried]
        if able:
            return self._choose(able)
        return None if tried else min(self.queues, key=lambda queue: self._out[queue])

    def take_out(self, queue: QueueName, error: Exception, seconds: float, now: float) -> Iterator[Change]:
        """A queue has failed."""
        if self.has(queue, now):  # several senders may find out at the same time
            yield QueueTakenOut(queue, seconds, error)
        self._out[queue] = now + seconds

    def works(self, queue: QueueName) -> Iterator[Change]:
        """A queue has taken messages."""
        if self._out.pop(queue, None) is not None:
            yield QueueTakenBack(queue)
