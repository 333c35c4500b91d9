"""The cost of idle queues: one receive per queue and quarter of an hour, even if the service detaches idle links."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from syphon import time_budget
from syphon.amqp import Message, Section
from syphon.amqp.frames import EMPTY_FRAME
from syphon.backlog import destination_of
from syphon.emulator import (
    Action,
    BackgroundEmulator,
    EmulatorSettings,
    FakeClock,
    Fault,
    Kind,
    NamespaceSettings,
    Operation,
    Outage,
    QueueDescription,
)
from syphon.emulator.amqp_front.entity_links import OutgoingEntityLink
from syphon.model import EntityPath
from syphon.model.errors import DestinationMissing
from syphon.servicebus import sdk_sockets
from syphon.servicebus.connection import Connection
from syphon.servicebus.namespace import Namespace
from syphon.transfer.doorbell import Doorbell

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(10)]


class Worth:
    """A gate that checks the message alone; the destinations of messages that are not worth a ring stay closed."""

    def __init__(self, worth: Callable[[bytes], bool]) -> None:
        self._worth = worth

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        return self._worth(payload)

    def can_move(self, destination: str) -> bool:
        return False

    def has_failed(self, destination: str) -> bool:
        return True

    def destination_of(self, payload: bytes) -> EntityPath | None:
        return destination_of(payload)


def stuck(bell: Doorbell) -> int:
    """How many messages a doorbell knows to be deferred."""
    return sum(found.messages for found in bell.waiting.values())


class IdleQueues:
    """Ten backlog queues with their doorbells on one connection, and a clock that the test moves."""

    def __init__(self, emulator: BackgroundEmulator, clock: FakeClock, connection: Connection) -> None:
        self.emulator = emulator
        self.clock = clock
        self.connection = connection
        self.bells = [Doorbell(queue, lambda: clock.now() / 1000) for queue in QUEUES]

    def turn(self, until: Callable[[], bool]) -> list[str]:
        """Lets the doorbells listen until a condition holds; returns the queues that rang."""
        rang: list[str] = []
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, "it did not happen in time"
            rang += [bell.queue for bell in self.bells if bell.listen(self.connection)]
            self.connection.wire.flush()
            select.select([self.connection.wire], [], [], 0.05)
            self.connection.read()
        return rang

    def listen(self) -> None:
        """Lets each doorbell listen once."""
        for bell in self.bells:
            bell.listen(self.connection)
        self.connection.wire.flush()

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not until():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.01)

    def waiting(self) -> int:
        """How many queues have a receiver with credit for one message."""
        namespace = self.emulator["contoso-dr"].namespace

        def count() -> int:
            links = [link for queue in QUEUES for link in namespace.entity(queue).links]
            return sum(isinstance(link, OutgoingEntityLink) and link.credit == 1 for link in links)

        return self.emulator.call(count)

    def count(self, kind: Kind) -> int:
        counters = self.emulator["contoso-dr"].namespace.counters
        return self.emulator.call(lambda: sum(counters.of(queue, kind) for queue in QUEUES))

    def only(self, worth: Callable[[bytes], bool] = lambda payload: b"stuck" not in payload) -> Doorbell:
        """Keeps one doorbell, on the first queue, for which not every message is worth a ring."""
        self.bells = [Doorbell(QUEUES[0], lambda: self.clock.now() / 1000, Worth(worth))]
        return self.bells[0]

    def put(self, *bodies: str, queue: str = QUEUES[0]) -> None:
        with (
            ServiceBusClient.from_connection_string(self.emulator["contoso-dr"].connection_string) as client,
            client.get_queue_sender(queue) as sender,
        ):
            sender.send_messages([ServiceBusMessage(body) for body in bodies])

    def locked(self) -> list[str]:
        """The bodies of the locked messages in the first queue."""
        line = self.emulator["contoso-dr"].namespace.message_queue(QUEUES[0])
        found = self.emulator.call(lambda: [(m.bare, m.lock_token) for m in line.peek(0, 1000)])
        return [str(Message(bare).read(Section.DATA), "ascii") for bare, token in found if token is not None]  # type: ignore[arg-type]


@pytest.fixture
def idle() -> Iterator[IdleQueues]:
    clock = FakeClock(round(time.time() * 1000))
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso-dr")])
    with BackgroundEmulator(settings, clock=clock) as emulator:
        namespace = emulator["contoso-dr"].namespace
        for queue in QUEUES:
            emulator.call(lambda queue=queue: namespace.create_queue(QueueDescription(queue)))  # type: ignore[misc]
        client = ServiceBusClient.from_connection_string(emulator["contoso-dr"].connection_string)
        connection = Connection(client, QUEUES[0])
        yield IdleQueues(emulator, clock, connection)
        connection.close()
        client.close()


def test_ten_idle_queues_cost_forty_receives_an_hour(idle: IdleQueues) -> None:  # S1
    idle.turn(lambda: all(bell.polls == 1 for bell in idle.bells))
    for minute in range(1, 61):
        idle.emulator.advance(60)
        idle.listen()
        ended = minute // 15
        # Links that were idle for ten minutes have been detached: the poll continues on a new one.
        idle.turn(lambda ended=ended: idle.waiting() == 10 and idle.count(Kind.EMPTY_RECEIVE) == 10 * ended)  # type: ignore[misc]
        assert {bell.polls for bell in idle.bells} == {1 + ended}
    assert idle.count(Kind.EMPTY_RECEIVE) == 40
    assert idle.count(Kind.RECEIVE) == 0


def test_a_doorbell_whose_message_was_lost_on_the_way_hears_the_next_one_after_a_minute(idle: IdleQueues) -> None:
    """The connection lives on, so nothing else would tell it before the poll is over (S1, S10)."""
    bell = idle.only()
    idle.turn(lambda: idle.waiting() == 1)
    lost = Fault(Action.LOSE_REPLY, Operation.RECEIVE, QUEUES[0], times=1)
    idle.emulator.call(lambda: idle.emulator["contoso-dr"].namespace.faults.add(lost))
    idle.put("fresh")
    idle.wait(lambda: idle.count(Kind.RECEIVE) == 1)
    assert idle.turn(lambda: idle.waiting() == 0) == []
    idle.emulator.advance(61)  # the lock of the message has ended as well
    assert idle.turn(lambda: not bell.is_armed) == [QUEUES[0]]
    assert (bell.polls, idle.count(Kind.RECEIVE), idle.count(Kind.EMPTY_RECEIVE)) == (1, 2, 0)


def test_a_message_rings_and_is_released_unchanged(idle: IdleQueues) -> None:  # D3
    idle.turn(lambda: all(bell.polls == 1 for bell in idle.bells))
    idle.put("hello", queue=QUEUES[3])
    assert idle.turn(lambda: idle.count(Kind.SETTLE) == 1) == [QUEUES[3]]
    namespace = idle.emulator["contoso-dr"].namespace
    (message,) = idle.emulator.call(lambda: namespace.message_queue(QUEUES[3]).peek(0, 10))
    assert message.delivery_count == 0


def test_a_link_that_breaks_as_soon_as_it_is_open_is_opened_again_after_a_pause(idle: IdleQueues) -> None:  # S9
    refused = Fault(Action.DETACH, Operation.ATTACH, QUEUES[0])
    idle.emulator.call(lambda: idle.emulator["contoso-dr"].namespace.faults.add(refused))
    bell = idle.only()
    for struck, pause in ((2, 1), (3, 2), (4, 4)):  # the first time at once
        idle.turn(lambda struck=struck: refused.struck >= struck and bell._receiver is None)  # type: ignore[misc]
        turns = iter(range(100))
        idle.turn(lambda turns=turns: next(turns) > 20)  # type: ignore[misc]
        assert refused.struck == struck
        idle.emulator.advance(pause)


def test_a_missing_queue_is_reported(idle: IdleQueues) -> None:
    idle.bells = [Doorbell("no-such-queue", lambda: 0.0)]
    with pytest.raises(DestinationMissing, match="no-such-queue"):
        idle.turn(lambda: False)


def test_a_message_that_is_not_worth_a_ring_is_deferred_and_the_one_behind_it_rings(idle: IdleQueues) -> None:  # S3
    bell = idle.only()
    idle.turn(lambda: idle.waiting() == 1)
    idle.put("stuck 1", "stuck 2", "fresh", "stuck 3", "fresh too")
    assert idle.turn(lambda: not bell.is_armed) == [QUEUES[0]]
    idle.turn(lambda: bell.is_silent and not idle.locked())
    assert bell.waiting[""].messages >= 2


def test_a_stuck_message_is_received_once(idle: IdleQueues) -> None:  # S3, S7
    bell = idle.only()
    idle.put(*(f"stuck {number}" for number in range(5)))
    assert idle.turn(lambda: stuck(bell) == 5) == []
    for _ in range(10):
        idle.emulator.advance(60)
        idle.turn(lambda: idle.waiting() == 1)
    assert (idle.count(Kind.RECEIVE), idle.locked()) == (5, [])


def test_many_stuck_messages_are_read_past_in_large_steps_and_then_in_small_ones_again(idle: IdleQueues) -> None:
    bell = idle.only()
    namespace = idle.emulator["contoso-dr"].namespace
    granted: set[int] = set()

    def read_past() -> bool:
        links = [link for link in namespace.entity(QUEUES[0]).links if isinstance(link, OutgoingEntityLink)]
        granted.update(idle.emulator.call(lambda: [link.credit for link in links]))
        return stuck(bell) == 400

    for start in range(0, 400, 100):
        idle.put(*(f"stuck {number}" for number in range(start, start + 100)))
    idle.turn(read_past)
    assert bell.polls < 40
    assert max(granted) <= 100
    idle.emulator.advance(0.6)
    idle.turn(lambda: idle.waiting() == 1)


def test_a_ring_releases_all_that_had_come_with_it(idle: IdleQueues) -> None:  # D3
    bell = idle.only()
    idle.put(*(f"stuck {number}" for number in range(20)))
    idle.turn(lambda: stuck(bell) == 20)
    idle.put(*(f"fresh {number}" for number in range(50)))
    assert idle.turn(lambda: bell.is_silent) == [QUEUES[0]]
    came = idle.count(Kind.RECEIVE)
    idle.turn(lambda: idle.count(Kind.SETTLE) == came)
    assert idle.locked() == []


def test_a_silent_bell_costs_nothing_and_arming_it_costs_one_receive(idle: IdleQueues) -> None:  # S1
    bell = idle.only()
    idle.turn(lambda: idle.waiting() == 1)
    bell.silence()
    idle.turn(lambda: bell.is_silent)
    assert idle.count(Kind.EMPTY_RECEIVE) == 1
    idle.emulator.advance(3600)
    idle.put("hello")
    bell.listen(idle.connection)
    assert (idle.count(Kind.RECEIVE), idle.count(Kind.EMPTY_RECEIVE)) == (0, 1)
    bell.arm()
    assert idle.turn(lambda: not bell.is_armed) == [QUEUES[0]]
    assert (idle.count(Kind.RECEIVE), idle.count(Kind.EMPTY_RECEIVE)) == (1, 1)


def test_a_peer_that_falls_silent_is_noticed_and_the_poll_goes_on_elsewhere(
    idle: IdleQueues,
) -> None:  # S1, WIRE
    later = 0.0
    client = ServiceBusClient.from_connection_string(idle.emulator["contoso-dr"].connection_string)
    opened = [Connection(client, QUEUES[0], now=lambda: time.monotonic() + later)]
    namespace = Namespace("contoso-dr", lambda: opened.pop() if opened else Connection(client, QUEUES[0]))
    faults = idle.emulator["contoso-dr"].namespace.faults

    def connected() -> bool:
        found = namespace.connection()
        idle.connection = found or idle.connection
        return found is not None

    bell = idle.only()
    idle.wait(connected)
    idle.turn(lambda: idle.waiting() == 1)
    first = idle.connection
    idle.emulator.call(lambda: faults.begin_outage(Outage.HANG))
    later = 2 * time_budget.IDLE_TIMEOUT - 5
    first.tick()
    assert first.wire.failure is None
    later = 2 * time_budget.IDLE_TIMEOUT + 5
    first.tick()
    assert "silent for 120 seconds" in str(first.wire.failure)
    idle.emulator.call(faults.end_outage)
    idle.wait(lambda: connected() and idle.connection is not first)
    idle.put("hello")
    assert idle.turn(lambda: not bell.is_armed) == [QUEUES[0]]
    assert bell.polls == 1
    namespace.close()
    client.close()


def test_heartbeats_are_requested_from_a_peer(idle: IdleQueues, monkeypatch: pytest.MonkeyPatch) -> None:  # WIRE
    monkeypatch.setattr(sdk_sockets, "IDLE_TIMEOUT", 1)
    with ServiceBusClient.from_connection_string(idle.emulator["contoso-dr"].connection_string) as client:
        connection = Connection(client, QUEUES[0])
        heard: list[bytes] = []
        monkeypatch.setattr(connection.wire, "_split", heard.append)

        def beats() -> bool:
            connection.wire.read()
            return any(EMPTY_FRAME in data for data in heard)

        idle.wait(beats)
        connection.close()
