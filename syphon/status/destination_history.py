"""What the worker has learned of each destination, over all jobs.

Jobs come and go. `DestinationHistory` collects, from the reports of several jobs and from messages that started no job,
since when a destination has accepted nothing, how many of its messages are left in the backlog and how old they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from syphon.control import QueueAttempt, QueueTotals
from syphon.model import MOST_DESTINATIONS, DestinationStats, EntityPath, QueueKey, Stats, plural
from syphon.time_budget import SEEN_FOR
from syphon.transfer import DestinationBackoff, WaitingMessages
from syphon.worker import BY_THE_OPERATOR

from .snapshot import DestinationState, DestinationStatus, moment

IN_A_ROW = 3
"""Dead letters in a row after which a destination that accepted messages before no longer counts as available. One
or two may be the fault of these messages."""


@dataclass(slots=True)
class MessagesLeft:
    """The messages of one queue that a destination did not accept."""

    seen_at: float
    left: int = 0
    oldest: int | None = None


@dataclass(slots=True)
class DestinationRecord:
    """All that is known of one destination."""

    stats: DestinationStats
    since: float | None = None
    backs_off_until: float = 0.0
    rejects_until: float = 0.0
    reason: str | None = None
    error: str | None = None
    """The class of the error that `reason` is the text of."""
    left: dict[str, MessagesLeft] = field(default_factory=dict)
    """By queue."""
    given_up: dict[str, int] = field(default_factory=dict)
    """How many of its messages were dead-lettered, by queue."""
    dead_before: int = 0
    """How many of its messages had been dead-lettered when it last accepted one."""
    is_only_paused: bool = False
    """It was paused, and no message has named it: the operator may have mistyped its name."""

    @property
    def dead_in_a_row(self) -> int:
        """How many of its messages were dead-lettered since it last accepted one."""
        return self.stats.dead_lettered - self.dead_before

    def record_left(self, queue: str, now: float, messages: int, oldest: int | None) -> None:
        left = self.left.setdefault(queue, MessagesLeft(now))
        left.seen_at, left.left = now, max(left.left, messages)
        left.oldest = min((each for each in (left.oldest, oldest) if each is not None), default=None)

    def record_dead_lettered(self, queue: str, dead_lettered: int) -> None:
        """Takes in how many messages of a queue were dead-lettered. Those no longer wait."""
        more = dead_lettered - self.given_up.get(queue, 0)
        self.given_up[queue] = dead_lettered
        left = self.left.get(queue)
        if more > 0 and left is not None:
            left.left -= more
            if left.left <= 0:
                del self.left[queue]


class DestinationHistory:
    """The record of each destination. The observer updates it once per second. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._records: dict[str, DestinationRecord] = {}
        self._read: dict[str, tuple[QueueAttempt, ...]] = {}

    def update(
        self,
        now: float,
        queue_totals: Mapping[QueueKey, QueueTotals],
        backoffs: Iterable[DestinationBackoff],
        skipped: Mapping[tuple[str, str], WaitingMessages],
        paused: Iterable[str],
    ) -> list[DestinationStatus]:
        """Takes in what the worker knows now, and returns the status of each destination."""
        self._update_stats(queue_totals)
        for key, totals in queue_totals.items():
            self._read_reports(now, key.queue, totals)
        for (queue, path), waiting in skipped.items():
            self._record_of(path).record_left(queue, now, waiting.messages, waiting.oldest or None)
        for backoff in backoffs:
            self._backs_off(now, backoff)
        held = {EntityPath.of(path).key: path for path in paused}
        for held_key, path in held.items():
            record = self._records.setdefault(held_key, DestinationRecord(DestinationStats(path), is_only_paused=True))
            record.since = record.since or now
        self._forget(now, held)
        return sorted(
            (_status(record, now, key in held) for key, record in self._records.items()),
            key=lambda found: (found.state is DestinationState.AVAILABLE, found.path),
        )

    def oldest(self, queue: str) -> int | None:
        """When the oldest message that was left in a queue had come into it, in milliseconds since 1970."""
        found = (record.left[queue].oldest for record in self._records.values() if queue in record.left)
        return min((each for each in found if each is not None), default=None)

    def left(self, queue: str) -> int:
        """The number of messages known to be left in a queue; there may be more."""
        return sum(record.left[queue].left for record in self._records.values() if queue in record.left)

    def _record_of(self, path: str) -> DestinationRecord:
        record = self._records.setdefault(EntityPath.of(path).key, DestinationRecord(DestinationStats(path)))
        record.is_only_paused = False
        return record

    def _update_stats(self, queue_totals: Mapping[QueueKey, QueueTotals]) -> None:
        stats = Stats()
        for key, totals in queue_totals.items():
            found_here = totals.stats
            stats.add(found_here)
            for path, found in found_here.destinations.items():
                if found.dead_lettered and path in self._records:
                    self._records[path].record_dead_lettered(key.queue, found.dead_lettered)
        for found in stats.destinations.values():
            record = self._record_of(found.path)
            if found.forwarded > record.stats.forwarded:  # the destination accepts messages
                record.since, record.backs_off_until, record.rejects_until = None, 0.0, 0.0
                record.left.clear()
                record.dead_before = found.dead_lettered
            record.stats = found

    def _read_reports(self, now: float, queue: str, totals: QueueTotals) -> None:
        if self._read.get(queue) is not totals.last:
            self._read[queue] = totals.last
            self._read_job(now, queue, totals.last)
        self._read_job(now, queue, totals.live)

    def _read_job(self, now: float, queue: str, attempts: Iterable[QueueAttempt]) -> None:
        """Reads the reports of one job. Two jobs in turn have left the same messages, so their counts do not add up."""
        left = Stats()
        for attempt in attempts:
            left.add(attempt.queue.stats)
            for backoff in attempt.slot.backing_off:
                if backoff.seconds > 0:
                    self._backs_off(now, backoff)
            for rejection in attempt.slot.rejecting:
                record = self._record_of(rejection.path)
                record.rejects_until = now + rejection.seconds
                record.reason, record.error = rejection.reason, rejection.error or None
        for found in left.destinations.values():
            if found.left:
                self._record_of(found.path).record_left(queue, now, found.left, found.oldest_left)

    def _backs_off(self, now: float, backoff: DestinationBackoff) -> None:
        record = self._record_of(backoff.path)
        record.since = record.since or now
        record.reason, record.error = backoff.reason, backoff.error or None
        record.backs_off_until = max(record.backs_off_until, now + backoff.seconds)

    def _forget(self, now: float, held: Mapping[str, str]) -> None:
        """Drops messages not seen for long, and records beyond the bound that no longer have anything to report."""
        for key, record in list(self._records.items()):
            record.left = {queue: left for queue, left in record.left.items() if now - left.seen_at < SEEN_FOR}
            if key not in held and not record.left and now - record.backs_off_until > SEEN_FOR:
                record.since = None
            is_silent = record.since is None and now > record.rejects_until and not record.left
            has_stats = record.stats.forwarded or record.stats.left
            is_excess = len(self._records) > MOST_DESTINATIONS or record.is_only_paused
            if is_silent and key not in held and is_excess and not has_stats:
                del self._records[key]


def _status(record: DestinationRecord, now: float, paused: bool) -> DestinationStatus:
    state, reason, next_attempt = DestinationState.AVAILABLE, None, None
    if paused:
        state, reason = DestinationState.PAUSED, BY_THE_OPERATOR
    elif record.since is not None:
        state, reason = DestinationState.BACKING_OFF, record.reason
        next_attempt = moment(record.backs_off_until) if record.backs_off_until > now else None
    elif record.rejects_until > now:
        state, reason, next_attempt = DestinationState.REJECTING, record.reason, moment(record.rejects_until)
    elif record.rejects_until:
        state, reason = DestinationState.UNKNOWN, f"at the last attempt it refused every message: {record.reason}"
    elif record.dead_in_a_row >= (IN_A_ROW if record.stats.forwarded else 1):
        state = DestinationState.UNKNOWN
        when = "since it last accepted one" if record.stats.forwarded else "and none was forwarded"
        reason = f"{plural(record.dead_in_a_row, 'message')} for it went to the dead letters {when}"
    stats = record.stats
    is_at_fault = state in (DestinationState.BACKING_OFF, DestinationState.REJECTING)
    return DestinationStatus(
        path=stats.path,
        state=state,
        reason=reason,
        error=record.error if is_at_fault else None,
        next_attempt=next_attempt,
        since=None if record.since is None else moment(record.since),
        forwarded=stats.forwarded,
        dead_lettered=stats.dead_lettered,
        left=sum(left.left for left in record.left.values()),
    )
