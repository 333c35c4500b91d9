"""A primary and a secondary for the pump to work between: a real emulator, real sockets, the real client."""

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

from syphon.bus.namespace import Namespace
from syphon.bus.opening import namespace_of
from syphon.config import NamespaceSettings as Settings
from syphon.emulator import BackgroundEmulator, EmulatorSettings, Fault, NamespaceSettings, QueueDescription
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.namespace import Namespace as Broker
from syphon.transfer.outcomes import Outcome
from syphon.transfer.pump import Pump, PumpOptions

BACKLOG = "contoso/x-servicebus-transfer/0"
QUICK = PumpOptions(quiet=0.5, lease=30.0, grace=5.0)


@dataclass
class Bench:
    """Two namespaces, and what a test does with them."""

    emulator: BackgroundEmulator
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
        """A destination."""
        self.emulator.call(lambda: self.primary.create_queue(QueueDescription(name, **options)))

    def put(self, *messages: ServiceBusMessage, queue: str = BACKLOG) -> None:
        """Messages into the backlog, as a sender's failover leaves them there."""
        with self.client("contoso-dr").get_queue_sender(queue) as sender:
            for start in range(0, len(messages), 100):
                sender.send_messages(list(messages[start : start + 100]))

    def smuggle(self, bare: bytes) -> None:
        """A message into the backlog that no sender could put there, past the service's checks."""

        def put() -> None:
            message = BrokeredMessage()
            message.bare, message.size = bare, len(bare)
            self.secondary.line(BACKLOG).enqueue([message])

        self.emulator.call(put)

    def take(self, queue: str, count: int) -> list[Any]:
        """What has arrived at a destination, out of it; waits until there are so many."""
        found: list[Any] = []
        with self.client("contoso").get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            while len(found) < count:
                batch = receiver.receive_messages(count - len(found), max_wait_time=5)
                if not batch:
                    break
                found += batch
            found += receiver.receive_messages(10, max_wait_time=0.2)
        return found

    def locked(self, path: str = BACKLOG) -> int:
        """How many messages of a backlog queue are under somebody's lock."""
        line = self.secondary.line(path)
        return self.emulator.call(lambda: sum(found.lock_token is not None for found in line.peek(0, 10_000)))

    def credit(self, path: str = BACKLOG) -> int:
        """How many messages have been asked for on a backlog queue."""
        links = self.secondary.entity(path).links
        return self.emulator.call(lambda: sum(getattr(link, "credit", 0) for link in links))

    def wait(self, until: Callable[[], bool], within: float = 20) -> None:
        deadline = time.monotonic() + within
        while not until():
            assert time.monotonic() < deadline, "it did not come to pass"
            time.sleep(0.01)

    def fault(self, fault: Fault, namespace: str = "contoso") -> Fault:
        self.emulator.call(lambda: self.emulator[namespace].namespace.faults.add(fault))
        return fault

    @contextmanager
    def running(
        self, options: PumpOptions = QUICK, rate: float | None = None
    ) -> Iterator[tuple[Pump, list[Outcome], threading.Thread]]:
        """A pump at work; it is told to stop in the end."""
        with self.pump(options) as (pump, outcomes):
            pump.rate = rate
            thread = threading.Thread(target=pump.run)
            thread.start()
            try:
                yield pump, outcomes, thread
            finally:
                pump.stop()
                thread.join(30)
                assert not thread.is_alive()

    def active(self, path: str, namespace: str = "contoso") -> int:
        return self.emulator.call(lambda: self.emulator[namespace].namespace.runtime(path).active)

    def dead(self, path: str, namespace: str = "contoso-dr") -> int:
        return self.emulator.call(lambda: self.emulator[namespace].namespace.runtime(path).dead_letter)

    @contextmanager
    def pump(self, options: PumpOptions = QUICK, queue: str = BACKLOG) -> Iterator[tuple[Pump, list[Outcome]]]:
        outcomes: list[Outcome] = []
        secondary, primary = self.reach("contoso-dr", queue), self.reach("contoso", "")
        pump = Pump(queue, secondary, primary, outcomes.append, options)
        try:
            yield pump, outcomes
        finally:
            secondary.close()
            primary.close()

    def reach(self, name: str, entity: str) -> Namespace:
        """A namespace as the pump uses it."""
        return namespace_of(Settings(connection_string=SecretStr(self.emulator[name].connection_string)), entity)

    def run(self, options: PumpOptions = QUICK) -> tuple[Pump, list[Outcome]]:
        """A pump from start to end."""
        with self.pump(options) as (pump, outcomes):
            pump.run()
            return pump, outcomes

    def close(self) -> None:
        for client in self.clients:
            client.close()


def aliased(body: str | bytes, path: str, **options: Any) -> ServiceBusMessage:
    """A message as it lies in the backlog."""
    properties = {"x-ms-path": path, **options.pop("application_properties", {})}
    return ServiceBusMessage(body, application_properties=properties, **options)


@pytest.fixture
def bench() -> Iterator[Bench]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings) as emulator:
        backlog = QueueDescription(BACKLOG, max_delivery_count=2**31 - 1, dead_lettering_on_message_expiration=True)
        emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(backlog))
        bench = Bench(emulator)
        try:
            yield bench
        finally:
            bench.close()


def in_an_hour() -> datetime:
    return datetime.now(UTC) + timedelta(hours=1)
