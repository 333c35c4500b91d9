"""The deferred messages of a queue that a pump serves: found by a peek, and received by their sequence numbers.

No link delivers a deferred message. A person or the pump itself has deferred it, and only a peek shows it.
If the hand-over says so, the pump peeks through the queue once, when the link delivers little: earlier, it would read
a deep queue twice. It receives the messages that can be moved, in groups as its window allows,
and forwards them like all others. After a crash they are still deferred, and can be received when their locks expire.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import NamedTuple

from syphon.model import Interrupted, SyphonError, Waits
from syphon.servicebus import (
    FIRST_OF_PARTITION,
    Arrival,
    Connection,
    DeferredReceiver,
    LinkState,
    ManagementLinks,
    MessageState,
    Peeked,
    Peeker,
    Settled,
)
from syphon.time_budget import DEFERRED_RETRY_AFTER

from .movable_messages import MovableMessages

log = logging.getLogger(__name__)

PER_REQUEST = 100
"""Messages that are received with one request, at most."""
REQUEST_BYTES = 512 * 1024
"""The size of all messages of a request, unless it is for one message."""
FOUND = 500
"""Messages that were found and wait to be received. With more, the pump peeks no further."""


class DeferredMessage(NamedTuple):
    """A deferred message that a peek has found."""

    number: int
    size: int
    destination: str
    """The key of its destination; empty if it names none."""


class DeferredIntake:
    """Finds and receives the deferred messages of one queue."""

    def __init__(self, node: ManagementLinks, now: Callable[[], float], movable: MovableMessages) -> None:
        self._node = node
        self._now = now
        self._movable = movable
        self.waiting: set[str] = set()
        """The destinations (their keys) that may have deferred messages, and were unavailable."""
        self._is_wanted = False
        """Whether the service is to scan for deferred messages and has not begun to."""
        self._next: int | None = None
        """The sequence number from which it peeks; None if it does not."""
        self._found: deque[DeferredMessage] = deque()
        self._seen: set[int] = set()
        """Numbers of a partitioned queue that it has found: there a peek may show a message twice."""
        self._tried_at: dict[str, float] = {}
        """When a message was last received for a destination that has accepted none yet."""
        self._receivers: list[DeferredReceiver] = []
        """The last one receives. The others have lost their links, and their settlements are not all taken."""
        self._peeker: Peeker | None = None
        self._again_at = 0.0

    # --- its service ---------------------------------------------------------------------------------------------

    def begin(self, is_wanted: bool, waiting: Iterable[str]) -> None:
        """Begins a service, which scans for deferred messages at once if that is wanted."""
        self.stop()
        self._is_wanted, self.waiting = is_wanted, set(waiting)

    def begin_scan(self) -> None:
        """Begins to scan the queue, if that is wanted: few messages come over the link."""
        if self._is_wanted:
            self._is_wanted, self._next = False, 1
            self._seen.clear()

    def scan_if_idle(self) -> None:
        """Scans the queue at once, if it does not do so already."""
        if self._next is None and not self._found and self.is_drained:
            self._is_wanted = True
            self.begin_scan()

    def stop(self) -> None:
        """Receives no more. Requested messages still arrive."""
        self._is_wanted, self._next = False, None
        self.waiting = set()
        self._found.clear()
        self._tried_at.clear()
        if self._peeker is not None:
            self._peeker.drop()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is found that can be moved, and no scan is running."""
        is_scanning = self._is_wanted or self._next is not None or bool(self._found)
        return not is_scanning and self.is_drained and not any(map(self._movable.can_move, self.waiting))

    @property
    def is_drained(self) -> bool:
        """Whether no message is on the way."""
        return not any(receiver.requested or receiver.arrivals for receiver in self._receivers)

    @property
    def requested(self) -> int:
        """How many messages are on the way."""
        return self._receivers[-1].requested if self._receivers else 0

    # --- messages ------------------------------------------------------------------------------------------------

    def next_arrival(self) -> Arrival | None:
        return next((receiver.arrivals.popleft() for receiver in self._receivers if receiver.arrivals), None)

    def next_settled(self) -> Settled | None:
        return next((receiver.settled.popleft() for receiver in self._receivers if receiver.settled), None)

    def flush(self) -> None:
        """Sends the settlements of this turn. To be called every turn."""
        for receiver in self._receivers:
            receiver.flush()
        self._receivers = [
            receiver
            for receiver in self._receivers
            if receiver.state is LinkState.OPEN or receiver.settled or receiver.arrivals
        ]

    def stop_awaiting(self, requested_before: float) -> None:
        """Counts settlements as unknown that the service has not answered since then."""
        for receiver in self._receivers:
            receiver.stop_awaiting(requested_before)

    def close(self) -> None:
        """Forgets everything. The owner closes the links of the management node."""
        self.stop()
        self._peeker = None
        self._receivers.clear()

    # --- a round of work -----------------------------------------------------------------------------------------

    def work(self, connection: Connection, room: int) -> None:
        """Scans on through the queue, and requests as many messages as there is room for."""
        self._take_refused()
        self._check_waiting()
        if self._now() < self._again_at:
            return
        if self._next is not None and len(self._found) < FOUND:
            self._peek(connection)
        if self._found and room > 0:
            self._receive(connection, room)

    def _check_waiting(self) -> None:
        """Scans for deferred messages when a destination that may have some is available again."""
        for key in [key for key in self.waiting if self._movable.can_move(key)]:
            if self._movable.is_proven(key) or not self._movable.prove(key):
                self.waiting.discard(key)
                self._is_wanted = True

    def _peek(self, connection: Connection) -> None:
        if self._peeker is None or self._peeker.connection is not connection:
            self._peeker = Peeker(connection, self._node.entity, node=self._node)
        peeker = self._peeker
        if not peeker.is_waiting:
            assert self._next is not None  # `work` has checked
            peeker.ask(self._next)
        try:
            page = peeker.take()
        except Interrupted:
            return  # the next turn retries over new links
        except SyphonError as error:
            self._wait(error)
            return
        if page:
            self._read(page)
            self._next = max(message.sequence_number for message in page) + 1
        elif page is not None:
            self._next = None

    def _read(self, page: list[Peeked]) -> None:
        for message in page:
            number = message.sequence_number
            if message.state is not MessageState.DEFERRED or number in self._seen:
                continue
            if number >= FIRST_OF_PARTITION:
                self._seen.add(number)
            destination = self._movable.destination_key(message)
            if destination is not None:
                self._found.append(DeferredMessage(number, len(message.payload), destination))

    def _receive(self, connection: Connection, room: int) -> None:
        receiver = self._receiver(connection)
        chosen = self._chosen(min(room - receiver.requested, PER_REQUEST))
        for _, group in groupby(chosen, lambda found: found.number // FIRST_OF_PARTITION):
            receiver.receive([found.number for found in group])

    def _receiver(self, connection: Connection) -> DeferredReceiver:
        if not self._receivers or self._receivers[-1].state is LinkState.LOST:
            self._receivers.append(DeferredReceiver(self._node, connection.wire))
        return self._receivers[-1]

    def _chosen(self, most: int) -> list[DeferredMessage]:
        """Takes the next messages that can be received together.

        If a destination has accepted nothing yet, one message shows whether it does: the others would be received for
        nothing. A message whose destination has become unavailable is skipped: a later service finds it again.
        """
        chosen: list[DeferredMessage] = []
        size = 0
        for _ in range(len(self._found)):
            if len(chosen) >= most:
                break
            found = self._found.popleft()
            if not self._movable.can_move(found.destination):
                continue
            if chosen and size + found.size > REQUEST_BYTES:
                self._found.appendleft(found)
                break
            if self._may_receive(found):
                chosen.append(found)
                size += found.size
            else:
                self._found.append(found)
        return sorted(chosen)

    def _may_receive(self, found: DeferredMessage) -> bool:
        if self._movable.is_proven(found.destination):
            return True
        if self._movable.prove(found.destination):
            return False
        now = self._now()
        if now < self._tried_at.get(found.destination, now - DEFERRED_RETRY_AFTER) + DEFERRED_RETRY_AFTER:
            return False
        self._tried_at[found.destination] = now
        return True

    def _take_refused(self) -> None:
        for receiver in self._receivers:
            while receiver.refused:
                _, error = receiver.refused.popleft()
                self._wait(error)

    def _wait(self, error: SyphonError) -> None:
        """Scans the queue again after a delay: what could not be received is still there."""
        log.info("deferred messages of %s cannot be received: %s", self._node.entity, error)
        self._next = 1 if self._next is None else self._next
        self._again_at = self._now() + (error.retry_after if isinstance(error, Waits) else DEFERRED_RETRY_AFTER)
