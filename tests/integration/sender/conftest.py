"""A pair to send with: a real emulator, real sockets, and the sync API or the asyncio API."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
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
from tests.support.sender_apis import APIS, ManualClock, SyncApi

AT_ONCE = timedelta(0)
QUEUE_0, QUEUE_1 = "contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"

leftovers = pytest.mark.filterwarnings("ignore:(unclosed|loop is closed):ResourceWarning")
"""The SDK leaves the rest of a broken connection to the garbage collector."""


class PairedEmulator:
    """Two namespaces of an emulator, and pairs of them that use one of the two APIs."""

    def __init__(self, emulator: BackgroundEmulator, api: SyncApi) -> None:
        self.emulator = emulator
        self.api = api
        self.clock: ManualClock = api.clock_type()
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
        def create() -> None:
            self.primary.create_topic(TopicDescription(name))
            self.primary.create_subscription(SubscriptionDescription(name, subscription))

        self.emulator.call(create)

    def fault(self, fault: Fault, namespace: str = "contoso") -> None:
        self.emulator.call(lambda: self.emulator[namespace].namespace.faults.add(fault))

    def clear(self, namespace: str = "contoso") -> None:
        self.emulator.call(self.emulator[namespace].namespace.faults.clear)

    def outage(self, kind: Outage | None, namespace: str = "contoso") -> None:
        faults = self.emulator[namespace].namespace.faults
        self.emulator.call(lambda: faults.begin_outage(kind) if kind is not None else faults.end_outage())

    def sends(self, path: str, namespace: str = "contoso") -> int:
        """How many messages were sent to an entity, pings included."""
        counters = self.emulator[namespace].namespace.counters
        return self.emulator.call(lambda: counters.of(path, Kind.SEND))

    def active(self, path: str, namespace: str = "contoso") -> int:
        return self.emulator.call(lambda: self.emulator[namespace].namespace.runtime(path).active)

    def in_backlog(self) -> int:
        return sum(self.active(queue.name, "contoso-dr") for queue in self.emulator.call(self.secondary.queues))

    def stored(self, path: str, namespace: str = "contoso") -> list[bytes]:
        """The messages of a queue, as the bytes that the service keeps."""

        def look() -> list[bytes]:
            messages = self.emulator[namespace].namespace.message_queue(path).peek(0, 1000)
            return [message.peeked() for message in messages]

        return self.emulator.call(look)

    def take(self, path: str, count: int, namespace: str = "contoso", **options: Any) -> list[Any]:
        """Receives and deletes `count` messages of a queue; waits until there are so many."""
        with ServiceBusClient.from_connection_string(self.emulator[namespace].connection_string) as client:
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            with client.get_queue_receiver(path, receive_mode=mode, **options) as receiver:
                found: list[Any] = []
                while len(found) < count and (batch := receiver.receive_messages(count, max_wait_time=20)):
                    found += batch
                return found

    # --- pairs ---------------------------------------------------------------------------------------------------

    def pair(self, *, manual_clock: bool = True, **options: Any) -> Any:
        """A pair whose clients do no retries, so that each failure is seen at once."""
        settings = {
            "backlog_queue_count": 2,
            "failover_interval": AT_ONCE,
            "primary_name": "contoso",
            "on_change": self.changes.append,
            **options,
        }
        primary, secondary = (
            self.api.client(self.emulator[name].connection_string) for name in ("contoso", "contoso-dr")
        )
        more = {"clock": self.clock} if manual_clock else {}
        client = self.api.pair(primary, secondary, PairOptions(**settings), **more)
        self._open += [secondary, primary, client]
        return client

    def close(self) -> None:
        while self._open:
            self.api.close(self._open.pop())
        self.api.stop()


@contextmanager
def paired_emulator(api_name: str, kind: type[PairedEmulator] = PairedEmulator) -> Iterator[PairedEmulator]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings) as emulator:
        api = APIS[api_name]()
        api.start()
        paired = kind(emulator, api)
        paired.queue("orders")
        try:
            yield paired
        finally:
            paired.close()
            gc.collect()  # the SDK's remains of broken connections: later tests must not meet them


@pytest.fixture(params=list(APIS))
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def paired(api: str) -> Iterator[PairedEmulator]:
    with paired_emulator(api) as paired:
        yield paired
