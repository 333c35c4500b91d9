"""One backlog queue, carried until it is proven empty, or until something else ends it (X2, D4).

Looking is peeking: counts are hints, and a throttled namespace says 0. What peeking shows but a job does not receive is
locked by somebody: its lock is waited for.
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
from .emptiness import EmptinessCheck
from .shared_limit import LimitShare, SharedLimit

log = logging.getLogger(__name__)

QUIET = 1.0
"""Seconds without a message after which a slot ends: whether the queue is empty is found out by peeking."""
PER_SLOT = 5_000
"""Messages that are worth a slot of their own."""
SHORTEST_REST, LONGEST_REST = 2.0, 15.0
"""Seconds between jobs on a queue whose messages are locked, or wait for their destination."""
MOST_COUNTED = 100_000
"""How many messages are counted at the end; from there on it is "at least"."""


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """What is asked for."""

    messages: MessageFilter = field(default_factory=MessageFilter)
    limit: int | None = None
    rate: float | None = None
    timeout: float | None = None
    patience: float = 120.0
    """Seconds it goes on while nothing moves."""
    lease: float = 60.0
    ttl: Ttl | None = None

    def wants(self, message: Peeked) -> bool:
        """Whether an active message is one that was asked for."""
        destination = destination_of(message.payload) if self.messages.needs_destination else None
        return self.messages.matches(destination, stamps_of(message.payload).enqueued_at)

    def pump_options(self, pair: PairSettings, limit: int | None) -> PumpOptions:
        chosen = {} if self.ttl is None else {"ttl": self.ttl}
        return PumpOptions.for_pair(pair, lease=self.lease, quiet=QUIET, messages=self.messages, limit=limit, **chosen)


class QueueState(StrEnum):
    """Where the draining of a queue stands, or how it ended."""

    LOOKING = "looking"
    MOVING = "moving"
    WAITING = "waiting"
    EMPTY = "empty"
    """Proven by a peek: nothing that was asked for is left."""
    NOT_THERE = "not there"
    STUCK = "stuck"
    """Nothing has moved for longer than the patience lasts."""
    LIMIT = "limit reached"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self not in (QueueState.LOOKING, QueueState.MOVING, QueueState.WAITING)


class QueueDrain:
    """One queue, being drained."""

    def __init__(
        self,
        pair: PairSettings,
        queue: str,
        jobs: Jobs,
        options: DrainOptions,
        lookout: EmptinessCheck,
        waiting: Backoffs,
        allowance: SharedLimit,
        over: threading.Event,
        hint: int | None,
    ) -> None:
        self.pair = pair
        self.queue = queue
        self.hint = hint
        """How many messages there were in the beginning, by the namespace's own count."""
        self.state = QueueState.LOOKING
        self.account = Totals()
        self.waiting = waiting
        self.remaining: int | None = None
        """How many are left in the end; none if nobody could look."""
        self.error = ""
        self.fault: SideFault | None = None
        self._jobs = jobs
        self._options = options
        self._lookout = lookout
        self._allowance = allowance
        self._over = over
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
            self.state = QueueState.NOT_THERE
        except SyphonError as error:
            self.state, self.error = QueueState.FAILED, str(error)
            if isinstance(error, Faulted):
                self.fault = SideFault.of("secondary", error)
        except BaseException as error:
            self.state, self.error = QueueState.FAILED, f"{type(error).__name__}: {error}"
            raise
        finally:
            self._allowance.leave()

    def _drained(self) -> QueueState:
        """Looks, and carries, until it is proven empty or something else ends it."""
        while self._is_there_more():
            if self._over.is_set():
                return QueueState.STOPPED
            with self._allowance.share() as share:
                if share.most == 0:
                    return QueueState.LIMIT
                done = self._carry(share)
            if done.fault is not None:
                self.fault, self.error = done.fault, done.fault.text
                return QueueState.FAILED
            if time.monotonic() - self._moved_at > self._options.patience:
                return QueueState.STUCK
            if not done.has_more:
                self._rest(done)
        return QueueState.EMPTY

    def _is_there_more(self) -> bool:
        """Asks the queue itself, patiently: a secondary that is out of reach may come back."""
        while True:
            try:
                return self._lookout.count(self.queue, self._options.wants, 1) > 0
            except (Faulted, DestinationMissing):
                raise
            except SyphonError as error:
                self.error = str(error)
                if self._over.is_set() or time.monotonic() - self._moved_at > self._options.patience:
                    raise
                self.state = QueueState.WAITING
                self._over.wait(SHORTEST_REST)
            else:
                self.error = ""

    def _carry(self, share: LimitShare) -> JobResult:
        self.state = QueueState.MOVING
        count = self._slots() if share.most is None else 1
        options = [self._options.pump_options(self.pair, share.most)] * count
        done = self._jobs.carry(self.pair, self.queue, options, self.waiting.now(), self._options.rate)
        self.account = self.account.add(done.sheets)
        self.waiting.learn(done.waiting)
        self.error = done.error
        share.used = done.counters.moved
        if share.used:
            self._moved_at = time.monotonic()
        return done

    def _slots(self) -> int:
        """More for a deep backlog. The count is a hint, and one slot is enough to be right."""
        left = max(0, (self.hint or 0) - self.account.moved)
        return max(1, min(self._jobs.most_slots, left // PER_SLOT))

    def _rest(self, done: JobResult) -> None:
        """What is left is locked, or waits for its destination. Nothing left: there is no reason to wait."""
        if done.counters.received and not done.counters.left:
            return
        self.state = QueueState.WAITING
        waits = [destination.seconds for destination in self.waiting.now()]
        self._over.wait(min(max(min(waits, default=SHORTEST_REST), SHORTEST_REST), LONGEST_REST))

    def look_back(self) -> None:
        """Counts what is left, once all is over."""
        if self.state in (QueueState.EMPTY, QueueState.NOT_THERE):
            self.remaining = 0
            return
        try:
            self.remaining = self._lookout.count(self.queue, self._options.wants, MOST_COUNTED)
        except SyphonError as error:
            log.debug("%s could not be counted: %s", self.queue, error)
