"""Which message of a session is next, in one backlog queue (D21).

The order of a session is that of the sequence numbers in its queue. A message may be sent when no message of its
session with a lower number is left: each was accepted, or has left the queue. So the pump must know every lower number,
however a message comes: messages of a process that has died are still locked, others are deferred. The numbers of a
queue have no gaps; where the pump finds one, it peeks.

No pump relies on being the only one: what another one has forwarded has left the queue, and a peek shows that.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import islice

from syphon.model import Interrupted, Result, SyphonError, Waits
from syphon.servicebus import (
    Connection,
    ManagementLinks,
    MessageState,
    Peeked,
    Peeker,
)
from syphon.time_budget import HELD_CHECK_EVERY, HELD_CHECK_FIRST, HELD_WARNING_AFTER

from .message_transfer import MessageTransfer

log = logging.getLogger(__name__)

SessionKey = tuple[str, str]
"""The destination that messages name (its key), and the session."""


class OrderedSessions:
    """The messages of one queue that have a session, by session and sequence number, as far as they are known.

    A message is known from its arrival or from a peek until it is accepted, dead-lettered, or found to be gone.
    """

    def __init__(
        self,
        node: ManagementLinks,
        session_of: Callable[[Peeked], SessionKey | None],
        in_flight: Mapping[int, MessageTransfer],
        now: Callable[[], float],
    ) -> None:
        """`in_flight` has the messages that the pump has received and not settled, by number."""
        self.has_changed = False
        """Whether messages may have become next, other than by the acceptance of the one before them."""
        self.wants_deferred = False
        """Whether a session waits for a deferred message."""
        self.held_sessions = 0
        """How many sessions wait for a message that is not in flight, as of the last check. Another thread may read it.
        """
        self._node = node
        self._session_of = session_of
        self._in_flight = in_flight
        self._now = now
        self._known: dict[SessionKey, deque[int]] = {}
        self._received: Counter[SessionKey] = Counter()
        """How many messages of each session are in flight."""
        self._covered = 0
        """All messages up to this number are known."""
        self._beyond: set[int] = set()
        """The numbers of messages that have arrived behind a gap."""
        self._peeker: Peeker | None = None
        self._asked_from = 0
        self._check_at = self._again_at = 0.0
        self._check_every = HELD_CHECK_FIRST
        self._held_since: float | None = None

    def reset(self) -> None:
        """Forgets everything: another pump may have served the queue since."""
        self._known.clear()
        self._received.clear()
        self._beyond.clear()
        self._covered = self.held_sessions = 0
        if self._peeker is not None:
            self._peeker.drop()

    # --- messages ------------------------------------------------------------------------------------------------

    def arrived(self, number: int, transfer: MessageTransfer | None) -> None:
        """Takes note of a message that was received; None if it cannot be forwarded."""
        if number == self._covered + 1:
            self._covered = number
            self._pass_known()
        elif number > self._covered:
            self._beyond.add(number)
        key = None if transfer is None else session_key(transfer)
        if key is not None:
            self._received[key] += 1
            self._add(number, key)

    def accepted(self, transfer: MessageTransfer) -> None:
        """The destination has accepted a message: the next one of its session may be sent."""
        key = session_key(transfer)
        if key is not None:
            self._remove(transfer.restored.stamps.sequence_number, key)

    def finished(self, transfer: MessageTransfer, result: Result) -> None:
        """A message is no longer in flight. If it is still in the queue, its session waits for it."""
        key = session_key(transfer)
        if key is None:
            return
        self._received[key] -= 1
        if self._received[key] <= 0:
            del self._received[key]
        if result is not Result.LEFT and self._remove(transfer.restored.stamps.sequence_number, key):
            self.has_changed = True

    def next_of(self, transfers: deque[MessageTransfer] | list[MessageTransfer], most: int) -> int:
        """How many of these messages of one session, in the order of their numbers, can be sent together now."""
        key = session_key(transfers[0])
        if key is None:
            return min(most, len(transfers))
        numbers = iter(self._known.get(key, ()))
        lowest, count = next(numbers, None), 0
        for transfer in islice(transfers, most):
            number = transfer.restored.stamps.sequence_number
            if number > self._covered or (lowest is not None and lowest < number):
                break
            if lowest == number:
                lowest = next(numbers, None)
            count += 1
        return count

    def held(self, most: int) -> Callable[[MessageTransfer], bool] | None:
        """Which messages to leave in the backlog, so that at most `most` wait for messages that are not in flight."""
        held = set(self._held_sessions())
        self.held_sessions = len(held)
        if sum(self._received[key] for key in held) <= most:
            return None
        numbers = sorted(number for key in held for number in self._known[key] if number in self._in_flight)
        first = set(numbers[:most])
        return lambda transfer: session_key(transfer) in held and transfer.restored.stamps.sequence_number not in first

    # --- peeks ---------------------------------------------------------------------------------------------------

    def work(self, connection: Connection) -> None:
        """Peeks at what is missing: the numbers of a gap, and from time to time what sessions wait for."""
        now = self._now()
        if now < self._again_at:
            return
        if self._peeker is None or self._peeker.connection is not connection:
            self._peeker = Peeker(connection, self._node.entity, node=self._node)
        peeker = self._peeker
        if not peeker.is_waiting:
            start = self._next_to_peek(now)
            if start is None:
                return
            self._asked_from = start
            peeker.ask(start)
        try:
            page = peeker.take()
        except Interrupted:
            return  # the next turn retries over new links
        except SyphonError as error:
            log.info("sessions of %s wait, because it cannot be peeked at: %s", self._node.entity, error)
            self._again_at = now + (error.retry_after if isinstance(error, Waits) else HELD_CHECK_EVERY)
            return
        if page is not None:
            self._read(self._asked_from, page)

    def _next_to_peek(self, now: float) -> int | None:
        if self._beyond:
            return self._covered + 1
        if now < self._check_at:
            return None
        missing = [self._known[key][0] for key in self._held_sessions()]
        if not missing:
            self._check_at, self._check_every = now + HELD_CHECK_FIRST, HELD_CHECK_FIRST
            self._held_since = None
            return None
        later = [number for number in missing if number > self._asked_from]
        if later:
            return min(later)
        self._asked_from = 0
        self._warn(len(missing), now)
        self._check_every = min(2 * self._check_every, HELD_CHECK_EVERY)
        self._check_at = now + self._check_every
        return None

    def _warn(self, sessions: int, now: float) -> None:
        """Tells the operator of sessions that wait for longer than a lock lasts."""
        if self._held_since is None:
            self._held_since = now
        elif now - self._held_since > HELD_WARNING_AFTER:
            self._held_since = now
            log.warning(
                "%s: %d sessions wait for earlier messages: another receiver has locked them, or their destination "
                "does not accept them",
                self._node.entity,
                sessions,
            )

    def _read(self, start: int, page: list[Peeked]) -> None:
        held = self._held_sessions()
        heads = {self._known[key][0] for key in held}
        present = {message.sequence_number for message in page}
        last = max(present, default=None)
        for message in page:
            number = message.sequence_number
            if number in heads and message.state is MessageState.DEFERRED:
                self.wants_deferred = True
            if number > self._covered and message.state is not MessageState.SCHEDULED:
                key = self._session_of(message)
                if key is not None:
                    self._add(number, key)
        for key in held:
            self._forget_gone(key, start, last, present)
        if start <= self._covered + 1:
            self._covered = max(self._covered, max(self._beyond, default=0) if last is None else last)
            self._pass_known()
            self.has_changed = True
        self._asked_from = self._asked_from if last is None else last

    def _forget_gone(self, key: SessionKey, start: int, last: int | None, present: set[int]) -> None:
        for number in list(self._known[key]):
            if last is not None and number > last:
                break
            if number >= start and number not in present and number not in self._in_flight:
                self._remove(number, key)
                self.has_changed = True
                self._check_at, self._check_every = 0.0, HELD_CHECK_FIRST

    def _held_sessions(self) -> list[SessionKey]:
        """The sessions with messages in flight that wait for one which is not."""
        return [key for key in self._received if key in self._known and self._known[key][0] not in self._in_flight]

    def _pass_known(self) -> None:
        """Goes on over the numbers that have arrived behind a gap which is closed."""
        if not self._beyond:
            return
        while self._covered + 1 in self._beyond:
            self._covered += 1
        self._beyond = {number for number in self._beyond if number > self._covered}
        self.has_changed = True

    def _add(self, number: int, key: SessionKey) -> None:
        numbers = self._known.get(key)
        if numbers is None:
            self._known[key] = deque((number,))
        elif number > numbers[-1]:
            numbers.append(number)
        else:
            place = bisect_left(numbers, number)
            if numbers[place] != number:
                numbers.insert(place, number)

    def _remove(self, number: int, key: SessionKey) -> bool:
        """Removes a number; False if it was not known."""
        numbers = self._known.get(key)
        if numbers is None:
            return False
        if numbers[0] == number:
            numbers.popleft()
        elif number in numbers:
            numbers.remove(number)
        else:
            return False
        if not numbers:
            del self._known[key]
        return True


def session_key(transfer: MessageTransfer) -> SessionKey | None:
    """The session of a message; None if it has none."""
    session = transfer.restored.session_id
    return None if session is None else (transfer.restored.destination.key, session)
