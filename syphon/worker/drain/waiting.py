"""What a drain left in the backlog for unavailable destinations: which destination, how many messages, and why.

The slots know the reason, but may count the same message several times. The number comes from a peek.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from syphon.model import EntityPath, SyphonError
from syphon.servicebus import connected, peek
from syphon.transfer import DestinationBackoff

from ..message_counts import IN_THE_BACKLOG
from .drain import DrainResult
from .queue_drain import MOST_COUNTED, DrainOptions, DrainState, QueueDrain

log = logging.getLogger(__name__)


class WaitingDestination(NamedTuple):
    """A destination whose messages a drain left in the backlog."""

    pair: str
    path: str
    left: int
    """Matching messages for it in the backlog, by peek; at most 100,000 per queue."""
    reason: str
    error: str
    """The class of the error, as in DestinationMissing."""
    seconds: float
    """Seconds until the next attempt."""
    failures: int


def waiting_destinations(result: DrainResult, options: DrainOptions) -> list[WaitingDestination]:
    """The unavailable destinations, the most messages first. Call it when the drain has ended."""
    found = []
    for pair, ours in groupby(result.queues, key=lambda queue: queue.pair.name):
        queues = list(ours)
        known = _known(queues)
        left = _left(queues, options) if known else None
        for destination in known:
            messages = destination.left if left is None else left[EntityPath.of(destination.path).key]
            if messages:
                found.append(
                    WaitingDestination(
                        pair,
                        destination.path,
                        messages,
                        destination.reason,
                        destination.error,
                        destination.seconds,
                        destination.failures,
                    )
                )
    return sorted(found, key=lambda waiting: (-waiting.left, waiting.pair, waiting.path))


def _known(queues: Iterable[QueueDrain]) -> tuple[DestinationBackoff, ...]:
    """The destinations of one pair that back off.

    If a queue is stuck, a destination whose back-off has just ended counts as well: nothing has moved since it failed,
    and its messages may still be locked.
    """
    backoffs = next(iter(queues)).backoffs
    return backoffs.failing() if any(queue.state is DrainState.STUCK for queue in queues) else backoffs.backing_off()


def _left(queues: Iterable[QueueDrain], options: DrainOptions) -> Counter[str] | None:
    """Matching messages by destination; None if a queue could not be peeked."""
    counts: Counter[str] = Counter()
    for queue in queues:
        if queue.remaining == 0:
            continue
        try:
            with connected(queue.pair.secondary, queue.queue) as connection:
                counted = 0
                for message in peek(connection, queue.queue):
                    if message.state not in IN_THE_BACKLOG or not options.wants(message):
                        continue
                    destination = queue.backoffs.destination_of(message.payload)
                    counts[destination.key if destination is not None else ""] += 1
                    counted += 1
                    if counted >= MOST_COUNTED:
                        break
        except SyphonError as error:
            log.debug("%s could not be counted by destination: %s", queue.queue, error)
            return None
    return counts
