"""A primary and a secondary namespace for the pump: a real emulator, real sockets, the real client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from pydantic import SecretStr

from syphon.config import SideSettings as Settings
from syphon.emulator import (
    BackgroundEmulator,
    EmulatorSettings,
    FakeClock,
    Fault,
    Kind,
    NamespaceSettings,
    QueueDescription,
)
from syphon.emulator.broker.message import BrokeredMessage, StoredState
from syphon.emulator.broker.namespace import BrokerNamespace as Broker
from syphon.model.outcomes import Outcome
from syphon.servicebus.connection import Connection
from syphon.servicebus.factory import namespace_of
from syphon.servicebus.namespace import Namespace
from syphon.transfer import pump as pumping
from syphon.transfer.pump import Pump, PumpOptions

BACKLOG = "contoso/x-servicebus-transfer/0"
PATIENT = PumpOptions(quiet=20.0, lease=60.0, grace=20.0)
"""For pumps that the test stops: on a slow machine seconds may pass without a message although there are more."""


@dataclass
class TwoNamespaces:
    """Two namespaces of an emulator, and what a test does with them."""

    emulator: BackgroundEmulator
    now: Callable[[], float] = time.monotonic
    """The clock of the pump."""
    clients: list[ServiceBusClient] = field(default_factory=list)

    @property
    def primary(self) -> Broker:
        return self.emulator["contoso"].namespace

    @property
    def secondary(self) -> Broker:
        return self.emulator["contoso-dr"].namespace

    def client(self, name: str) -> ServiceBusClient:
        client = ServiceBusClient.from_connection_string(self.emulator[name].connection_string, retry_total=0)
        self.clients.append(client)
        return client

    def queue(self, name: str, **options: Any) -> None:
        """Creates a destination."""
        self.emulator.call(lambda: self.primary.create_queue(QueueDescription(name, **options)))

    def put(self, *messages: ServiceBusMessage, queue: str = BACKLOG) -> None:
        """Puts messages into the backlog, as a sender's failover does."""
        with self.client("contoso-dr").get_queue_sender(queue) as sender:
            for start in range(0, len(messages), 100):
                sender.send_messages(list(messages[start : start + 100]))

    def put_raw(self, bare: bytes) -> None:
        """Puts bytes into the backlog that no sender could put there: the service would refuse them."""

        def put() -> None:
            message = BrokeredMessage()
            message.bare, message.size = bare, len(bare)
            self.secondary.message_queue(BACKLOG).enqueue([message])

        self.emulator.call(put)

    def take(self, queue: str, count: int) -> list[Any]:
        """Receives the messages that have arrived at a destination; waits until there are `count`."""
        found: list[Any] = []
        with self.client("contoso").get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            while len(found) < count:
                batch = receiver.receive_messages(count - len(found), max_wait_time=20)
                if not batch:
                    break
                found += batch
            found += receiver.receive_messages(10, max_wait_time=0.2)
        return found

    def locked(self, path: str = BACKLOG) -> int:
        """How many messages of a backlog queue are locked."""
        line = self.secondary.message_queue(path)
        return self.emulator.call(lambda: sum(found.lock_token is not None for found in line.peek(0, 10_000)))

    def deferred(self, path: str = BACKLOG) -> int:
        """How many messages of a backlog queue are deferred."""
        line = self.secondary.message_queue(path)
        return self.emulator.call(lambda: line.count(StoredState.DEFERRED))

    def credit(self, path: str = BACKLOG) -> int:
        """The credit of all receivers of a backlog queue."""
        links = self.secondary.entity(path).links
        return self.emulator.call(lambda: sum(getattr(link, "credit", 0) for link in links))

    def links(self, path: str = BACKLOG) -> int:
        """How many links a backlog queue has."""
        return self.emulator.call(lambda: len(self.secondary.entity(path).links))

    def wait(self, until: Callable[[], bool], within: float = 20) -> None:
        deadline = time.monotonic() + within
        while not until():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    def fault(self, fault: Fault, namespace: str = "contoso") -> Fault:
        self.emulator.call(lambda: self.emulator[namespace].namespace.faults.add(fault))
        return fault

    @contextmanager
    def running(
        self, options: PumpOptions = PATIENT, queue: str = BACKLOG
    ) -> Iterator[tuple[Pump, list[Outcome], threading.Thread]]:
        """Runs a pump in a thread, and stops it at the end."""
        with self.pump(options, queue) as (pump, outcomes):
            thread = threading.Thread(target=pump.run)
            thread.start()
            try:
                yield pump, outcomes, thread
            finally:
                pump.stop()
                thread.join(60)
                assert not thread.is_alive()

    def active(self, path: str, namespace: str = "contoso") -> int:
        return self.emulator.call(lambda: self.emulator[namespace].namespace.runtime(path).active)

    def dead(self, path: str, namespace: str = "contoso-dr") -> int:
        return self.emulator.call(lambda: self.emulator[namespace].namespace.runtime(path).dead_letter)

    @contextmanager
    def pump(self, options: PumpOptions = PATIENT, queue: str = BACKLOG) -> Iterator[tuple[Pump, list[Outcome]]]:
        outcomes: list[Outcome] = []
        secondary, primary = self.namespace("contoso-dr", queue), self.namespace("contoso", "")
        pump = Pump(secondary, primary, outcomes.append, options, self.now)
        pump.serve(queue)
        try:
            yield pump, outcomes
        finally:
            secondary.close()
            primary.close()

    def namespace(self, name: str, entity: str) -> Namespace:
        """A namespace object for a pump."""
        return namespace_of(Settings(connection_string=SecretStr(self.emulator[name].connection_string)), entity)

    def run(self, options: PumpOptions = PATIENT) -> tuple[Pump, list[Outcome]]:
        """Runs a pump from start to end."""
        with self.pump(options) as (pump, outcomes):
            self.finish(pump)
            return pump, outcomes

    def finish(self, pump: Pump) -> None:
        """Runs a pump until the queue has no more messages for it."""
        for _ in self.turns(pump):
            pass

    def turns(self, pump: Pump) -> Iterator[None]:
        """The same, one turn at a time. It asks the broker whether there are more: silence may mean a slow machine."""
        before = {queue: self.received(queue) for queue in pump.queues}
        for _ in pump.turns():
            yield
            if not pump.counters.in_flight and all(
                self.has_given_all(queue, before[queue] + served.counters.received)
                for queue, served in pump.queues.items()
            ):
                pump.stop()

    def has_given_all(self, path: str, received: int) -> bool:
        """Whether all messages of a backlog queue are locked or deferred, and all that it delivered were received."""
        line = self.secondary.message_queue(path)

        def look() -> bool:
            return received == self.secondary.counters.of(path, Kind.RECEIVE) and all(
                found.lock_token is not None or found.state is StoredState.DEFERRED for found in line.peek(0, 10_000)
            )

        return self.emulator.call(look)

    def received(self, path: str) -> int:
        """How many messages a backlog queue has delivered."""
        return self.emulator.call(lambda: self.secondary.counters.of(path, Kind.RECEIVE))

    def close(self) -> None:
        for client in self.clients:
            client.close()


class ManualTimeNamespaces(TwoNamespaces):
    """Namespaces, connections and pump share a clock that only the test moves."""

    def namespace(self, name: str, entity: str) -> Namespace:
        client = self.client(name)
        return Namespace(name, lambda: Connection(client, entity, now=self.now), self.now)

    def advance(self, seconds: float) -> None:
        self.emulator.advance(seconds)


def aliased(body: str | bytes, path: str, **options: Any) -> ServiceBusMessage:
    """A message as it is in the backlog."""
    properties = {"x-ms-path": path, **options.pop("application_properties", {})}
    return ServiceBusMessage(body, application_properties=properties, **options)


@contextmanager
def emulator_with_backlog(clock: FakeClock | None = None) -> Iterator[BackgroundEmulator]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings, clock=clock) as emulator:
        backlog = QueueDescription(BACKLOG, max_delivery_count=2**31 - 1, dead_lettering_on_message_expiration=True)
        emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(backlog))
        yield emulator


@pytest.fixture
def namespaces() -> Iterator[TwoNamespaces]:
    with emulator_with_backlog() as emulator:
        namespaces = TwoNamespaces(emulator)
        try:
            yield namespaces
        finally:
            namespaces.close()


@pytest.fixture
def manual(monkeypatch: pytest.MonkeyPatch) -> Iterator[ManualTimeNamespaces]:
    clock = FakeClock(round(time.time() * 1000))  # tokens use the clock of the machine
    monkeypatch.setattr(pumping, "wall_clock", clock.now)
    monkeypatch.setattr(pumping, "PUMP_TICK", 0.0)  # at every turn, because the clock stands still
    with emulator_with_backlog(clock) as emulator:
        namespaces = ManualTimeNamespaces(emulator, lambda: clock.now() / 1000)
        try:
            yield namespaces
        finally:
            namespaces.close()


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)
