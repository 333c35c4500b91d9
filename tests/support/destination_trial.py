"""Tests one destination on a real connection, with a clock that the test moves."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from syphon.amqp import data_section
from syphon.backlog import BrokerStamps, Restored
from syphon.model.entity_path import EntityPath
from syphon.servicebus.connection import Connection
from syphon.servicebus.links import Arrival
from syphon.transfer.breaker import BackingOff
from syphon.transfer.destination import Destination, SendResults, WindowShare
from syphon.transfer.message_transfer import MessageTransfer
from syphon.transfer.pump import PERMANENT
from tests.integration.transfer.conftest import TwoNamespaces

QUEUE = SimpleNamespace(locked_before=0.0)
"""The queue of all messages, as far as a destination uses it."""
SHARE = WindowShare(2000, 8 * 1024 * 1024)


@dataclass
class Trial:
    """A destination on a real connection, with a clock that the test moves."""

    namespaces: TwoNamespaces
    connection: Connection
    destination: Destination
    now: float = 1000.0
    results: SendResults = field(default_factory=SendResults)

    def send(self) -> None:
        """Sends one message, and waits for its result."""
        before = self.answered() + len(self.results.answers)
        self.offer(None)
        self.turn(lambda: self.answered() + len(self.results.answers) > before)  # one that is refused with busy stays

    def answered(self) -> int:
        return len(self.results.accepted) + len(self.results.left) + len(self.results.refused)

    def offer(self, key: str | None, payload: bytes = data_section(b"x"), message_id: str | None = None) -> None:
        restored = Restored(payload, EntityPath.of("orders"), message_id, None, key, len(payload), BrokerStamps())
        self.destination.offer(MessageTransfer(QUEUE, Arrival(None, 0, b"", b"", 0.0, 0.0), restored, 1))  # type: ignore[arg-type]

    def turn(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, "it did not happen in time"
            self.turn_once()

    def turn_once(self) -> None:
        done = self.destination.work(self.connection, self.now, SHARE)
        self.results.accepted += done.accepted
        self.results.left += done.left
        self.results.refused += done.refused
        self.results.answers += done.answers
        self.connection.wire.flush()
        select.select([self.connection.wire], [], [], 0.02)
        self.connection.read()

    def pause(self) -> float:
        """Lets a send fail; returns how long the destination then backs off, and moves the clock to the end of that."""
        self.send()
        state = self.destination.state
        assert isinstance(state, BackingOff)
        pause, self.now = state.until - self.now, state.until
        return pause


@pytest.fixture
def trial(namespaces: TwoNamespaces) -> Iterator[Trial]:
    namespaces.queue("orders")
    namespace = namespaces.namespace("contoso", "")
    namespaces.wait(lambda: namespace.connection() is not None)
    connection = namespace.connection()
    assert connection is not None
    yield Trial(namespaces, connection, Destination("orders", PERMANENT))
    namespace.close()
