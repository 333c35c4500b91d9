"""The state of `--state`: after a kill at any moment the emulator starts again with everything it acknowledged.

`killed` copies the directory while the emulator is running, in its own thread and so between two transactions: that is
what kill -9 leaves behind. tests/faults kills real processes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleFilter

from syphon.amqp import Header, Int, Map, Properties, Section, Symbol, UInt, properties_bytes, section_bytes
from syphon.amqp.frames import (
    AMQP_HEADER,
    FRAME_SASL,
    SASL_HEADER,
    Attach,
    Begin,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    frame,
)
from syphon.amqp.sections import data_section, header_bytes
from syphon.cli import ExitCode
from syphon.emulator import (
    Emulator,
    EmulatorSettings,
    FakeClock,
    NamespaceSettings,
    QueueDescription,
    RunningNamespace,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.amqp_front import AmqpConnection
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.namespace import BrokerNamespace
from syphon.emulator.broker.refusals import Refusal
from syphon.emulator.state import SqliteJournal, StateUnusable
from tests.integration.emulator.conftest import now
from tests.support.cli_process import run_syphon
from tests.support.plain_http import AioPlainHttp
from tests.support.sdk_queue import SOON
from tests.support.waiting import TIMEOUT


@pytest.fixture
def clock() -> FakeClock:
    return now()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@asynccontextmanager
async def started(state: Path, clock: FakeClock) -> AsyncIterator[RunningNamespace]:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], state=state)
    async with Emulator(settings, clock=clock) as emulator:
        yield emulator["contoso"]


def client_of(running: RunningNamespace) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(running.connection_string, retry_total=0)


def admin_of(running: RunningNamespace) -> ServiceBusAdministrationClient:
    transport = AioPlainHttp()
    return ServiceBusAdministrationClient.from_connection_string(running.connection_string, transport=transport)


def killed(state: Path) -> Path:
    """What would be left if the emulator were killed now."""
    copy = state.with_name(f"{state.name}-killed")
    shutil.copytree(state, copy)
    return copy


def stored_messages(namespace: BrokerNamespace, path: str) -> list[bytes]:
    """The messages of a queue, byte by byte, with their numbers, states and delivery counts."""
    return [message.peeked() for message in namespace.message_queue(path).peek(0, 1000)]


def body(message: ServiceBusReceivedMessage) -> str:
    return str(message)


def put(
    running: RunningNamespace, path: str, *bodies: str, ttl: int | None = None, message_id: str | None = None
) -> None:
    """Sends, each by itself, without a client."""
    for text in bodies:
        header = header_bytes(Header(ttl=UInt(ttl))) if ttl is not None else b""
        properties = properties_bytes(Properties(message_id=message_id))
        message = BrokeredMessage.parse(header + properties + data_section(text.encode()))
        running.namespace.target(path).submit([message])


class Taker:
    """A receiver that takes what it is given."""

    def __init__(self, most: int) -> None:
        self.credit = most
        self.deletes = False
        self.owner: object = self
        self.taken: list[BrokeredMessage] = []

    def admits(self) -> bool:
        return True

    def deliver(self, message: BrokeredMessage) -> None:
        self.credit -= 1
        self.taken.append(message)

    def detach(self, why: Refusal) -> None:
        raise why


def take(running: RunningNamespace, path: str, most: int = 100) -> list[BrokeredMessage]:
    """Locks what can be had now, without a client."""
    taker = Taker(most)
    message_queue = running.namespace.source(path)[1]
    message_queue.feed(taker)
    message_queue.leave(taker)
    return taker.taken


def text(message: BrokeredMessage) -> str:
    """The body, which comes last."""
    return message.bare.rpartition(b"\x00\x53\x75\xb0")[2][4:].decode()


async def durable(running: RunningNamespace) -> None:
    """Waits until an acknowledgement could go out."""
    written = asyncio.get_running_loop().create_future()
    running.namespace.journal.when_durable(lambda: written.set_result(None))
    await written


async def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """So many messages; fewer only if they do not come."""
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        more = await receiver.receive_messages(count - len(found), max_wait_time=SOON)
        if not more:
            break
        found += more
    return found


# --- messages -------------------------------------------------------------------------------------------------------


async def test_messages_come_back_byte_by_byte(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        async with client_of(running) as client, client.get_queue_sender("q") as sender:
            plain = ServiceBusMessage(
                b"\x00\xff" * 100,
                message_id="one",
                subject="s",
                correlation_id="c",
                content_type="t",
                to="to",
                reply_to="r",
                partition_key="k",
                time_to_live=timedelta(hours=1),
                application_properties={"text": "é", "number": 7, "real": 0.5, "yes": True, "id": uuid.UUID(int=5)},
            )
            await sender.send_messages(plain)
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
        before = stored_messages(running.namespace, "q")
        left = killed(state)
    assert len(before) == 6
    async with started(left, clock) as running:
        assert stored_messages(running.namespace, "q") == before
        async with client_of(running) as client, client.get_queue_receiver("q") as receiver:
            first, *others = await receive(receiver, 6)
            assert b"".join(first.body) == b"\x00\xff" * 100
            assert (first.message_id, first.time_to_live) == ("one", timedelta(hours=1))
            assert [body(message) for message in others] == ["0", "1", "2", "3", "4"]


async def test_what_was_settled_stays_so(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        async with client_of(running) as client:
            async with client.get_queue_sender("q") as sender:
                names = ["completed", "abandoned", "deferred", "dead", "waiting"]
                await sender.send_messages([ServiceBusMessage(name) for name in names])
            async with client.get_queue_receiver("q") as receiver:
                messages = {body(message): message for message in await receive(receiver, 4)}
                await receiver.complete_message(messages["completed"])
                await receiver.defer_message(messages["deferred"])
                await receiver.dead_letter_message(messages["dead"], reason="spoilt", error_description="by the sun")
                await receiver.abandon_message(messages["abandoned"])
                left = killed(state)
    number = messages["deferred"].sequence_number
    assert number is not None
    async with started(left, clock) as running, client_of(running) as client:
        async with client.get_queue_receiver("q") as receiver:
            peeked = {body(message): message for message in await receiver.peek_messages(10)}
            assert set(peeked) == {"abandoned", "deferred", "waiting"}
            assert peeked["deferred"].state is ServiceBusMessageState.DEFERRED
            received = {body(message): message for message in await receive(receiver, 2)}
            counts = {name: message.delivery_count for name, message in received.items()}
            assert counts == {"abandoned": 1, "waiting": 0}
            (deferred,) = await receiver.receive_deferred_messages(number)
            await receiver.complete_message(deferred)
        async with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (letter,) = await receive(receiver, 1)
            assert (body(letter), letter.dead_letter_reason) == ("dead", "spoilt")
            assert letter.dead_letter_error_description == "by the sun"


async def test_a_message_that_was_received_and_deleted_does_not_come_back(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        async with client_of(running) as client:
            async with client.get_queue_sender("q") as sender:
                await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            async with client.get_queue_receiver("q", receive_mode=mode) as receiver:
                assert [body(message) for message in await receive(receiver, 1)] == ["a"]
                left = killed(state)
    async with started(left, clock) as running:
        assert [message.ordinal for message in running.namespace.message_queue("q").peek(0, 10)] == [2]


async def test_scheduled_messages_come_at_their_time_and_cancelled_ones_never(state: Path, clock: FakeClock) -> None:
    later = datetime.fromtimestamp(clock.now() / 1000, UTC) + timedelta(minutes=5)
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        running.namespace.create_topic(TopicDescription("t"))
        running.namespace.create_subscription(SubscriptionDescription("t", "s"))
        async with client_of(running) as client:
            async with client.get_queue_sender("q") as sender:
                messages = [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")]
                numbers = await sender.schedule_messages(messages, later)
                await sender.cancel_scheduled_messages(numbers[1])
            async with client.get_topic_sender("t") as sender:
                await sender.schedule_messages(ServiceBusMessage("published"), later)
        left = killed(state)
    async with started(left, clock) as running, client_of(running) as client:
        (waiting,) = running.namespace.message_queue("q").peek(0, 10)
        assert waiting.sequence == numbers[0]
        clock.advance(299)
        assert not running.namespace.message_queue("t/subscriptions/s").peek(0, 10)
        clock.advance(2)
        async with client.get_queue_receiver("q") as receiver:
            (message,) = await receive(receiver, 1)
            assert body(message) == "kept"
            assert message.sequence_number is not None
            assert message.sequence_number > max(numbers)
        async with client.get_subscription_receiver("t", "s") as receiver:
            assert [body(message) for message in await receive(receiver, 1)] == ["published"]


async def test_a_message_whose_time_to_live_expired_meanwhile_is_dead_lettered(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q", dead_lettering_on_message_expiration=True))
        put(running, "q", "short", ttl=30_000)
        put(running, "q", "long", ttl=3_600_000)
        await durable(running)
        left = killed(state)
    clock.advance(60)
    async with started(left, clock) as running:
        clock.advance(0)
        assert [text(message) for message in take(running, "q")] == ["long"]
        assert [text(message) for message in take(running, "q/$DeadLetterQueue")] == ["short"]


async def test_numbers_go_on_after_everything_was_taken(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        put(running, "q", "a", "b", "c")
        for message in take(running, "q"):
            assert message.lock_token is not None
            running.namespace.message_queue("q").complete(message.lock_token)
        await durable(running)
        left = killed(state)
    async with started(left, clock) as running:
        put(running, "q", "d")
        assert [message.sequence for message in take(running, "q")] == [4]


# --- locks ----------------------------------------------------------------------------------------------------------


async def test_a_lock_outlives_the_process_until_its_time(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q", lock_duration=60_000))
        put(running, "q", "locked")
        assert len(take(running, "q")) == 1
        await durable(running)
        left = killed(state)
    clock.advance(59)
    async with started(left, clock) as running:
        clock.advance(0)
        assert take(running, "q") == []
        clock.advance(2)
        assert [(text(message), message.delivery_count) for message in take(running, "q")] == [("locked", 1)]


async def test_a_lock_that_expired_meanwhile_holds_nothing_back(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q", lock_duration=60_000))
        put(running, "q", "locked")
        assert len(take(running, "q")) == 1
        await durable(running)
        left = killed(state)
    clock.advance(61)
    async with started(left, clock) as running:
        clock.advance(0)
        assert [message.delivery_count for message in take(running, "q")] == [1]


async def test_locks_end_in_their_own_order_after_a_restart(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q", lock_duration=60_000))
        put(running, "q", "renewed", "not renewed")
        renewed, _ = take(running, "q")
        clock.advance(40)
        assert renewed.lock_token is not None
        running.namespace.message_queue("q").renew(renewed.lock_token)
        await durable(running)
        left = killed(state)
    async with started(left, clock) as running:
        clock.advance(30)
        assert [text(message) for message in take(running, "q")] == ["not renewed"]
        clock.advance(31)
        assert [text(message) for message in take(running, "q")] == ["renewed"]


async def test_a_client_that_holds_a_lock_can_settle_with_it_after_a_restart(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q", lock_duration=60_000))
        put(running, "q", "a", "b")
        async with client_of(running) as client, client.get_queue_receiver("q") as receiver:
            held = await receive(receiver, 2)
            left = killed(state)
    async with started(left, clock) as running, client_of(running) as client:
        async with client.get_queue_receiver("q") as receiver:
            # The token came over a closed link; the management link accepts it as well.
            await receiver._settle_message_via_mgmt_link(  # type: ignore[no-untyped-call]
                "completed", [held[0].lock_token]
            )
        (message,) = running.namespace.message_queue("q").peek(0, 10)
        assert message.ordinal == held[1].sequence_number


async def test_a_session_is_free_again_and_its_state_is_kept(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q", requires_session=True))
        async with client_of(running) as client:
            async with client.get_queue_sender("q") as sender:
                await sender.send_messages([ServiceBusMessage(name, session_id="s") for name in ("1", "2")])
            async with client.get_queue_receiver("q", session_id="cleared") as receiver:
                await receiver.session.set_state("something")
                await receiver.session.set_state(None)
            async with client.get_queue_receiver("q", session_id="s") as receiver:
                first, _ = await receive(receiver, 2)
                await receiver.complete_message(first)
                await receiver.session.set_state("half done")
                left = killed(state)
    async with started(left, clock) as running, client_of(running) as client:
        async with client.get_queue_receiver("q", session_id="s") as receiver:
            assert await receiver.session.get_state() == b"half done"
            (message,) = await receive(receiver, 1)
            assert (body(message), message.delivery_count) == ("2", 0)
        async with client.get_queue_receiver("q", session_id="cleared") as receiver:
            assert await receiver.session.get_state() is None


# --- entities -------------------------------------------------------------------------------------------------------


async def test_a_repeated_id_is_still_a_repeat_after_a_restart_but_not_forever(state: Path, clock: FakeClock) -> None:
    queue = QueueDescription("q", requires_duplicate_detection=True, duplicate_detection_history_time_window=60_000)
    async with started(state, clock) as running:
        running.namespace.create_queue(queue)
        put(running, "q", "first", message_id="same")
        await durable(running)
        left = killed(state)
    async with started(left, clock) as running:
        clock.advance(59)
        put(running, "q", "repeat", message_id="same")
        put(running, "q", "other", message_id="other")
        clock.advance(2)
        put(running, "q", "anew", message_id="same")
        assert [text(message) for message in take(running, "q")] == ["first", "other", "anew"]


async def test_ids_that_duplicate_detection_has_forgotten_do_not_pile_up_on_disk(state: Path, clock: FakeClock) -> None:
    queue = QueueDescription("q", requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)
    async with started(state, clock) as running:
        running.namespace.create_queue(queue)
        for part in range(8):
            clock.advance(21)
            for number in range(500):
                put(running, "q", "", message_id=f"{part}-{number}")
        await durable(running)
        with sqlite3.connect(state / "contoso.db") as database:
            kept = database.execute("select count(*) from seen").fetchone()[0]
        database.close()
    assert 500 <= kept < 2000


async def test_topics_subscriptions_and_rules_come_back_as_they_were(state: Path, clock: FakeClock) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    properties: Any = {"n": 7, "flag": True, "at": moment, "real": 0.5, "word": "x"}
    async with started(state, clock) as running:
        async with admin_of(running) as admin:
            await admin.create_topic("t")
            for name in ("sql", "correlation", "none", "all"):
                await admin.create_subscription("t", name)
            for name in ("sql", "correlation", "none"):
                await admin.delete_rule("t", name, "$Default")
            sql = SqlRuleFilter("colour = @wanted AND sys.Label LIKE 'a%'", {"wanted": "red"})
            await admin.create_rule("t", "sql", "Reds", filter=sql)
            correlation = CorrelationRuleFilter(correlation_id="c", properties=properties)
            await admin.create_rule("t", "correlation", "AllOfIt", filter=correlation)
        async with client_of(running) as client, client.get_topic_sender("t") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
        rules = {name: running.namespace.rules("t", name) for name in ("sql", "correlation", "none", "all")}
        left = killed(state)
    async with started(left, clock) as running, client_of(running) as client:
        assert {name: running.namespace.rules("t", name) for name in rules} == rules
        assert [rule.name for rule in rules["sql"]] == ["Reds"]
        async with client.get_topic_sender("t") as sender:
            red = ServiceBusMessage("red", subject="apple", application_properties={"colour": "red"})
            matching = ServiceBusMessage("matching", correlation_id="c", application_properties=dict(properties))
            other: Any = dict(properties, n=8)
            await sender.send_messages([red, matching])
            await sender.send_messages(ServiceBusMessage("other", correlation_id="c", application_properties=other))
        found = {name: len(running.namespace.message_queue(f"t/subscriptions/{name}")) for name in rules}
        assert found == {"sql": 1, "correlation": 1, "none": 0, "all": 4}
        async with client.get_subscription_receiver("t", "all") as receiver:
            assert [body(message) for message in await receive(receiver, 4)] == ["before", "red", "matching", "other"]


async def test_updates_and_deletions_are_kept(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running, admin_of(running) as admin:
        for name in ("changed", "gone", "gone/but/not/this", "again"):
            await admin.create_queue(name)
        await admin.create_topic("t")
        await admin.create_subscription("t", "s")
        await admin.create_topic("kept")
        await admin.create_subscription("kept", "gone")
        await admin.create_subscription("kept", "stays")
        for name in ("gone", "gone/but/not/this", "again", "t", "kept"):
            put(running, name, name)
        changed = await admin.get_queue("changed")
        changed.max_delivery_count, changed.lock_duration = 3, timedelta(seconds=17)
        changed.forward_to = "again"
        await admin.update_queue(changed)
        await admin.delete_queue("gone")
        await admin.delete_topic("t")
        await admin.delete_subscription("kept", "gone")
        await admin.delete_queue("again")
        await admin.create_queue("again")
        described = running.namespace.descriptions()
        left = killed(state)
    async with started(left, clock) as running:
        namespace = running.namespace
        assert namespace.descriptions() == described
        assert [queue.name for queue in namespace.queues()] == ["again", "changed", "gone/but/not/this"]
        assert [topic.name for topic in namespace.topics()] == ["kept"]
        assert [entry.name for entry in namespace.subscriptions("kept")] == ["stays"]
        assert len(namespace.message_queue("gone/but/not/this")) == 1
        assert len(namespace.message_queue("kept/subscriptions/stays")) == 1
        # Under its old name nothing comes back, neither in it nor in those of its kind.
        assert len(namespace.message_queue("again")) == 0
        namespace.create_queue(QueueDescription("gone"))
        namespace.create_topic(TopicDescription("t"))
        namespace.create_subscription(SubscriptionDescription("t", "s"))
        assert len(namespace.message_queue("gone")) == len(namespace.message_queue("t/subscriptions/s")) == 0


async def test_what_an_entity_forwards_to_may_come_later_or_be_gone(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        namespace = running.namespace
        first = namespace.create_queue(QueueDescription("first"))
        second = namespace.create_queue(QueueDescription("second"))
        namespace.create_queue(QueueDescription("third"))
        namespace.update_queue(replace(first, forward_to="second"))
        namespace.update_queue(replace(second, forward_to="third"))
        namespace.delete("third")
    async with started(state, clock) as running:
        forwards = {queue.name: queue.forward_to for queue in running.namespace.queues()}
        assert forwards == {"first": "second", "second": "third"}


async def test_a_queue_that_is_deleted_with_messages_in_flight_leaves_nothing_behind(
    state: Path, clock: FakeClock
) -> None:
    async with started(state, clock) as running:
        description = QueueDescription("q", requires_session=True, dead_lettering_on_message_expiration=True)
        running.namespace.create_queue(description)
        async with client_of(running) as client:
            async with client.get_queue_sender("q") as sender:
                message = ServiceBusMessage("m", session_id="s", time_to_live=timedelta(seconds=10))
                await sender.send_messages(message)
            async with client.get_queue_receiver("q", session_id="s") as receiver:
                await receive(receiver, 1)
                # Expired, but held: it becomes a dead letter as soon as its receiver is cut off.
                clock.advance(20)
                extra = BrokeredMessage()
                extra.session_id = "s"
                running.namespace.target("q").submit([extra])
                running.namespace.delete("q")
    async with started(state, clock) as running:
        assert running.namespace.queues() == []
    with sqlite3.connect(state / "contoso.db") as database:
        for table in ("entities", "messages", "sessions", "seen", "numbers"):
            assert database.execute(f"select count(*) from {table}").fetchone() == (0,)
    database.close()


def test_everything_that_is_known_of_a_message_is_written_down(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "contoso.db")
    kept = {name for _, name, *_ in sqlite3.connect(tmp_path / "contoso.db").execute("pragma table_info(messages)")}
    journal.close()
    assert kept - {"path"} == set(BrokeredMessage.__slots__) - {"ping"}  # a ping is never kept


async def receive_in_one_breath(running: RunningNamespace, path: str, deletes: bool) -> None:
    """Connects, attaches and grants credit in one write, so that all answers and a message leave together."""
    policy = running.settings.policies[0]
    sasl = SaslInit("PLAIN", f"\0{policy.name}\0{policy.key.get_secret_value()}".encode())
    attach = Attach("link", 0, True, 1 if deletes else 0, 0 if deletes else 1, Source(path), Target(path))
    steps = (Open("test", "localhost"), Begin(None, 0, 100, 100), attach, Flow(0, 100, 0, 100, 0, 0, 1))
    reader, writer = await asyncio.open_connection("127.0.0.1", running.amqp_port)
    writer.write(SASL_HEADER + frame(0, sasl.to_bytes(), FRAME_SASL) + AMQP_HEADER)
    writer.write(b"".join(frame(0, step.to_bytes()) for step in steps))
    async with asyncio.timeout(TIMEOUT):
        await reader.readuntil(b"\x00\x53\x14")  # a transfer
    writer.close()
    await writer.wait_closed()


# --- promises -------------------------------------------------------------------------------------------------------


async def test_nothing_is_said_before_it_is_on_disk(
    state: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each moment bytes leave for a client, the disk and the memory of the broker agree."""
    differences: list[tuple[set[object], set[object]]] = []
    put = AmqpConnection._put

    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        database = sqlite3.connect(state / "contoso.db")

        def compare_and_put(self: AmqpConnection, data: bytes, last: bool) -> None:
            disk: set[object] = set(database.execute("select ordinal, lock_token, delivery_count from messages"))
            message_queue = running.namespace.message_queue("q")
            memory: set[object] = {(m.ordinal, m.lock_token, m.delivery_count) for m in message_queue.peek(0, 1000)}
            if disk != memory:
                differences.append((disk, memory))
            put(self, data, last)

        monkeypatch.setattr(AmqpConnection, "_put", compare_and_put)
        async with client_of(running) as client, client.get_queue_sender("q") as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
            async with client.get_queue_receiver("q") as receiver:
                for _ in range(2):
                    for message in await receive(receiver, 5):
                        await receiver.complete_message(message)
                for message in await receive(receiver, 2):
                    await receiver.abandon_message(message)
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            async with client.get_queue_receiver("q", receive_mode=mode) as receiver:
                await receive(receiver, 5)
        await receive_in_one_breath(running, "q", deletes=False)
        await receive_in_one_breath(running, "q", deletes=True)
        assert len(running.namespace.message_queue("q")) < 6
        database.close()
    assert differences == []


async def test_what_cannot_be_written_is_not_acknowledged(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
        journal = running.namespace.journal
        assert isinstance(journal, SqliteJournal)
        async with client_of(running) as client, client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("safe"))
            pages = journal._database.execute("pragma page_count").fetchone()[0]
            journal._database.execute(f"pragma max_page_count={pages}")
            with pytest.raises(ServiceBusError, match=r"cannot write its state.*full"):
                await sender.send_messages(ServiceBusMessage(b"x" * 100_000))
            left = killed(state)
            # The next client gets the error too, on both ports.
            with pytest.raises(ServiceBusError, match=r"cannot write its state.*full"):
                await sender.send_messages(ServiceBusMessage("late"))
            async with admin_of(running) as admin:
                with pytest.raises(Exception, match="cannot write its state"):
                    await admin.create_queue("late")
            journal._database.execute("pragma max_page_count=1000000")
            journal.flush()
            await sender.send_messages(ServiceBusMessage("room again"))
        bodies = [message.bare for message in running.namespace.message_queue("q").peek(0, 10)]
    async with started(left, clock) as running:
        assert len(running.namespace.message_queue("q")) == 1
    async with started(state, clock) as running:
        # What was not acknowledged may be there; what was in memory and what is on disk agree again.
        assert [message.bare for message in running.namespace.message_queue("q").peek(0, 10)] == bodies
        assert [queue.name for queue in running.namespace.queues()] == ["q"]


async def test_the_files_are_for_their_owner_alone(state: Path, clock: FakeClock) -> None:
    before = os.umask(0)
    try:
        async with started(state, clock) as running:
            running.namespace.create_queue(QueueDescription("q"))
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (state, *state.iterdir())}
    finally:
        os.umask(before)
    assert modes.pop("state") == 0o700
    assert {"contoso.db", "contoso.db-wal", "lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


# --- what cannot be used --------------------------------------------------------------------------------------------


async def test_a_directory_is_for_one_emulator_at_a_time(state: Path, clock: FakeClock) -> None:
    async with started(state, clock):
        with pytest.raises(StateUnusable, match=f"in use by another emulator \\(process {os.getpid()}\\)"):
            async with started(state, clock):
                pass
    async with started(state, clock):
        pass


async def test_a_namespace_finds_its_state_however_its_name_is_written(state: Path, clock: FakeClock) -> None:
    async with started(state, clock) as running:
        running.namespace.create_queue(QueueDescription("q"))
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="CONTOSO")], state=state)
    async with Emulator(settings, clock=clock) as emulator:
        assert [queue.name for queue in emulator["CONTOSO"].namespace.queues()] == ["q"]


async def test_a_file_of_the_first_version_is_brought_to_this_one(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    journal = SqliteJournal(file)
    message = BrokeredMessage.parse(section_bytes(Section.VALUE, "old"))
    message.ordinal = 1
    journal.put("q", message)
    journal.close()
    with sqlite3.connect(file) as database:
        database.execute("alter table messages drop column delivery_annotations")
        database.execute("alter table messages drop column first_acquirer")
        database.execute("pragma user_version=1")
    database.close()
    journal = SqliteJournal(file)
    ((_, old),) = journal.snapshot().messages
    assert (old.bare, old.delivery_annotations) == (message.bare, b"")
    new = BrokeredMessage.parse(
        section_bytes(Section.DELIVERY_ANNOTATIONS, Map(((Symbol("hop"), Int(1)),)))
        + section_bytes(Section.VALUE, "new")
    )
    new.ordinal = 2
    journal.put("q", new)
    journal.close()
    journal = SqliteJournal(file)
    assert [each.to_bytes() for _, each in journal.snapshot().messages] == [old.to_bytes(), new.to_bytes()]
    assert b"hop" in new.to_bytes()
    journal.close()


def garbage(file: Path) -> str:
    file.write_bytes(b"this is no database" * 1000)
    return "not a database"


def foreign(file: Path) -> str:
    with sqlite3.connect(file) as database:
        database.execute("create table messages (text)")
    database.close()
    return "belongs to another program"


def newer(file: Path) -> str:
    SqliteJournal(file).close()
    with sqlite3.connect(file) as database:
        database.execute("pragma user_version=99")
    database.close()
    return "another version"


def senseless(file: Path) -> str:
    SqliteJournal(file).close()
    with sqlite3.connect(file) as database:
        database.execute('insert into entities values (\'q\', 1, \'{"kind": "Cake", "fields": {}}\')')
    database.close()
    return "good copy"


def homeless(file: Path) -> str:
    SqliteJournal(file).close()
    with sqlite3.connect(file) as database:
        database.execute("insert into numbers values ('nowhere', 5)")
    database.close()
    return "is not consistent"


@pytest.mark.parametrize("spoil", [garbage, foreign, newer, senseless, homeless])
def test_a_file_that_makes_no_sense_is_reported_plainly_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    file = tmp_path / "a.db"
    text = spoil(file)
    before = file.read_bytes()
    result = run_syphon("emulator", "--json", "--namespace", "a:0:0", "--state", str(tmp_path), timeout=100)
    assert (result.returncode, result.stdout) == (ExitCode.CONFIG, "")
    assert "Traceback" not in result.stderr
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert file.read_bytes() == before
