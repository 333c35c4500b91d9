"""Sends the lines of an export file to their entities (X4), with the sending half of a pump, as `entity_sender` does.

An import knows of each line whether its message was accepted, was left, or may have been accepted: a connection was
lost before the answer came.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from syphon.backlog import Restored
from syphon.model import (
    Renames,
    SyphonError,
    Waits,
)
from syphon.servicebus import Connection, wait_for_traffic
from syphon.time_budget import PUMP_TICK, PUMP_TURN, REPLAY_PATIENCE

from .dead_letter_replay import REFUSED_AT_ONCE, WINDOW
from .destination import Destination
from .destinations import Destinations
from .entity_sender import OutgoingMessage
from .message_transfer import MessageTransfer
from .pump_options import PumpOptions
from .traces import Traces

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
