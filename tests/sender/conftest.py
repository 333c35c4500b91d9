"""A pair to send with: a real emulator, real sockets, and whichever front is asked for."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceiveMode

from syphon.emulator import (
    BackgroundEmulator,
    EmulatorSettings,
    Fault,
    Kind,
    NamespaceSettings,
    Outage,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.namespace import BrokerNamespace as Namespace
from syphon.sender import Change, PairOptions
from tests.support.sender_faces import FRONTS, Front, HandClock

AT_ONCE = timedelta(0)
QUEUE_0, QUEUE_1 = "contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"

leftovers = pytest.mark.filterwarnings("ignore:(unclosed|loop is closed):ResourceWarning")
"""The SDK leaves what is left of a broken connection to the garbage collector."""


class Bench:
    """Two namespaces, a front, and what a test does with them."""

    def __init__(self, emulator: BackgroundEmulator, front: Front) -> None:
        self.emulator = emulator
        self.front = front
        self.clock: HandClock = front.clock_type()
        self.changes: list[Change] = []
        self._open: list[Any] = []

    # --- namespaces ----------------------------------------------------------------------------------------------

    @property
    def primary(self) -> Namespace:
        return self.emulator["contoso"].namespace

    @property
    def secondary(self) -> Namespace:
        return self.emulator["contoso-dr"].namespace

    def queue(self, name: str, **options: Any) -> None:
        self.emulator.call(lambda: self.primary.create_queue(QueueDescription(name, **options)))

    def topic(self, name: str, subscription: str) -> None:
        def furnish() -> None:
            self.primary.create_topic(TopicDescription(name))
            self.primary.create_subscription(SubscriptionDescription(name, subscription))

        self.emulator.call(furnish)

    def fault(self, fault: Fault, namespace: str = "contoso") -> None:
        self.emulator.call(lambda: self.emulator[namespace].namespace.faults.add(fault))

    def clear(self, namespace: str = "contoso") -> None:
        self.emulator.call(self.emulator[namespace].namespace.faults.clear)

    def outage(self, kind: Outage | None, namespace: str = "contoso") -> None:
        faults = self.emulator[namespace].namespace.faults
        self.emulator.call(lambda: faults.begin_outage(kind) if kind is not None else faults.end_outage())

    def sends(self, path: str, namespace: str = "contoso") -> int:
        """How many messages an entity was sent, pings included."""
        counters = self.emulator[namespace].namespace.counters
        return self.emulator.call(lambda: counters.of(path, Kind.SEND))

    def active(self, path: str, namespace: str = "contoso") -> int:
        return self.emulator.call(lambda: self.emulator[namespace].namespace.runtime(path).active)

    def in_backlog(self) -> int:
        return sum(self.active(queue.name, "contoso-dr") for queue in self.emulator.call(self.secondary.queues))

    def stored(self, path: str, namespace: str = "contoso") -> list[bytes]:
        """The messages of a queue as the service keeps them, to the byte."""

        def look() -> list[bytes]:
            messages = self.emulator[namespace].namespace.line(path).peek(0, 1000)
            return [message.to_bytes(locked=False) for message in messages]

        return self.emulator.call(look)

    def take(self, path: str, count: int, namespace: str = "contoso", **options: Any) -> list[Any]:
        """What lies in a queue, out of it; waits until there are so many."""
        with ServiceBusClient.from_connection_string(self.emulator[namespace].connection_string) as client:
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            with client.get_queue_receiver(path, receive_mode=mode, **options) as receiver:
                found: list[Any] = []
                while len(found) < count and (batch := receiver.receive_messages(count, max_wait_time=20)):
                    found += batch
                return found

    # --- pairs ---------------------------------------------------------------------------------------------------

    def pair(self, *, hand_clock: bool = True, **options: Any) -> Any:
        """A pair whose clients try nothing twice, so that each failure is seen at once."""
        settings = {
            "backlog_queue_count": 2,
            "failover_interval": AT_ONCE,
            "primary_name": "contoso",
            "on_change": self.changes.append,
            **options,
        }
        primary, secondary = (
            self.front.client(self.emulator[name].connection_string) for name in ("contoso", "contoso-dr")
        )
        more = {"clock": self.clock} if hand_clock else {}
        client = self.front.pair(primary, secondary, PairOptions(**settings), **more)
        self._open += [secondary, primary, client]
        return client

    def close(self) -> None:
        while self._open:
            self.front.close(self._open.pop())
        self.front.stop()


@pytest.fixture(params=list(FRONTS))
def front(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bench(front: str) -> Iterator[Bench]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings) as emulator:
        bench = Bench(emulator, FRONTS[front]())
        bench.queue("orders")
        try:
            yield bench
        finally:
            bench.close()
            gc.collect()  # what the SDK leaves of broken connections; later tests must not meet it
