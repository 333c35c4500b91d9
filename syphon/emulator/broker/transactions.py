"""Transactions: sends and settlements that take effect together or not at all.

An operation in a transaction is checked at once and carried out at the commit. The commit checks all operations again
before it carries out the first, so it cannot stop halfway, and the journal writes the changes of one turn of the event
loop together. An operation that is not committed exists in memory only, so a restart rolls it back.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable

from syphon.amqp import Value

from ..clock import EmulatorClock, Millis, Timer
from .entities import QueueEntity, TopicEntity
from .message import BrokeredMessage
from .queue import MessageQueue, Settlement
from .refusals import MessageLockLost, NotAllowed, QuotaExceeded, Refusal, TransactionRolledBack, TransactionUnknown

FindEntity = Callable[[str], QueueEntity | TopicEntity]

MOST_MESSAGES = 100
MOST_OPEN = 1000
"""Transactions of one connection. A connection needs no token to declare one."""
TIMEOUT: Millis = 120_000
"""From the first operation of a transaction until it is rolled back."""


class Transaction:
    """The operations of one transaction, before it is committed or rolled back.

    All of them belong to one top-level entity, and to one fragment of it. A message for another entity is sent through
    that entity: `via` names it.
    """

    def __init__(self, find: FindEntity) -> None:
        self.id = uuid.uuid4().bytes
        self.entity: str | None = None
        self._find = find
        self._fragment: int | None = None
        self._count = 0
        self._sends: list[tuple[str, list[BrokeredMessage], int | None]] = []
        self._settlements: dict[tuple[MessageQueue, bytes], tuple[Settlement, dict[str, Value]]] = {}

    def send(self, via: str, path: str, messages: list[BrokeredMessage]) -> None:
        self._enter(via)
        if self._count + len(messages) > MOST_MESSAGES:
            raise QuotaExceeded(f"Cannot send more than {MOST_MESSAGES} messages in a single transaction.")
        own = path.lower() == via
        self._find(path).check(messages, self._fragment if own else None)
        if own:
            self._stay_in(message.fragment for message in messages)
        self._sends.append((path, messages, self._fragment if own else None))
        self._count += len(messages)

    def settle(
        self, via: str, queue: MessageQueue, token: bytes, settlement: Settlement, changes: dict[str, Value]
    ) -> None:
        self._enter(via)
        message = queue.check_settles(token, settlement)
        if (queue, token) in self._settlements:
            raise MessageLockLost("The message has been settled already in this transaction.")
        self._stay_in([message.fragment])
        self._settlements[queue, token] = settlement, changes

    def commit(self) -> None:
        """Carries out all operations, or none and raises."""
        try:
            for path, messages, fragment in self._sends:
                self._find(path).check(messages, fragment)
            for (queue, token), (settlement, _) in self._settlements.items():
                queue.check_settles(token, settlement)
        except Refusal as refusal:
            raise TransactionRolledBack(f"The transaction was rolled back. {refusal.description}") from None
        for (queue, token), (settlement, changes) in sorted(self._settlements.items(), key=lambda item: item[1][0]):
            # An abandoned message is delivered again, and a fault then may end a session whose messages follow here:
            # those have returned to their queue already.
            with contextlib.suppress(Refusal):
                queue.settle(token, settlement, changes)
        for path, messages, _ in self._sends:
            self._find(path).accept(messages)

    def lose_locks(self) -> None:
        """Ends the locks of the messages that the transaction settles, as if they had expired now."""
        for queue, token in list(self._settlements):
            queue.lose_lock(token)

    def _enter(self, via: str) -> None:
        if self.entity not in (None, via):
            raise NotAllowed("Local transactions cannot span multiple top-level entities such as queue or topic.")
        self.entity = via

    def _stay_in(self, fragments: Iterable[int]) -> None:
        for fragment in fragments:
            if self._fragment not in (None, fragment):
                raise NotAllowed("Local transactions cannot span multiple entities or partitions.")
            self._fragment = fragment


class OpenTransactions:
    """The transactions of one connection that are not discharged yet."""

    def __init__(self, clock: EmulatorClock, find: FindEntity) -> None:
        self._clock = clock
        self._find = find
        self._open: dict[bytes, Transaction] = {}
        self._timers: dict[bytes, Timer] = {}

    def declare(self) -> bytes:
        if len(self._open) >= MOST_OPEN:
            raise QuotaExceeded(f"This connection has {MOST_OPEN} open transactions, and cannot have more.")
        transaction = Transaction(self._find)
        self._open[transaction.id] = transaction
        return transaction.id

    def use(self, id: bytes) -> Transaction:
        """The transaction in which an operation takes part. The first operation starts its timer."""
        transaction = self._open.get(id)
        if transaction is None:
            raise TransactionUnknown("Transaction hasn't been declared yet, or has already been discharged.")
        if id not in self._timers:
            self._timers[id] = self._clock.call_at(self._clock.now() + TIMEOUT, lambda: self._time_out(id))
        return transaction

    def _time_out(self, id: bytes) -> None:
        self.roll_back(id)

    def entity_of(self, id: bytes) -> str:
        """The entity to which the transaction belongs, or an empty text."""
        transaction = self._open.get(id)
        return (transaction.entity if transaction is not None else None) or ""

    def lose_locks(self, id: bytes) -> None:
        if id in self._open:
            self._open[id].lose_locks()

    def discharge(self, id: bytes, fail: bool) -> None:
        """Commits the transaction, or rolls it back. It is over even if the commit is refused."""
        transaction = self.roll_back(id)
        if transaction is None:
            raise TransactionUnknown("Transaction is not declared.")
        if not fail:
            transaction.commit()

    def roll_back(self, id: bytes) -> Transaction | None:
        """Ends a transaction without its operations. Locked messages stay locked, and may be settled again."""
        timer = self._timers.pop(id, None)
        if timer is not None:
            timer.cancel()
        return self._open.pop(id, None)
