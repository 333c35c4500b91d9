"""One line of messages with its locks, schedules and expiries: a queue, a subscription or a dead-letter queue.

All times come from the clock, and one timer stands for the next thing that is due, whatever it is.
"""

from __future__ import annotations

import bisect
import heapq
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from syphon.amqp import Value

from ..clock import FOREVER, Clock, Millis, Timer
from .journal import Journal
from .line import Line
from .message import ORDINAL_MASK, BrokeredMessage, State
from .refusals import MessageLockLost, MessageNotFound, NotAllowed, Refusal, TimedOut

DeadLetter = Callable[[BrokeredMessage, dict[str, Value]], None]


class Consumer(Protocol):
    """A receiver link, as a queue sees it."""

    credit: int
    deletes: bool
    owner: object
    """Who receives: links of one owner may speak for each other."""

    def admits(self) -> bool:
        """Whether a message may be handed over now: a fault or a throttle may say no."""

    def deliver(self, message: BrokeredMessage) -> None: ...

    def detach(self, why: Refusal) -> None: ...


@dataclass(frozen=True, slots=True)
class Terms:
    """What an entity's description says about its messages."""

    lock_duration: Millis = 60_000
    default_ttl: Millis = FOREVER
    max_delivery_count: int | None = None
    dead_letter_on_expiry: bool = False
    requires_session: bool = False
    ages: bool = True
    """Dead letters do not: they wait for somebody to look at them, however long that takes."""


class MessageQueue:
    """Messages in order, for competing consumers."""

    def __init__(
        self, path: str, terms: Terms, clock: Clock, journal: Journal, dead_letter: DeadLetter | None = None
    ) -> None:
        self.path = path
        self.terms = terms
        self.size = 0
        self.activated_at: Millis = 0
        self.down_fragments: set[int] = set()
        self._forward: Callable[[BrokeredMessage], None] | None = None
        self._clock = clock
        self._journal = journal
        self._dead_letter = dead_letter
        self._messages: dict[int, BrokeredMessage] = {}
        self._order: list[int] = []
        self._last_ordinal = 0
        self._line = Line()
        self._stranded: list[BrokeredMessage] = []
        self._locks: OrderedDict[bytes, BrokeredMessage] = OrderedDict()
        self._expiries: list[tuple[Millis, int]] = []
        self._schedule: list[tuple[Millis, int]] = []
        self._hungry: deque[Consumer] = deque()
        self._timer: Timer | None = None
        self._wake_at: Millis = FOREVER
        self._prepare()

    def _prepare(self) -> None:
        """For those who keep more than a plain queue does."""

    # --- messages in ---------------------------------------------------------------------------------------------

    def enqueue(self, messages: Iterable[BrokeredMessage]) -> None:
        """Takes messages in, for now or (those that are due later) for their time."""
        now = self._clock.now()
        for message in messages:
            self._take(message, now)
        self.dispatch()

    def _take(self, message: BrokeredMessage, now: Millis) -> None:
        self._last_ordinal += 1
        message.ordinal = self._last_ordinal
        message.enqueued_at = now
        self._messages[message.ordinal] = message
        self._order.append(message.ordinal)
        self.size += message.size
        if message.due > now:
            message.state = State.SCHEDULED
            heapq.heappush(self._schedule, (message.due, message.ordinal))
            self._wake(message.due)
            self._journal.put(self.path, message)
        else:
            message.state = State.ACTIVE
            self._start_to_live(message, now)
            self._journal.put(self.path, message)
            self._offer(message)

    def _start_to_live(self, message: BrokeredMessage, now: Millis) -> None:
        message.ttl = min(message.ttl, self.terms.default_ttl)
        if message.ttl < FOREVER and self.terms.ages:
            message.expires_at = now + message.ttl
            if len(self._expiries) > 2 * len(self._messages) + 1024:
                self._expiries = [entry for entry in self._expiries if entry[1] in self._messages]
                heapq.heapify(self._expiries)
            heapq.heappush(self._expiries, (message.expires_at, message.ordinal))
            self._wake(message.expires_at)

    def cancel(self, sequence: int) -> None:
        """Takes back a scheduled message."""
        message = self._numbered(sequence)
        if message is None or message.state is not State.SCHEDULED:
            raise MessageNotFound(f"No scheduled message has the sequence number {sequence}.")
        self._remove(message)

    def restore(self, message: BrokeredMessage) -> None:
        """Puts back a message from the journal, as it was, after a restart."""
        self._last_ordinal = max(self._last_ordinal, message.ordinal)
        self._messages[message.ordinal] = message
        self._order.append(message.ordinal)
        self.size += message.size
        if message.state is State.SCHEDULED:
            heapq.heappush(self._schedule, (message.due, message.ordinal))
            self._wake(message.due)
            return
        if message.expires_at < FOREVER:
            heapq.heappush(self._expiries, (message.expires_at, message.ordinal))
            self._wake(message.expires_at)
        if message.lock_token is not None:
            self._locks[message.lock_token] = message
            self._wake(message.locked_until)
        elif message.state is State.ACTIVE:
            self._offer(message)

    def restored(self) -> None:
        """All messages are back. They came by their numbers; their locks stand in the order in which they end."""
        self._sort_locks()

    def continue_after(self, ordinal: int) -> None:
        """Numbers that were given before a restart are not given again."""
        self._last_ordinal = max(self._last_ordinal, ordinal)

    # --- messages out --------------------------------------------------------------------------------------------

    def feed(self, consumer: Consumer) -> None:
        """The consumer has credit: it gets what is there, or waits for it."""
        if consumer not in self._hungry:
            self._hungry.append(consumer)
        self.dispatch()

    def leave(self, consumer: Consumer) -> None:
        """The consumer wants nothing more. What it has locked stays locked until the lock runs out."""
        if consumer in self._hungry:
            self._hungry.remove(consumer)

    def dispatch(self) -> None:
        """Hands out messages while there are any and somebody wants one, to each in turn."""
        while self._hungry:
            consumer = self._hungry[0]
            if consumer.credit <= 0:
                self._hungry.popleft()
                continue
            message = self._first_of(self._line)
            if message is None:
                return
            if not consumer.admits():
                self._line.go_back(message.ordinal)
                if self._hungry and self._hungry[0] is consumer:
                    self._hungry.popleft()
                continue
            self._hand_over(message, consumer)
            if self._hungry and self._hungry[0] is consumer:
                self._hungry.rotate(-1)

    def _first_of(self, line: Line) -> BrokeredMessage | None:
        while (ordinal := line.pop()) is not None:
            message = self._messages.get(ordinal)
            if message is None or message.lock_token is not None or message.state is not State.ACTIVE:
                continue
            if message.fragment in self.down_fragments:
                self._stranded.append(message)
                continue
            return message
        return None

    def _hand_over(self, message: BrokeredMessage, consumer: Consumer) -> None:
        if consumer.deletes:
            self._remove(message)
        else:
            self._lock(message)
        consumer.deliver(message)

    def _lock(self, message: BrokeredMessage) -> None:
        message.lock_token = token = os.urandom(16)
        message.locked_until = self._clock.now() + self.terms.lock_duration
        self._line_up(token, message)
        self._wake(message.locked_until)
        self._journal.touch(self.path, message)

    def _line_up(self, token: bytes, message: BrokeredMessage) -> None:
        """Puts a lock that begins now behind all others."""
        latest = next(reversed(self._locks.values()), message)
        self._locks[token] = message
        if latest.locked_until > message.locked_until:  # locks were made shorter, and those from before last longer
            self._sort_locks()

    def _sort_locks(self) -> None:
        self._locks = OrderedDict(sorted(self._locks.items(), key=lambda lock: lock[1].locked_until))

    def _numbered(self, sequence: int) -> BrokeredMessage | None:
        message = self._messages.get(sequence & ORDINAL_MASK)
        if message is None or message.sequence != sequence:
            return None
        if message.fragment in self.down_fragments:
            raise TimedOut(f"Fragment {message.fragment} of '{self.path}', with message {sequence}, is not available.")
        return message

    def receive_deferred(self, sequences: list[int], deletes: bool) -> list[BrokeredMessage]:
        """Deferred messages by their numbers; they are only to be had this way."""
        found = []
        for sequence in dict.fromkeys(sequences):
            message = self._numbered(sequence)
            if message is not None and message.state is State.DEFERRED and message.lock_token is None:
                if message.expires_at > self._clock.now():
                    found.append(message)
                    continue
                self._expire(message)
            raise MessageNotFound(f"No deferred message has the sequence number {sequence}.")
        for message in found:
            if deletes:
                self._remove(message)
            else:
                self._lock(message)
        return found

    def peek(self, sequence: int, count: int, session_id: str | None = None) -> list[BrokeredMessage]:
        """Messages from a sequence number on, locked, deferred and scheduled ones too; nothing changes by it."""
        found: list[BrokeredMessage] = []
        place = bisect.bisect_left(self._order, max(0, sequence) & ORDINAL_MASK)
        while place < len(self._order) and len(found) < count:
            message = self._messages.get(self._order[place])
            place += 1
            if message is None or message.fragment in self.down_fragments:
                continue
            if session_id is None or message.session_id == session_id:
                found.append(message)
        return found

    # --- settling ------------------------------------------------------------------------------------------------

    def holds(self, token: bytes) -> bool:
        return token in self._locks

    def complete(self, token: bytes) -> None:
        message = self._held(token)
        del self._locks[token]
        self._remove(message)

    def abandon(self, token: bytes, changes: dict[str, Value] | None = None) -> None:
        """The receiver failed with it: one delivery more, and back into the line."""
        self._unlock(self._changed(token, changes), failed=True)
        self.dispatch()

    def release(self, token: bytes) -> None:
        """The receiver did nothing with it: back as it was."""
        self._unlock(self._held(token), failed=False)
        self.dispatch()

    def defer(self, token: bytes, changes: dict[str, Value] | None = None) -> None:
        message = self._changed(token, changes)
        message.state = State.DEFERRED
        message.delivery_count += 1  # a delivery has ended without success, but never for the last time
        self._unlock(message, failed=False)

    def reject(self, token: bytes, properties: dict[str, Value]) -> None:
        """To the dead letters, with the receiver's reason."""
        message = self._held(token)
        if self._dead_letter is None:
            raise NotAllowed(f"Messages of '{self.path}' cannot be dead-lettered.")
        del self._locks[token]
        self._bury(message, properties)

    def renew(self, token: bytes) -> Millis:
        message = self._held(token)
        message.locked_until = self._clock.now() + self.terms.lock_duration
        del self._locks[token]
        self._line_up(token, message)
        self._wake(message.locked_until)
        self._journal.touch(self.path, message)
        return message.locked_until

    def lose_lock(self, token: bytes) -> None:
        """As if the lock had run out this instant."""
        message = self._locks.get(token)
        if message is not None:
            self._unlock(message, failed=True)
            self.dispatch()

    def _held(self, token: bytes) -> BrokeredMessage:
        message = self._locks.get(token)
        if message is None or message.locked_until <= self._clock.now():
            raise MessageLockLost(
                "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
                f"the queue '{self.path}'."
            )
        return message

    def _changed(self, token: bytes, changes: dict[str, Value] | None) -> BrokeredMessage:
        message = self._held(token)
        if changes:
            message.set_properties(changes)
            self._journal.put(self.path, message)
        return message

    def _unlock(self, message: BrokeredMessage, failed: bool) -> None:
        assert message.lock_token is not None  # only locked messages get here
        del self._locks[message.lock_token]
        message.lock_token = None
        if failed:
            message.delivery_count += 1
            most = self.terms.max_delivery_count
            if most is not None and message.delivery_count >= most and self._dead_letter is not None:
                self._bury(message, {
                    "DeadLetterReason": "MaxDeliveryCountExceeded",
                    "DeadLetterErrorDescription": f"Message could not be consumed after {most} delivery attempts.",
                })  # fmt: skip
                return
        if message.expires_at <= self._clock.now() and message.state is State.ACTIVE:
            self._expire(message)
            return
        self._journal.touch(self.path, message)
        if message.state is State.ACTIVE:
            self._offer(message, back=True)

    # --- what time does ------------------------------------------------------------------------------------------

    def _wake(self, when: Millis) -> None:
        if when < self._wake_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wake_at = when
            self._timer = self._clock.call_at(when, self._ring)

    def _ring(self) -> None:
        self._wake_at = FOREVER
        self._timer = None
        now = self._clock.now()
        self._end_locks(now)
        while self._schedule and self._schedule[0][0] <= now:
            self._activate(heapq.heappop(self._schedule)[1], now)
        while self._expiries and self._expiries[0][0] <= now:
            message = self._messages.get(heapq.heappop(self._expiries)[1])
            # Deferred ones are looked at when somebody asks for them, as in the service.
            if message is not None and message.lock_token is None and message.state is not State.DEFERRED:
                self._expire(message)
        self._trim()
        for due in (self._next_lock_end(), *(heap[0][0] for heap in (self._schedule, self._expiries) if heap)):
            self._wake(due)
        self.dispatch()

    def _end_locks(self, now: Millis) -> None:
        # A new or renewed lock stands behind all others: the first to run out stands first.
        while self._locks:
            message = next(iter(self._locks.values()))
            if message.locked_until > now:
                break
            self._unlock(message, failed=True)

    def _next_lock_end(self) -> Millis:
        return next(iter(self._locks.values())).locked_until if self._locks else FOREVER

    def _activate(self, ordinal: int, now: Millis) -> None:
        """A scheduled message's time has come: it joins the end of the line under a new number."""
        message = self._messages.get(ordinal)
        if message is None:
            return
        self._remove(message)
        self.activated_at = now
        message.due = 0
        self._take(message, now)

    def _expire(self, message: BrokeredMessage) -> None:
        if self.terms.dead_letter_on_expiry and self._dead_letter is not None:
            self._bury(message, {
                "DeadLetterReason": "TTLExpiredException",
                "DeadLetterErrorDescription": "The message expired and was dead lettered.",
            })  # fmt: skip
        else:
            self._remove(message)

    # --- the shelf -----------------------------------------------------------------------------------------------

    def forward(self, onward: Callable[[BrokeredMessage], None] | None) -> None:
        """From now on messages are handed on as soon as they could be received, also those that wait already."""
        self._forward = onward
        while onward is not None and (message := self._first_of(self._line)) is not None:
            self._offer(message)

    def _offer(self, message: BrokeredMessage, back: bool = False) -> None:
        if self._forward is not None:
            self._remove(message)
            self._forward(message)
        elif back:
            self._line.go_back(message.ordinal)
        else:
            self._line.join(message.ordinal)

    def _trim(self) -> None:
        self._line.trim(self._messages.__contains__)

    def _bury(self, message: BrokeredMessage, properties: dict[str, Value]) -> None:
        self._remove(message)
        assert self._dead_letter is not None  # a queue without dead letters buries nothing
        self._dead_letter(message, properties)

    def _remove(self, message: BrokeredMessage) -> None:
        del self._messages[message.ordinal]
        self.size -= message.size
        self._journal.remove(self.path, message.ordinal)
        if len(self._order) > 2 * len(self._messages) + 1024:
            self._order = list(self._messages)

    def set_fragments_down(self, fragments: set[int]) -> None:
        """These fragments cannot be reached, and so not their messages; those of all others can."""
        self.down_fragments = set(fragments)
        stranded, self._stranded = self._stranded, []
        for message in stranded:
            if message.ordinal in self._messages:
                self._offer(message, back=True)
        self.dispatch()

    def count(self, state: State) -> int:
        return sum(1 for message in self._messages.values() if message.state is state)

    def __len__(self) -> int:
        return len(self._messages)

    def close(self, why: Refusal) -> None:
        """The entity is gone."""
        if self._timer is not None:
            self._timer.cancel()
        for consumer in list(self._hungry):
            consumer.detach(why)
        self._hungry.clear()
        self._messages.clear()
        self._locks.clear()
