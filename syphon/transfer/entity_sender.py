"""Sends messages to one entity that were not received, such as rows of a table, as the pump does.

It has the sending half of a pump: batches of one key, many in flight at once, retries, back-offs. A message counts as
sent when its entity has accepted it. If the outcome of a send is unknown, the message is sent again under the same id
(D10): at least once, and never less. Nothing is settled.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from syphon.amqp import Value
from syphon.backlog import BrokerStamps, Restored
from syphon.model import (
    DestinationDisabled,
    DestinationMissing,
    DestinationSilent,
    EntityPath,
    Faulted,
    SyphonError,
)
from syphon.servicebus import Namespace, wait_for_traffic
from syphon.time_budget import OPENING_TURN, OWNER_AWAY_AFTER, PUMP_TICK, PUMP_TURN

from .breaker import Available, Rejecting
from .connection_suspects import MessageKey
from .destination import Destination, SendResults
from .destinations import Destinations
from .message_transfer import MessageTransfer
from .pump_options import PumpOptions
from .traces import Traces
from .unsent import MOST_IN_BATCH


class OutgoingMessage(MessageTransfer):
    """A message to send that was not received: nothing is settled when it has arrived."""

    __slots__ = ("number",)

    def __init__(
        self, number: int, payload: bytes, message_id: Value, session_id: str | None, partition_key: str | None
    ) -> None:
        """`number` tells its owner which one it is."""
        self.number = number
        self.size = len(payload)
        self.restored = Restored(payload, _ANYWHERE, message_id, session_id, partition_key, self.size, _NO_STAMPS)
        self.possible_duplicate = False
        self.forwarded_at = self.trace = self.renamed_to = None

    @property
    def key(self) -> MessageKey:
        return "", self.number

    @property
    def is_late(self) -> bool:
        return False  # it has no lock


_ANYWHERE, _NO_STAMPS = EntityPath.of(""), BrokerStamps()
Refused = Callable[[OutgoingMessage, SyphonError], None]
"""Called with each message the entity rejects permanently, and why. It may raise."""


class EntitySender:
    """Sends to one queue or topic, in one thread. Its owner makes messages while others are in flight."""

    def __init__(
        self,
        namespace: Namespace,
        path: str,
        refused: Refused,
        patience: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: seconds for which it goes on while the entity is unavailable."""
        self.accepted = 0
        self.possible_duplicates = 0
        """Accepted messages whose first sending may have arrived, too."""
        self._namespace = namespace
        self._options = PumpOptions()
        self._destinations = Destinations(self._options, Traces(), lambda _: None)
        found = self._destinations.find(EntityPath.of(path))
        assert isinstance(found, Destination)  # there is no objection to any
        self._destination = found
        self._refused = refused
        self._patience = patience
        self._now = now
        self._left: deque[MessageTransfer] = deque()
        """Messages that could not be sent, until the entity is available again."""
        self._because: SyphonError | None = None
        self._offered = 0
        self._in_flight = self._bytes_in_flight = 0
        self._ticked_at = 0.0
        self._moved_at = self._turned_at = now()

    def send(self, message: OutgoingMessage) -> None:
        """Sends a message soon. Waits if too many are in flight. Raises if the entity cannot be sent to."""
        self._destinations.offer(self._destination, message)
        self._in_flight += 1
        self._bytes_in_flight += message.size
        self._offered += 1
        if self._offered >= MOST_IN_BATCH:
            self._offered = 0
            self._turn(0.0)
        while self._in_flight >= self._options.window or self._bytes_in_flight >= self._options.window_bytes:
            self._turn(PUMP_TURN)

    def finish(self) -> None:
        """Waits until every message was accepted or refused."""
        while self._in_flight:
            self._turn(PUMP_TURN)

    def close(self) -> None:
        self._destinations.close()
        self._namespace.close()

    def _turn(self, seconds: float) -> None:
        """Reads and writes for a moment, and hears what became of messages."""
        connection, now = self._namespace.connection(), self._now()
        if connection is not None:
            wait_for_traffic([connection.wire], seconds)
            if connection.wire.failure is None:
                connection.read()
            now = self._now()
            if now - self._ticked_at >= PUMP_TICK:
                self._ticked_at = now
                connection.tick()
        elif seconds:
            wait_for_traffic([], OPENING_TURN)  # no socket announces that the connection is there
        for _, results in self._destinations.work(connection, now):
            self._settle_results(results)
        if self._left and isinstance(self._destination.breaker.state_at(now), Available):
            while self._left:
                self._destinations.offer(self._destination, self._left.popleft())
        if not self._in_flight or now - self._turned_at > OWNER_AWAY_AFTER:
            self._moved_at = now  # nothing was to be sent, or its owner was busy: that is no fault of the entity
        self._turned_at = now
        if now - self._moved_at > self._patience:
            raise self._because or self._namespace.error or DestinationSilent(f"'{self._destination.path}' is silent.")

    def _settle_results(self, results: SendResults) -> None:
        for transfer in results.accepted:
            self.accepted += 1
            self.possible_duplicates += transfer.possible_duplicate
            self._done(transfer)
        for transfer, error in results.refused:
            if isinstance(self._destination.state, Rejecting):
                raise error  # it is about the entity, and not about this message
            self._done(transfer)
            assert isinstance(transfer, OutgoingMessage)  # nothing else was offered
            self._refused(transfer, error)
        for transfer, error, _ in results.left:
            # Only a person can repair this: fail, so that the job can be restarted.
            if isinstance(error, DestinationMissing | DestinationDisabled | Faulted):
                raise error
            self._because = error
            self._left.append(transfer)

    def _done(self, transfer: MessageTransfer) -> None:
        self._in_flight -= 1
        self._bytes_in_flight -= transfer.size
        self._moved_at = self._now()
        self._because = None
