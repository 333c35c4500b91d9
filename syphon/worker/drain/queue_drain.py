"""One backlog queue of a drain: which messages match, its progress, and what a peek finds in it (X2, D4).

Only a peek proves that a queue is empty: counts are hints, and a throttled namespace reports 0. A message that a peek
finds but a job does not receive is locked by another receiver: the drain waits until the lock expires.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from syphon.backlog import destination_of, stamps_of
from syphon.config import PairSettings
from syphon.control import QueueAttempt, Totals
from syphon.model import AttemptKey, DestinationMissing, MessageFilter, Stats, SyphonError
from syphon.servicebus import Peeked, SideFault
from syphon.spark import JobResult

from ..pausable_gate import PausableGate
from .drain_options import TransferOptions
from .emptiness import EmptinessCheck
from .queue_state import TRANSITIONS, DrainEvent, DrainState

log = logging.getLogger(__name__)

MOST_COUNTED = 100_000
"""Messages that are counted at the end, at most: the count then means "at least"."""


def selects(messages: MessageFilter, peeked: Peeked) -> bool:
    """Whether the filter matches a message that was peeked."""
    destination = destination_of(peeked.payload) if messages.needs_destination else None
    return messages.matches(destination, stamps_of(peeked.payload).enqueued_at, peeked.payload)


def unreachable(primary_error: str) -> str:
    """Why messages wait for the primary; empty if they do not."""
    return f"the primary is unreachable: {primary_error}" if primary_error else ""


class QueueDrain:
    """The drain of one queue."""

    def __init__(
        self,
        pair: PairSettings,
        queue: str,
        options: TransferOptions,
        backoffs: PausableGate,
        expected: int | None,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pair = pair
        self.queue = queue
        self.backoffs = backoffs
        """The destinations of its pair that back off."""
        self.expected = expected
        """Messages at the start, by the count of the namespace; None if it is unknown."""
        self.state = DrainState.CHECKING
        self.totals = Totals()
        self.killed: set[AttemptKey] = set()
        """The attempts that served it and ended without a last report."""
        self.stats = Stats()
        """The outcomes of its messages, by destination."""
        self.remaining: int | None = None
        """Matching messages that remain at the end; None if the queue could not be peeked."""
        self.others: int | None = None
        """Messages that do not match, by the last complete peek; None if there was none."""
        self.scheduled = 0
        """Matching messages that no receiver gets before their time, by the last complete peek."""
        self.error = ""
        self.primary_error = ""
        """Why the primary was unreachable in the last job; empty if it was not."""
        self.fault: SideFault | None = None
        self.moved_at = now()
        """When a message last moved, or a peek found the queue empty. Time in which no job served it does not count."""
        self.empty_since: float | None = None
        """Since when peeks have found nothing; None if the last one found a message."""
        self.has_been_empty = False
        """Whether its drain has ended with EMPTY. It begins again if messages arrive later (`PairDrain`)."""
        self.attempts = 0
        """How many jobs have served it."""
        self.needs_deferred_scan = False
        """Whether the next job must scan for deferred messages: the last peek found one, or the last job moved none."""
        self._options = options
        self._now = now
        self._is_cut_off = False
        self._counting = threading.Lock()

    def wants(self, message: Peeked) -> bool:
        """Whether the options select a message."""
        return selects(self._options.messages, message)

    @property
    def is_stuck(self) -> bool:
        """Whether nothing has moved for longer than the patience of the drain."""
        return self._now() - self.moved_at > self._options.patience

    @property
    def expected_rest(self) -> int:
        """Remaining messages, by the count at the start, which may be wrong."""
        return max(0, (self.expected or 0) - self.totals.moved)

    def begin_attempt(self) -> None:
        """Records that a job serves it. The patience begins with the first job: Spark may have taken long to start."""
        self.happened(DrainEvent.SERVED)
        if not self.attempts:
            self.moved_at = self._now()
        self.attempts += 1

    def sit_out(self, seconds: float) -> None:
        """Extends the patience by the time in which jobs served only other queues."""
        self.moved_at += seconds

    def happened(self, event: DrainEvent, error: str = "") -> None:
        """Moves to the next state. Without a new error, the last one stays."""
        self.state = TRANSITIONS.get((self.state, event), self.state)
        self.error = error or self.error

    def fail(self, fault: SideFault) -> None:
        """Ends the drain because a namespace can no longer be used."""
        self.fault = fault
        self.happened(DrainEvent.BROKEN, fault.text)

    def peek(self, emptiness: EmptinessCheck) -> None:
        """Peeks into the queue, and ends its drain if no matching message is left. Raises an outage.

        A drain that had ended because the queue was empty begins again if messages have arrived.
        """
        try:
            found = emptiness.count(self.queue, self.wants, 1)
        except DestinationMissing:
            self.happened(DrainEvent.MISSING)
            return
        self.error = ""
        if found.wanted:
            self.needs_deferred_scan = self.needs_deferred_scan or found.deferred > 0
            self.empty_since = None
            if self.state in (DrainState.SETTLING, DrainState.EMPTY):
                self.moved_at = self._now()  # the patience begins again
            self.happened(DrainEvent.MESSAGES_FOUND)
            return
        self.others, self.scheduled = found.others, found.scheduled
        self.moved_at = self._now()  # there is nothing to move: a queue that settles is not stuck
        self.empty_since = self.empty_since or self._now()
        has_settled = self._now() - self.empty_since >= self._options.settle
        self.has_been_empty = self.has_been_empty or has_settled
        self.happened(DrainEvent.PROVEN_EMPTY if has_settled else DrainEvent.NOTHING_FOUND)

    def add(self, result: JobResult) -> None:
        """Adds the result of a job on this queue."""
        attempts = result.attempts(self.queue)
        with self._counting:
            if self._is_cut_off:
                return
            self._count(attempts)
        self.primary_error = result.primary_error
        self.error = result.error_of(self.queue) or unreachable(self.primary_error)
        has_moved = any(attempt.queue.counters.moved for attempt in attempts)
        self.needs_deferred_scan = not has_moved
        if has_moved:
            self.moved_at = self._now()

    def cut_off(self, attempts: list[QueueAttempt]) -> None:
        """Counts what a job has moved that still runs when the drain must end."""
        with self._counting:
            self._is_cut_off = True
            self._count(attempts)
        self.fault = self.fault or next((each.slot.fault for each in attempts if each.slot.fault), None)

    def _count(self, attempts: list[QueueAttempt]) -> None:
        self.totals = self.totals.with_ended(attempts)
        self.killed.update(attempt.slot.key for attempt in attempts if not attempt.slot.finished)
        for attempt in attempts:
            self.stats.add(attempt.queue.stats)

    def count_rest(self, emptiness: EmptinessCheck) -> None:
        """Counts the remaining messages after the drain has ended.

        An empty queue has already been counted, unless the last peek failed.
        """
        if self.state is DrainState.MISSING:
            self.remaining = self.others = 0
            return
        if self.state is DrainState.EMPTY and not self.error:
            self.remaining = 0
            return
        try:
            found = emptiness.count(self.queue, self.wants, MOST_COUNTED)
            self.remaining, self.others, self.scheduled = found.wanted, found.others, found.scheduled
        except SyphonError as error:
            log.debug("%s could not be counted: %s", self.queue, error)
        if self.state in (DrainState.EMPTY, DrainState.MORE_CAME) and self.remaining is not None:
            self.happened(DrainEvent.LATE_MESSAGES if self.remaining else DrainEvent.PROVEN_EMPTY)
