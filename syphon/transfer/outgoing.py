"""Sends messages that no queue of ours has, as the pump does: to one entity, or the lines of a file to their entities.

Both have the sending half of a pump: batches of one key, many in flight at once, retries, destinations that back off.
A message counts as sent when its entity has accepted it. If the outcome of a send is unknown, the message is sent again
under the same id (D10): at least once, and never less. Nothing is settled.

An import (X4) knows of each line whether its message was accepted, was left, or may have been accepted: a connection
was lost before the answer came.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from syphon.amqp import Value
from syphon.backlog import BrokerStamps, Restored
from syphon.model import (
    DestinationDisabled,
    DestinationMissing,
    DestinationSilent,
    EntityPath,
    Faulted,
    Renames,
    SyphonError,
    Waits,
)
from syphon.servicebus import Connection, Namespace, wait_for_traffic
from syphon.time_budget import OPENING_TURN, OWNER_AWAY_AFTER, PUMP_TICK, PUMP_TURN, REPLAY_PATIENCE

from .batches import MOST, MessageTransfer
from .breaker import Available, Rejecting
from .dead_letter_replay import REFUSED_AT_ONCE, WINDOW
from .destination import Destination, SendResults
from .destinations import Destinations
from .pump_options import PumpOptions
from .suspicion import MessageKey
from .traces import Traces


class OutgoingMessage(MessageTransfer):
    """A message to send that no queue of ours has: nothing is settled when it has arrived."""

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
"""Hears of a message that the entity will never accept, and why. It may raise."""


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
        if self._offered >= MOST:
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
            self._note(results)
        if self._left and isinstance(self._destination.breaker.state_at(now), Available):
            while self._left:
                self._destinations.offer(self._destination, self._left.popleft())
        if not self._in_flight or now - self._turned_at > OWNER_AWAY_AFTER:
            self._moved_at = now  # nothing was to be sent, or its owner was busy: that is no fault of the entity
        self._turned_at = now
        if now - self._moved_at > self._patience:
            raise self._because or self._namespace.error or DestinationSilent(f"'{self._destination.path}' is silent.")

    def _note(self, results: SendResults) -> None:
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
            # To wait for a person is no work for a job: it fails, and can be started again.
            if isinstance(error, DestinationMissing | DestinationDisabled | Faulted):
                raise error
            self._because = error
            self._left.append(transfer)

    def _done(self, transfer: MessageTransfer) -> None:
        self._in_flight -= 1
        self._bytes_in_flight -= transfer.size
        self._moved_at = self._now()
        self._because = None


# --- an import -------------------------------------------------------------------------------------------------------

FAILED = "The import failed while this line was sent."
STOPPED = "The import was stopped before it came to this line."


class ImportMessage(NamedTuple):
    """A message of a file, ready to be sent to `restored.destination`."""

    line: int
    restored: Restored


@dataclass(slots=True)
class ImportResult:
    """What became of the lines: every line that was given is in `sent` or in `left`."""

    sent: list[int] = field(default_factory=list)
    left: dict[int, str] = field(default_factory=dict)
    """Lines whose messages were not accepted, and why."""
    uncertain: set[int] = field(default_factory=set)
    """Those among `left` that may have been accepted: no answer came."""
    possible_duplicates: int = 0
    """How many of `sent` may have arrived twice: no answer came at first, and they were sent again."""

    @property
    def why_left(self) -> Counter[str]:
        return Counter(self.left.values())


class LetterImport:
    """Sends messages over one connection. The connection belongs to the caller; the import ends if it is lost."""

    def __init__(
        self,
        messages: Iterable[ImportMessage],
        connection: Connection,
        rename: Renames | None = None,
        now: Callable[[], float] = time.monotonic,
        patience: float = REPLAY_PATIENCE,
    ) -> None:
        self.result = ImportResult()
        self._messages: Iterator[ImportMessage] = iter(messages)
        self._connection = connection
        self._now = now
        self._patience = patience
        options = PumpOptions(window=WINDOW, permanent=REFUSED_AT_ONCE)
        # Whether a message may go there was asked when it was read.
        self._destinations = Destinations(options, Traces(), lambda _: None, rename or Renames())
        self._in_flight: set[int] = set()
        """The lines whose messages are being sent."""
        self._waits_since: dict[str, float] = {}
        self._is_stopped = self._is_at_end = False
        self._ticked_at = 0.0

    @property
    def was_stopped(self) -> bool:
        return self._is_stopped

    def stop(self) -> None:
        """Reads no more lines; waits for the answers to those in flight. Safe in a signal handler."""
        self._is_stopped = True

    def run(self, on_turn: Callable[[ImportResult], None] = lambda _: None) -> ImportResult:
        """Works until every line is dealt with, or the connection is lost. Calls `on_turn` at every turn.

        After any other error `result` has the lines that were begun; those in flight may have been accepted.
        """
        try:
            return self._run(on_turn)
        finally:
            self.result.left |= dict.fromkeys(self._in_flight, FAILED)
            self.result.uncertain |= self._in_flight

    def _run(self, on_turn: Callable[[ImportResult], None]) -> ImportResult:
        why = STOPPED
        try:
            while self._in_flight or not self._is_over:
                self._fill()
                self._wait()
                self._forward(self._connection)
                on_turn(self.result)
        except SyphonError as error:
            why = str(error)
            self._forward(None)  # what was in flight may have been accepted
        finally:
            self._destinations.close()
        for transfer in self._destinations.take_unsent():
            self._leave(transfer, why)
        for message in self._messages:
            self.result.left[message.line] = why
        on_turn(self.result)
        return self.result

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self._is_at_end

    def _fill(self) -> None:
        while not self._is_over and len(self._in_flight) < WINDOW:
            message = next(self._messages, None)
            if message is None:
                self._is_at_end = True
                return
            self._offer(message)

    def _offer(self, message: ImportMessage) -> None:
        restored = message.restored
        transfer = OutgoingMessage(
            message.line, restored.payload, restored.message_id, restored.session_id, restored.partition_key
        )
        destination = self._destinations.find(restored.destination)
        assert isinstance(destination, Destination)  # no path is objected to here
        self._in_flight.add(message.line)
        self._destinations.offer(destination, transfer)

    def _wait(self) -> None:
        connection, now = self._connection, self._now()
        if connection.wire.failure is not None:
            raise connection.wire.failure
        wait_for_traffic([connection.wire], PUMP_TURN)
        connection.read()
        if now - self._ticked_at >= PUMP_TICK:
            self._ticked_at = now
            connection.tick()

    def _forward(self, connection: Connection | None) -> None:
        for destination, results in self._destinations.work(connection, self._now()):
            for transfer in results.accepted:
                self.result.sent.append(self._take(transfer))
                self.result.possible_duplicates += transfer.possible_duplicate
                self._waits_since.pop(destination.path, None)
            for transfer, error in results.refused:
                self._leave(transfer, f"'{destination.path}': {error}")
            for transfer, error, _ in results.left:
                if connection is not None and isinstance(error, Waits) and self._is_patient(destination.path):
                    self._destinations.offer(destination, transfer)
                else:
                    self._leave(transfer, f"'{destination.path}': {error}")

    def _leave(self, transfer: MessageTransfer, why: str) -> None:
        line = self._take(transfer)
        self.result.left[line] = why
        if transfer.possible_duplicate:
            self.result.uncertain.add(line)

    def _take(self, transfer: MessageTransfer) -> int:
        assert isinstance(transfer, OutgoingMessage)  # we have offered no other ones
        line = transfer.number
        self._in_flight.discard(line)
        return line

    def _is_patient(self, path: str) -> bool:
        since = self._waits_since.setdefault(path, self._now())
        return not self._is_stopped and self._now() - since < self._patience
