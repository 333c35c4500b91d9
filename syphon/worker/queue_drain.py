"""The drain of one backlog queue: it moves messages until a peek proves the queue empty, or until it must end (X2, D4).

Only a peek proves that a queue is empty: counts are hints, and a throttled namespace says 0. A message that a peek
shows but a job does not receive is locked by another receiver: the drain waits for the end of its lock.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum

from syphon.backlog import Ttl, destination_of, stamps_of
from syphon.bus import Peeked, SideFault
from syphon.config import PairSettings
from syphon.model import DestinationMissing, Faulted, MessageFilter, SyphonError
from syphon.spark import JobResult, Jobs, Totals
from syphon.transfer import PumpOptions

from .backoffs import Backoffs
from .message_counts import EmptinessCheck
from .shared_limit import LimitShare, SharedLimit

log = logging.getLogger(__name__)

QUIET = 1.0
"""Seconds without a message after which a slot ends: a peek then tells whether the queue is empty."""
PER_SLOT = 5_000
"""Messages that justify one more slot."""
SHORTEST_REST, LONGEST_REST = 2.0, 15.0
"""Seconds between jobs on a queue whose messages are locked, or whose destinations back off."""
MOST_COUNTED = 100_000
"""How many messages are counted at the end; beyond it the count means "at least"."""


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Which messages a drain moves, and its limits."""

    messages: MessageFilter = field(default_factory=MessageFilter)
    limit: int | None = None
    rate: float | None = None
    timeout: float | None = None
    patience: float = 120.0
    """Seconds that a drain continues while nothing moves."""
    lease: float = 60.0
    ttl: Ttl | None = None

    def wants(self, message: Peeked) -> bool:
        """Whether an active message is one that was asked for."""
        destination = destination_of(message.payload) if self.messages.needs_destination else None
        return self.messages.matches(destination, stamps_of(message.payload).enqueued_at)

    def pump_options(self, pair: PairSettings, limit: int | None) -> PumpOptions:
        chosen = {} if self.ttl is None else {"ttl": self.ttl}
        return PumpOptions.for_pair(pair, lease=self.lease, quiet=QUIET, messages=self.messages, limit=limit, **chosen)


class DrainState(StrEnum):
    """What the drain of a queue does now, or how it ended."""

    LOOKING = "looking"
    MOVING = "moving"
    WAITING = "waiting"
    EMPTY = "empty"
    """A peek has proven that no message that was asked for is left."""
    NOT_THERE = "not there"
    STUCK = "stuck"
    """Nothing has moved for longer than the patience of the drain."""
    LIMIT = "limit reached"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self not in (DrainState.LOOKING, DrainState.MOVING, DrainState.WAITING)


class QueueDrain:
    """Drains one queue, in a thread of its own."""

    def __init__(
        self,
        pair: PairSettings,
        queue: str,
        jobs: Jobs,
        options: DrainOptions,
        emptiness: EmptinessCheck,
        backoffs: Backoffs,
        limit: SharedLimit,
        stopping: threading.Event,
        expected: int | None,
    ) -> None:
        self.pair = pair
        self.queue = queue
        self.expected = expected
        """How many messages there were at the start, by the count of the namespace; None if it is unknown."""
        self.state = DrainState.LOOKING
        self.totals = Totals()
        self.backoffs = backoffs
        self.remaining: int | None = None
        """Messages that were asked for and are left at the end; None if the queue could not be peeked."""
        self.others: int | None = None
        """Messages that were not asked for, by the last complete peek; None if there was none."""
        self.error = ""
        self.fault: SideFault | None = None
        self._jobs = jobs
        self._options = options
        self._emptiness = emptiness
        self._limit = limit
        self._stopping = stopping
        self._moved_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"drain {queue}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, within: float) -> None:
        self._thread.join(within)

    def _run(self) -> None:
        try:
            self.state = self._drained()
        except DestinationMissing:
            self.state = DrainState.NOT_THERE
        except SyphonError as error:
            self.state, self.error = DrainState.FAILED, str(error)
            if isinstance(error, Faulted):
                self.fault = SideFault.of("secondary", error)
        except BaseException as error:
            self.state, self.error = DrainState.FAILED, f"{type(error).__name__}: {error}"
            raise
        finally:
            self._limit.leave()

    def _drained(self) -> DrainState:
        """Peeks and runs jobs until the queue is proven empty, or something else ends the drain."""
        while self._is_there_more():
            if self._stopping.is_set():
                return DrainState.STOPPED
            with self._limit.share() as share:
                if share.most == 0:
                    return DrainState.LIMIT
                result = self._run_job(share)
            if result.fault is not None:
                self.fault, self.error = result.fault, result.fault.text
                return DrainState.FAILED
            if time.monotonic() - self._moved_at > self._options.patience:
                return DrainState.STUCK
            if not result.has_more:
                self._rest(result)
        return DrainState.EMPTY

    def _is_there_more(self) -> bool:
        """Peeks into the queue, and tries again while the patience lasts: an unreachable secondary may come back."""
        while True:
            try:
                found = self._emptiness.count(self.queue, self._options.wants, 1)
            except (Faulted, DestinationMissing):
                raise
            except SyphonError as error:
                self.error = str(error)
                if self._stopping.is_set() or time.monotonic() - self._moved_at > self._options.patience:
                    raise
                self.state = DrainState.WAITING
                self._stopping.wait(SHORTEST_REST)
            else:
                if not found.wanted:
                    self.others = found.others
                return found.wanted > 0

    def _run_job(self, share: LimitShare) -> JobResult:
        self.state = DrainState.MOVING
        count = self._slots() if share.most is None else 1
        options = [self._options.pump_options(self.pair, share.most)] * count
        result = self._jobs.run(self.pair, self.queue, options, self.backoffs.now(), self._options.rate)
        self.totals = self.totals.with_ended(result.reports)
        self.backoffs.learn(result.backing_off)
        self.error = result.error
        share.used = result.counters.moved
        if share.used:
            self._moved_at = time.monotonic()
        return result

    def _slots(self) -> int:
        """More slots for a deep backlog. The count may be wrong; one slot is always enough to be correct."""
        left = max(0, (self.expected or 0) - self.totals.moved)
        return max(1, min(self._jobs.most_slots, left // PER_SLOT))

    def _rest(self, result: JobResult) -> None:
        """Waits, because the rest is locked or its destinations back off. If the job left nothing, it does not wait."""
        if result.counters.received and not result.counters.left:
            return
        self.state = DrainState.WAITING
        waits = [destination.seconds for destination in self.backoffs.now()]
        self._stopping.wait(min(max(min(waits, default=SHORTEST_REST), SHORTEST_REST), LONGEST_REST))

    def count_rest(self) -> None:
        """Counts the messages that are left, after the drain has ended. An empty queue has been counted already."""
        if self.state is DrainState.NOT_THERE:
            self.remaining = self.others = 0
            return
        if self.state is DrainState.EMPTY:
            self.remaining = 0
            return
        try:
            self.remaining, self.others = self._emptiness.count(self.queue, self._options.wants, MOST_COUNTED)
        except SyphonError as error:
            log.debug("%s could not be counted: %s", self.queue, error)
