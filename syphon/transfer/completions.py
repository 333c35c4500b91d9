"""Completes messages that were forwarded: over the link they came on, or over the queue's management node.

A message that was forwarded and is not completed is delivered again. So the pump repeats a completion as long as the
lock lasts when its link was lost, the service did not answer, or a busy service refused it. Later the message is a
possible duplicate (S6, D10).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from syphon.model import LockLost, Result, SyphonError, Waits
from syphon.servicebus import Arrival, Connection, LinkState, Settled

from .locks import LockKeeper
from .unsettled import Unsettled

log = logging.getLogger(__name__)


class Completions:
    """The completions of one queue."""

    def __init__(self, queue: str, unsettled: Unsettled, locks: LockKeeper, now: Callable[[], float]) -> None:
        self._queue = queue
        self._unsettled = unsettled
        self._locks = locks
        self._now = now
        self._orphans: dict[Arrival, float] = {}
        """Messages that their link did not complete, and when to ask the management node for each."""

    def begin(self, arrival: Arrival) -> None:
        """Completes a message that has just been forwarded."""
        if arrival.link.state is LinkState.OPEN:
            arrival.link.complete(arrival)
        else:
            self._orphans[arrival] = self._now()

    def refused(self, settled: Settled, error: SyphonError) -> None:
        """Notes that the completion has no answer, because the link was lost or otherwise, or that it was refused."""
        if settled.unknown:
            self._orphans[settled.arrival] = self._now()
        elif isinstance(error, Waits):
            self._orphans[settled.arrival] = self._now() + error.retry_after
        else:
            self._finish_uncompleted(settled.arrival, str(error))

    def finish_expired(self, now: float) -> None:
        """Finishes the messages whose lock has ended: they cannot be completed any more."""
        for arrival in [orphan for orphan in self._orphans if now - orphan.locked_at > self._locks.seconds]:
            self._answered(arrival, LockLost())

    def due(self, now: float) -> list[Arrival]:
        """The messages to complete over the management node now."""
        return [orphan for orphan, at in self._orphans.items() if now >= at]

    def ask(self, connection: Connection, due: list[Arrival]) -> None:
        """Asks the management node to complete these messages."""
        self._locks.complete(connection, due, self._answered)

    def _answered(self, arrival: Arrival, error: SyphonError | None) -> None:
        if arrival not in self._orphans:
            return
        if isinstance(error, Waits):
            self._orphans[arrival] = self._now() + error.retry_after
            return
        del self._orphans[arrival]
        if error is None:
            self._unsettled.finish(arrival, Result.FORWARDED)
        else:
            self._finish_uncompleted(arrival, f"Its completion was not confirmed, and then its lock was lost. {error}")

    def _finish_uncompleted(self, arrival: Arrival, why: str) -> None:
        log.warning("a message of %s was forwarded but not completed, and may arrive twice: %s", self._queue, why)
        self._unsettled.finish(arrival, Result.FORWARDED, why, possible_duplicate=True)
