"""A backlog that is empty already: it is proven by peeking alone, and Spark need not start (D4).

Most drains that a timer starts find nothing. To start Spark for them takes ten seconds of CPU each time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from syphon.backlog import SelectedQueue, by_pair
from syphon.bus import SideFault
from syphon.config import PairSettings
from syphon.model import DestinationMissing, SyphonError
from syphon.spark import Totals

from .drain import DrainResult
from .message_counts import EmptinessCheck
from .queue_drain import DrainOptions, DrainState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmptyQueue:
    """A queue that holds nothing that was asked for, as the result of a drain shows it."""

    pair: PairSettings
    queue: str
    state: DrainState
    others: int
    remaining: int = 0
    error: str = ""
    fault: SideFault | None = None
    totals: Totals = field(default_factory=Totals)


def found_empty(selected: Sequence[SelectedQueue], options: DrainOptions) -> DrainResult | None:
    """The result of a drain that has nothing to do; None if a queue holds a message, or could not be peeked."""
    began = time.monotonic()
    found: list[EmptyQueue] = []
    for pair, queues in by_pair(selected):
        emptiness = EmptinessCheck(pair.secondary)
        try:
            for _, queue in queues:
                try:
                    count = emptiness.count(queue, options.wants, 1)
                except DestinationMissing:
                    found.append(EmptyQueue(pair, queue, DrainState.NOT_THERE, 0))
                    continue
                if count.wanted:
                    return None
                found.append(EmptyQueue(pair, queue, DrainState.EMPTY, count.others))
        except SyphonError as error:
            log.debug("%s could not be peeked; the drain finds out why: %s", pair.name, error)
            return None
        finally:
            emptiness.close()
    return DrainResult(tuple(found), time.monotonic() - began)
