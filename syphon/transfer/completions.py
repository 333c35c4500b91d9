"""Completing what has arrived: over the link it came on, or else over the queue's management node.

What was forwarded and is not completed comes again. So a completion whose link was lost, or which a busy service has
refused, is asked for as long as the lock lasts. What is not completed then is a possible duplicate (S6, D10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from syphon.bus import Arrival, Connection, LinkState, Settled
from syphon.model import LockLost, Result, SyphonError, Waits

from .in_hand import InHand
from .locks import LockKeeper

log = logging.getLogger(__name__)


class Completions:
    """Of one pump."""

    def __init__(self, queue: str, account: InHand, locks: LockKeeper, now: Callable[[], float]) -> None:
        self._queue = queue
        self._account = account
        self._locks = locks
        self._now = now
        self._orphans: dict[Arrival, float] = {}
        """What its link has not completed, and when to ask in the other way."""

    def begin(self, arrival: Arrival) -> None:
        """It has been forwarded."""
        if arrival.link.state is LinkState.OPEN:
            arrival.link.complete(arrival)
        else:
            self._orphans[arrival] = self._now()

    def refused(self, settled: Settled, error: SyphonError) -> None:
        """Its link went before it was completed, or the service would not complete it."""
        if settled.unknown:
            self._orphans[settled.arrival] = self._now()
        elif isinstance(error, Waits):
            self._orphans[settled.arrival] = self._now() + error.retry_after
        else:
            self._give_up(settled.arrival, str(error))

    def give_up_late(self, now: float) -> None:
        """What is not locked any more cannot be completed."""
        for arrival in [orphan for orphan in self._orphans if now - orphan.locked_at > self._locks.seconds]:
            self._heard(arrival, LockLost())

    def due(self, now: float) -> list[Arrival]:
        """Those to ask for now, in the other way."""
        return [orphan for orphan, at in self._orphans.items() if now >= at]

    def ask(self, connection: Connection, due: list[Arrival]) -> None:
        self._locks.complete(connection, due, self._heard)

    def _heard(self, arrival: Arrival, error: SyphonError | None) -> None:
        if arrival not in self._orphans:
            return
        if isinstance(error, Waits):
            self._orphans[arrival] = self._now() + error.retry_after
            return
        del self._orphans[arrival]
        if error is None:
            self._account.finish(arrival, Result.FORWARDED)
        else:
            self._give_up(arrival, f"Its lock was lost with its link. {error}")

    def _give_up(self, arrival: Arrival, why: str) -> None:
        log.warning("a message of %s was forwarded and could not be completed: %s", self._queue, why)
        self._account.finish(arrival, Result.FORWARDED, why, possible_duplicate=True)
