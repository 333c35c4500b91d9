"""Watches a backlog queue by peeking, while all that it holds is for destinations that back off (D16).

A receive locks a message and counts as a delivery; to receive a message again in each lock period, for as long as its
destination is down, costs more the longer the outage lasts. A peek changes nothing, and the watch looks at each message
once: it reads the queue from its start, page by page, and then looks every few seconds for messages behind the last
one. It remembers the destinations, not the messages, so that a queue of any depth needs the memory of one page.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, Protocol

from syphon.backlog import destination_of, stamps_of
from syphon.bus import Backoff, Connection, MessageState, Peeked, Peeker
from syphon.model import DestinationBusy, EntityPath, Interrupted, SyphonError

from .options import FIRST_WINDOW

PERIOD = 5.0
"""Seconds between two looks for new messages. Each look costs one operation, 720 in an hour, however many messages the
queue holds; a new message for a destination that works waits for half as long on average."""
LOCK = 60.0
"""Seconds a lock lasts, as backlog queues are created (P2)."""
_PARTITION_BIT = 48
"""From this bit on, a sequence number is the number of a partition: its order is not the order of arrival."""


class Ring(StrEnum):
    """Why a doorbell rings, and so how a transfer of the queue should begin."""

    NEW = "new"
    """The first message can be moved, as far as is known."""
    TRY = "try"
    """All messages are for one destination, whose back-off is over. One message shows whether it works again."""
    MIXED = "mixed"
    """A message can be moved, and messages before it cannot: the transfer has to read past them."""

    @property
    def most_left(self) -> int | None:
        """How many messages a transfer may leave before it ends, if no destination takes one; None means any number."""
        return {Ring.NEW: FIRST_WINDOW, Ring.TRY: 1, Ring.MIXED: None}[self]


class Gate(Protocol):
    """Knows which destinations back off or are paused. Other threads may change its answers at any time."""

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        """Whether a message can be moved now: to its destination, or to the dead letters."""

    def can_move(self, destination: str) -> bool:
        """Whether a destination (the key of an `EntityPath`) neither backs off nor is paused."""

    def destination_of(self, payload: bytes) -> EntityPath | None:
        """The destination that a message goes to; None if the message names none."""


class OpenGate:
    """A gate for an owner that knows of no back-offs: every message can be moved."""

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:  # noqa: ARG002
        return True

    def can_move(self, destination: str) -> bool:  # noqa: ARG002
        return True

    def destination_of(self, payload: bytes) -> EntityPath | None:
        return destination_of(payload)


class Waiting(NamedTuple):
    """The messages of one destination that the watch has seen, and that cannot be moved."""

    messages: int
    oldest: int
    """When the oldest of them came into the backlog, in milliseconds since 1970; 0 if no message says it."""


class PeekWatch:
    """Watches one queue. Its owner reads the connection and calls `look` every turn."""

    def __init__(self, queue: str, now: Callable[[], float], gate: Gate) -> None:
        self.is_partitioned = False
        """Whether the queue turned out to have partitions: then it cannot be watched, and its owner must receive."""
        self.waiting: dict[str, Waiting] = {}
        """By destination. Other threads may copy it."""
        self._queue = queue
        self._now = now
        self._gate = gate
        self._peeker: Peeker | None = None
        self._backoff = Backoff()
        self._next = 1
        """The sequence number from which on messages have not been looked at."""
        self._look_at = self._asked_at = now()
        self._mixed_at = now() - LOCK

    def begin(self) -> None:
        """Watches again after a transfer has ended. What it has looked at before it does not look at again.

        If several destinations were seen, and one of them can move by now, then the transfer may have emptied the queue
        of its messages, or may have ended too early for that. Only a look at the whole queue can say.
        """
        if len(self.waiting) > 1 and any(map(self._gate.can_move, self.waiting)):
            self.forget()
        self._look_at = self._now()

    def forget(self) -> None:
        """Forgets all that it has seen: the next look begins at the start of the queue."""
        self._next, self.waiting = 1, {}
        self._look_at = self._now()
        if self._peeker is not None:
            self._peeker.drop()

    def look(self, connection: Connection) -> Ring | None:
        """Keeps looking. Returns a ring when a transfer can move something. Raises an error of the queue."""
        now = self._now()
        while (page := self._page(connection, now)) is not None:
            self._look_at = now if page else self._asked_at + PERIOD
            if (ring := self._read(page)) is not None:
                return ring
        return self._tried_again(now)

    def close(self) -> None:
        """Closes the link."""
        if self._peeker is not None:
            self._peeker.close()
            self._peeker = None

    def _page(self, connection: Connection, now: float) -> list[Peeked] | None:
        """The page that has come, if one has. Asks for the next one when it is due."""
        if self._peeker is None or self._peeker.connection is not connection:
            self._peeker = Peeker(connection, self._queue)
        if not self._peeker.is_waiting and now >= self._look_at:
            self._peeker.ask(self._next)
            self._asked_at = now
        try:
            return self._peeker.take()
        except DestinationBusy as busy:
            self._look_at = now + busy.retry_after
        except Interrupted:
            self._look_at = now + self._backoff.pause(now - self._asked_at)
        except SyphonError:
            self.forget()  # the queue may have been deleted, and a new one counts from 1 again
            raise
        return None

    def _read(self, page: list[Peeked]) -> Ring | None:
        for message in page:
            if message.sequence_number >> _PARTITION_BIT:
                self.is_partitioned = True
                self.forget()
                return None
            if message.state is MessageState.ACTIVE:
                if self._gate.is_worth_a_job(self._queue, message.payload):
                    self._next = message.sequence_number  # to be looked at again: the transfer may have to leave it
                    return Ring.MIXED if self.waiting else Ring.NEW
                self._note(message)
            self._next = message.sequence_number + 1
        return None

    def _note(self, message: Peeked) -> None:
        path = self._gate.destination_of(message.payload)
        key = "" if path is None else path.key
        known, enqueued_at = self.waiting.get(key), stamps_of(message.payload).enqueued_at
        if known is None:
            self.waiting[key] = Waiting(1, enqueued_at)
        else:
            self.waiting[key] = Waiting(known.messages + 1, min(known.oldest, enqueued_at))

    def _tried_again(self, now: float) -> Ring | None:
        """A ring if a destination's back-off is over.

        With one destination, the next message of the queue is for it. With more than one a transfer has to receive all
        messages to find those that can be moved, so it does that at most once in a lock period.
        """
        if not any(map(self._gate.can_move, self.waiting)):
            return None
        if len(self.waiting) == 1:
            return Ring.TRY
        if now < self._mixed_at + LOCK:
            return None
        self._mixed_at = now
        return Ring.MIXED
