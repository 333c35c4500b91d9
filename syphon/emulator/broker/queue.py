"""A message queue with its locks, schedules and expiries: of a queue, a subscription or their dead letters."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Protocol

from syphon.amqp import Value

from ..clock import FOREVER, EmulatorClock, Millis
from .descriptions import DeliverySettings
from .journal import Journal
from .message import BrokeredMessage, StoredState
from .message_store import MessageStore, ReadyQueue
from .refusals import MessageLockLost, MessageNotFound, NotAllowed, Refusal
from .timers import MessageLocks, MessageTimers

DeadLetter = Callable[[BrokeredMessage, dict[str, Value]], None]


class Settlement(IntEnum):
    """What a receiver does with a locked message. Those that can be followed by a delivery come last."""

    COMPLETE = 0
    DEFER = 1
    DEAD_LETTER = 2
    ABANDON = 3
    RELEASE = 4


class Consumer(Protocol):
    """A receiver link, as a message queue uses it."""

    credit: int
    deletes: bool
    owner: object
    """The connection that receives. Links of one owner may settle for each other."""

    def admits(self) -> bool:
        """Whether the link accepts a message now. A fault or a throttle may forbid it."""

    def deliver(self, message: BrokeredMessage) -> None: ...

    def detach(self, why: Refusal) -> None: ...


class MessageQueue(MessageStore):
    """Delivers messages in order to competing consumers."""

    def __init__(
        self,
        path: str,
        terms: DeliverySettings,
        clock: EmulatorClock,
        journal: Journal,
        dead_letter: DeadLetter | None = None,
    ) -> None:
        super().__init__(path, journal)
        self.terms = terms
        self.activated_at: Millis = 0
        self._clock = clock
        self._dead_letter = dead_letter
        self._forward: Callable[[BrokeredMessage], None] | None = None
        self._ready = ReadyQueue()
        self._unreachable: list[BrokeredMessage] = []
        self._locks = MessageLocks()
        self._timers = MessageTimers(clock, self._messages, self._on_timer)
        self._waiting_consumers: deque[Consumer] = deque()
        self._prepare()

    def _prepare(self) -> None:
        """Creates the state that a subclass needs in addition."""

    # --- messages in -----------------------------------------------------------------------------------------------

    def enqueue(self, messages: Iterable[BrokeredMessage]) -> None:
        """Adds messages. Those with a later enqueue time stay scheduled until then."""
        now = self._clock.now()
        for message in messages:
            self._take(message, now)
        self.dispatch()

    def _take(self, message: BrokeredMessage, now: Millis) -> None:
        self._last_ordinal += 1
        message.ordinal = self._last_ordinal
        message.enqueued_at = now
        self._keep(message)
        if message.due > now:
            message.state = StoredState.SCHEDULED
            self._timers.schedule(message)
            self._journal.put(self.path, message)
        else:
            message.state = StoredState.ACTIVE
            self._start_to_live(message, now)
            self._journal.put(self.path, message)
            self._offer(message)

    def _start_to_live(self, message: BrokeredMessage, now: Millis) -> None:
        message.ttl = min(message.ttl, self.terms.default_ttl)
        if message.ttl < FOREVER and self.terms.ages:
            message.expires_at = now + message.ttl
            self._timers.expire(message)

    def cancel(self, sequence: int) -> None:
        """Removes a scheduled message."""
        message = self._find_message(sequence)
        if message is None or message.state is not StoredState.SCHEDULED:
            raise MessageNotFound(f"No scheduled message has the sequence number {sequence}.")
        self._remove(message)

    def restore(self, message: BrokeredMessage) -> None:
        """Adds a message from the journal, as it was before the restart."""
        self.continue_after(message.ordinal)
        self._keep(message)
        if message.state is StoredState.SCHEDULED:
            self._timers.schedule(message)
            return
        if message.expires_at < FOREVER:
            self._timers.expire(message)
        if message.lock_token is not None:
            self._locks[message.lock_token] = message
            self._timers.wake(message.locked_until)
        elif message.state is StoredState.ACTIVE:
            self._offer(message)

    def restored(self) -> None:
        """Sorts the locks by the time they end, after all messages have been restored in the order of their numbers."""
        self._locks.sort()

    # --- messages out ----------------------------------------------------------------------------------------------

    def feed(self, consumer: Consumer) -> None:
        """Delivers to a consumer with credit, or registers it until messages arrive."""
        if consumer not in self._waiting_consumers:
            self._waiting_consumers.append(consumer)
        self.dispatch()

    def leave(self, consumer: Consumer) -> None:
        """Removes a consumer. Its messages stay locked until their locks expire."""
        if consumer in self._waiting_consumers:
            self._waiting_consumers.remove(consumer)

    def dispatch(self) -> None:
        """Delivers ready messages to the waiting consumers in turn."""
        while self._waiting_consumers:
            consumer = self._waiting_consumers[0]
            if consumer.credit <= 0:
                self._waiting_consumers.popleft()
                continue
            message = self._first_of(self._ready)
            if message is None:
                return
            if not consumer.admits():
                self._ready.put_back(message.ordinal)
                if self._waiting_consumers and self._waiting_consumers[0] is consumer:
                    self._waiting_consumers.popleft()
                continue
            self._hand_over(message, consumer)
            if self._waiting_consumers and self._waiting_consumers[0] is consumer:
                self._waiting_consumers.rotate(-1)

    def _first_of(self, ready: ReadyQueue) -> BrokeredMessage | None:
        while (ordinal := ready.pop()) is not None:
            message = self._messages.get(ordinal)
            if message is None or message.lock_token is not None or message.state is not StoredState.ACTIVE:
                continue
            if message.fragment in self.down_fragments:
                self._unreachable.append(message)
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
        self._locks.begin(token, message)
        self._timers.wake(message.locked_until)
        self._journal.touch(self.path, message)

    def receive_deferred(self, sequences: list[int], deletes: bool) -> list[BrokeredMessage]:
        """Receives deferred messages by their sequence numbers, the only way to get them."""
        found = []
        for sequence in dict.fromkeys(sequences):
            message = self._find_message(sequence)
            if message is not None and message.state is StoredState.DEFERRED and message.lock_token is None:
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

    # --- settling --------------------------------------------------------------------------------------------------

    def settle(self, token: bytes, settlement: Settlement, changes: dict[str, Value]) -> None:
        if settlement is Settlement.COMPLETE:
            self.complete(token)
        elif settlement is Settlement.DEFER:
            self.defer(token, changes)
        elif settlement is Settlement.DEAD_LETTER:
            self.reject(token, changes)
        elif settlement is Settlement.ABANDON:
            self.abandon(token, changes)
        else:
            self.release(token)

    def check_settles(self, token: bytes, settlement: Settlement) -> BrokeredMessage:
        """Refuses what `settle` would refuse, and changes nothing. Returns the message."""
        message = self.held(token)
        if settlement is Settlement.DEAD_LETTER and self._dead_letter is None:
            raise NotAllowed(f"Messages of '{self.path}' cannot be dead-lettered.")
        return message

    def complete(self, token: bytes) -> None:
        message = self.held(token)
        del self._locks[token]
        self._remove(message)

    def abandon(self, token: bytes, changes: dict[str, Value] | None = None) -> None:
        """Returns a message after a failed delivery: its delivery count rises by one."""
        self._unlock(self._changed(token, changes), failed=True)
        self.dispatch()

    def release(self, token: bytes) -> None:
        """Returns a message unchanged: the delivery does not count."""
        self._unlock(self.held(token), failed=False)
        self.dispatch()

    def defer(self, token: bytes, changes: dict[str, Value] | None = None) -> None:
        message = self._changed(token, changes)
        message.state = StoredState.DEFERRED
        if self.terms.counts_deliveries:
            message.delivery_count += 1  # counts as a delivery, but never dead-letters the message
        self._unlock(message, failed=False)

    def reject(self, token: bytes, properties: dict[str, Value]) -> None:
        """Moves a message to the dead letters, with the receiver's reason."""
        message = self.check_settles(token, Settlement.DEAD_LETTER)
        del self._locks[token]
        self._move_to_dead_letters(message, properties)

    def renew(self, token: bytes) -> Millis:
        message = self.held(token)
        message.locked_until = self._clock.now() + self.terms.lock_duration
        del self._locks[token]
        self._locks.begin(token, message)
        self._timers.wake(message.locked_until)
        self._journal.touch(self.path, message)
        return message.locked_until

    def lose_lock(self, token: bytes) -> None:
        """Ends a lock as if it had expired now."""
        message = self._locks.get(token)
        if message is not None:
            self._unlock(message, failed=True)
            self.dispatch()

    def held(self, token: bytes) -> BrokeredMessage:
        """The message that is locked with this token. Refuses if the lock has expired."""
        message = self._locks.get(token)
        if message is None or message.locked_until <= self._clock.now():
            raise MessageLockLost(
                "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
                f"the queue '{self.path}'."
            )
        return message

    def _changed(self, token: bytes, changes: dict[str, Value] | None) -> BrokeredMessage:
        message = self.held(token)
        if changes:
            message.set_properties(changes)
            self._journal.put(self.path, message)
        return message

    def _unlock(self, message: BrokeredMessage, failed: bool) -> None:
        assert message.lock_token is not None  # only locked messages get here
        del self._locks[message.lock_token]
        message.lock_token = None
        if failed and self.terms.counts_deliveries:
            message.delivery_count += 1
            most = self.terms.max_delivery_count
            if most is not None and message.delivery_count >= most and self._dead_letter is not None:
                self._move_to_dead_letters(
                    message,
                    {
                        "DeadLetterReason": "MaxDeliveryCountExceeded",
                        "DeadLetterErrorDescription": f"Message could not be consumed after {most} delivery attempts.",
                    },
                )
                return
        if message.expires_at <= self._clock.now() and message.state is StoredState.ACTIVE:
            self._expire(message)
            return
        self._journal.touch(self.path, message)
        if message.state is StoredState.ACTIVE:
            self._offer(message, back=True)

    # --- timers ----------------------------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        """Handles everything that is due: ended locks, scheduled and expired messages."""
        now = self._clock.now()
        self._end_locks(now)
        for message in self._timers.due(now):
            self._activate(message, now)
        for message in self._timers.expired(now):
            # A deferred message expires when a client asks for it, as in the service.
            if message.lock_token is None and message.state is not StoredState.DEFERRED:
                self._expire(message)
        self._trim()
        self._timers.wake(self._next_lock_end())
        self._timers.wake_for_next()
        self.dispatch()

    def _end_locks(self, now: Millis) -> None:
        for message in self._locks.ended(now):
            self._unlock(message, failed=True)

    def _next_lock_end(self) -> Millis:
        return self._locks.next_end()

    def _activate(self, message: BrokeredMessage, now: Millis) -> None:
        """Makes a scheduled message active: it gets a new sequence number at the end of the queue."""
        self._remove(message)
        self.activated_at = now
        message.due = 0
        self._take(message, now)

    def _expire(self, message: BrokeredMessage) -> None:
        if self.terms.dead_letter_on_expiry and self._dead_letter is not None:
            self._move_to_dead_letters(
                message,
                {
                    "DeadLetterReason": "TTLExpiredException",
                    "DeadLetterErrorDescription": "The message expired and was dead lettered.",
                },
            )
        else:
            self._remove(message)

    # --- where messages go -----------------------------------------------------------------------------------------

    def forward(self, onward: Callable[[BrokeredMessage], None] | None) -> None:
        """Forwards messages as soon as they are ready, those that are ready already included. None stops it."""
        self._forward = onward
        if onward is None:
            return
        for message in list(self._messages.values()):
            if message.lock_token is not None or message.state is not StoredState.ACTIVE:
                continue
            if message.fragment in self.down_fragments:
                self._unreachable.append(message)
            else:
                self._offer(message)

    def delete(self, count: int, before: Millis, session_id: str | None = None) -> int:
        """Deletes messages that are ready and were enqueued before a time, oldest first. Returns how many."""
        found = [
            message
            for message in self._messages.values()
            if message.state is StoredState.ACTIVE
            and message.lock_token is None
            and message.enqueued_at < before
            and message.fragment not in self.down_fragments
            and session_id in (None, message.session_id)
        ][:count]
        for message in found:
            self._remove(message)
        return len(found)

    def _offer(self, message: BrokeredMessage, back: bool = False) -> None:
        if self._forward is not None:
            self._remove(message)
            self._forward(message)
        else:
            self._make_ready(message, back)

    def _make_ready(self, message: BrokeredMessage, back: bool) -> None:
        if back:
            self._ready.put_back(message.ordinal)
        else:
            self._ready.join(message.ordinal)

    def _trim(self) -> None:
        self._ready.trim(self._messages.__contains__)

    def _move_to_dead_letters(self, message: BrokeredMessage, properties: dict[str, Value]) -> None:
        self._remove(message)
        assert self._dead_letter is not None  # only a queue with dead letters gets here
        self._dead_letter(message, properties)

    def set_fragments_down(self, fragments: set[int]) -> None:
        """Makes the messages of these fragments unavailable, and those of all others available."""
        self.down_fragments = set(fragments)
        unreachable, self._unreachable = self._unreachable, []
        for message in unreachable:
            if message.ordinal in self._messages:
                self._offer(message, back=True)
        self.dispatch()

    def close(self, why: Refusal) -> None:
        """Detaches all consumers and drops all messages: the entity is deleted."""
        self._timers.stop()
        for consumer in list(self._waiting_consumers):
            consumer.detach(why)
        self._waiting_consumers.clear()
        self._messages.clear()
        self._locks.clear()
