"""The idle cost: one receive per queue and quarter of an hour, whatever the service does to idle links."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon.bus.connection import Connection
from syphon.bus.doorbell import Doorbell
from syphon.emulator import BackgroundEmulator, EmulatorSettings, FakeClock, Kind, NamespaceSettings, QueueDescription
from syphon.emulator.front.entity_links import EntityOutlet
from syphon.errors import DestinationMissing

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(10)]


class Street:
    """Ten backlog queues with their doorbells on one connection, in a time that is moved by hand."""

    def __init__(self, emulator: BackgroundEmulator, clock: FakeClock, connection: Connection) -> None:
        self.emulator = emulator
        self.clock = clock
        self.connection = connection
        self.bells = [Doorbell(queue, lambda: clock.now() / 1000) for queue in QUEUES]

    def turn(self, until: Callable[[], bool]) -> list[str]:
        """Lets the bells listen until something is so; gives back who rang."""
        rang: list[str] = []
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, "it did not come to pass"
            rang += [bell.queue for bell in self.bells if bell.listen(self.connection)]
            self.connection.wire.flush()
            select.select([self.connection.wire], [], [], 0.05)
            self.connection.read()
        return rang

    def waiting(self) -> int:
        """How many queues have a receiver waiting at them, with credit for a message."""
        namespace = self.emulator["contoso-dr"].namespace

        def count() -> int:
            links = [link for queue in QUEUES for link in namespace.entity(queue).links]
            return sum(isinstance(link, EntityOutlet) and link.credit == 1 for link in links)

        return self.emulator.call(count)

    def count(self, kind: Kind) -> int:
        counters = self.emulator["contoso-dr"].namespace.counters
        return self.emulator.call(lambda: sum(counters.of(queue, kind) for queue in QUEUES))


@pytest.fixture
def street() -> Iterator[Street]:
    clock = FakeClock(round(time.time() * 1000))
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings, clock=clock) as emulator:
        namespace = emulator["contoso-dr"].namespace
        for queue in QUEUES:
            emulator.call(lambda queue=queue: namespace.create_queue(QueueDescription(queue)))  # type: ignore[misc]
        client = ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string)
        connection = Connection(client, QUEUES[0])
        yield Street(emulator, clock, connection)
        connection.close()
        client.close()


def test_ten_idle_queues_cost_forty_receives_an_hour(street: Street) -> None:  # S1
    street.turn(lambda: all(bell.polls == 1 for bell in street.bells))
    for minute in range(60):
        street.emulator.advance(60)
        expected = 1 + (minute + 1) // 15
        # Links that were idle for ten minutes have been detached: the poll goes on with a new one.
        street.turn(lambda expected=expected: (  # type: ignore[misc]
            street.waiting() == 10 and all(bell.polls == expected for bell in street.bells)
        ))  # fmt: skip
    assert sum(bell.polls for bell in street.bells) - 10 == 40
    assert street.count(Kind.EMPTY_RECEIVE) == 40
    assert street.count(Kind.RECEIVE) == 0


def test_a_message_rings_and_is_let_go_as_it_was(street: Street) -> None:  # D3
    street.turn(lambda: all(bell.polls == 1 for bell in street.bells))
    with (
        ServiceBusClient.from_connection_string(street.emulator["contoso-dr"].connection_string) as client,
        client.get_queue_sender(QUEUES[3]) as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
    assert street.turn(lambda: street.count(Kind.SETTLE) == 1) == [QUEUES[3]]
    namespace = street.emulator["contoso-dr"].namespace
    (message,) = street.emulator.call(lambda: namespace.line(QUEUES[3]).peek(0, 10))
    assert message.delivery_count == 0


def test_a_queue_that_is_not_there_is_told(street: Street) -> None:
    street.bells = [Doorbell("no-such-queue", lambda: 0.0)]
    with pytest.raises(DestinationMissing, match="no-such-queue"):
        street.turn(lambda: False)
