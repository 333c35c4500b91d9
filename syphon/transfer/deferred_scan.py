"""Scans a backlog queue by peeking, for the deferred messages in it (D16).

A message whose destination is unavailable is received once, and deferred: from then on no link delivers it, and only a
peek shows it. The scan reads the queue when the worker starts, and after each transfer that left messages from
where it stopped the last time. It remembers the destinations, not the messages, so that a queue of any depth needs the
memory of one page. When a destination may be available again, the queue rings.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from syphon.backlog import stamps_of
from syphon.model import DestinationBusy, Interrupted, SyphonError
from syphon.servicebus import FIRST_OF_PARTITION, Backoff, Connection, MessageState, Peeked, Peeker
from syphon.time_budget import LOCK_DURATION, PEEK_ALL_EVERY

from .backoff_gate import Gate


class Ring(StrEnum):
    """Why a doorbell rings."""

    NEW = "new"
    """A message can be moved, as far as is known."""
    DEFERRED = "deferred"
    """There are deferred messages for a destination that may be available."""


class WaitingMessages(NamedTuple):
    """The deferred messages of one destination that the scan has seen."""

    messages: int
    oldest: int
    """When the oldest of them came into the backlog, in milliseconds since 1970; 0 if no message says it."""


class DeferredScan:
    """Scans one queue. Its owner reads the connection, and calls `scan` every turn while it scans."""

    def __init__(self, queue: str, now: Callable[[], float], gate: Gate) -> None:
        self.is_scanning = True
        """Whether it has not come to the end of the queue."""
        self.waiting: dict[str, WaitingMessages] = {}
        """The deferred messages by destination (its key). It counts 0 if they may only become deferred, by a transfer.
        Other threads may copy it."""
        self._queue = queue
        self._now = now
        self._gate = gate
        self._peeker: Peeker | None = None
        self._backoff = Backoff()
        self._next = 1
        """The sequence number from which messages have not been scanned."""
        self._is_partitioned = False
        self._seen: set[int] = set()
        """Numbers of a partitioned queue: they are in no order, and a peek may show a message twice."""
        self._scan_at = self._asked_at = now()
        self._all_again_at: float | None = None
        """When to scan the whole queue again, to see whether a transfer has moved all that it could."""

    def begin(self, scan: bool) -> None:
        """A transfer has ended. With `scan` it has left messages: it scans for those that it deferred.

        The messages for destinations that are available count as moved. Some may have been locked, by a slot that was
        killed: when such a lock has expired, it scans the whole queue.
        """
        movable = [key for key in self.waiting if self._gate.can_move(key) and not self._gate.has_failed(key)]
        for key in movable:
            del self.waiting[key]
        if movable:
            self._all_again_at = self._now() + LOCK_DURATION
        if scan and self._is_partitioned:
            self.forget()
        self.is_scanning = scan
        self._scan_at = self._now()

    def forget(self) -> None:
        """Forgets all that it has seen, and scans the whole queue again."""
        self._next, self.waiting, self._all_again_at, self.is_scanning = 1, {}, None, True
        self._seen.clear()
        self._scan_at = self._now()
        if self._peeker is not None:
            self._peeker.drop()

    def scan(self, connection: Connection) -> Ring | None:
        """Scans on through the queue. Returns a ring if a transfer can move something. Raises an error of the queue."""
        now = self._now()
        while self.is_scanning and (page := self._page(connection, now)) is not None:
            self.is_scanning = bool(page)
            if not page and self._all_again_at is None:
                self._all_again_at = now + PEEK_ALL_EVERY
            if (ring := self._read(page)) is not None:
                return ring
        return None

    def turn(self) -> Ring | None:
        """A ring if a destination that has deferred messages may be available again. To be called every turn."""
        if self._all_again_at is not None and self._now() >= self._all_again_at:
            self.forget()
        return Ring.DEFERRED if any(map(self._gate.can_move, self.waiting)) else None

    def add(self, payload: bytes, messages: int = 1) -> None:
        """Notes a message that its owner has just deferred; with 0 `messages`: one that a transfer may defer."""
        path = self._gate.destination_of(payload)
        key, enqueued_at = "" if path is None else path.key, stamps_of(payload).enqueued_at
        known = self.waiting.get(key, WaitingMessages(0, enqueued_at))
        self.waiting[key] = WaitingMessages(known.messages + messages, min(known.oldest, enqueued_at))

    def close(self) -> None:
        """Closes the link."""
        if self._peeker is not None:
            self._peeker.close()
            self._peeker = None

    def _page(self, connection: Connection, now: float) -> list[Peeked] | None:
        """The page that has arrived, or None. Requests the next one when it is due."""
        if self._peeker is None or self._peeker.connection is not connection:
            self._peeker = Peeker(connection, self._queue)
        if not self._peeker.is_waiting and now >= self._scan_at:
            self._peeker.ask(self._next)
            self._asked_at = now
        try:
            return self._peeker.take()
        except DestinationBusy as busy:
            self._scan_at = now + busy.retry_after
        except Interrupted:
            self._scan_at = now + self._backoff.delay(now - self._asked_at)
        except SyphonError:
            self.forget()  # the queue may have been deleted, and a new one counts from 1 again
            raise
        return None

    def _read(self, page: list[Peeked]) -> Ring | None:
        self._is_partitioned |= any(message.sequence_number >= FIRST_OF_PARTITION for message in page)
        for message in page:
            number = message.sequence_number
            if message.state is not MessageState.SCHEDULED and number not in self._seen:
                is_deferred = message.state is MessageState.DEFERRED
                is_worth_a_job = self._gate.is_worth_a_job(self._queue, message.payload)
                if is_deferred or not is_worth_a_job:  # a transfer may defer it, and no scan would come to it again
                    self.add(message.payload, messages=int(is_deferred))
                if is_worth_a_job:
                    self.is_scanning = True  # the transfer may have to leave it, or the next one
                    self._next = number
                    return Ring.DEFERRED if is_deferred else Ring.NEW
            if self._is_partitioned:
                self._seen.add(number)
        if page:
            self._next = max(message.sequence_number for message in page) + 1
        return None
