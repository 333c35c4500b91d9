"""Counters: every operation counts once, under one kind, and so do receives without a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from syphon.amqp import Section, section_bytes
from syphon.amqp.frames import Accepted, Flow
from syphon.emulator import (
    Action,
    Emulator,
    EmulatorSettings,
    FakeClock,
    Fault,
    Kind,
    NamespaceSettings,
    Operation,
    Outage,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from syphon.emulator.broker.counters import OperationCounters
from tests.integration.emulator.conftest import EmulatedNamespace, ignore_unclosed_resources
from tests.support.raw_client import LinkEnded, RawClient, raw_client
from tests.support.sdk_queue import AIO, MOMENT, SOON, sdk_queue
from tests.support.waiting import async_eventually

pytestmark = [ignore_unclosed_resources, pytest.mark.usefixtures("garbage_collected")]

ORDER = section_bytes(Section.DATA, b"an order")
QUARTER, IDLE = 900, 600
"""Seconds: how long a receive waits, and when a link is idle."""


@pytest.fixture
def clock(clocked: EmulatedNamespace) -> FakeClock:
    assert clocked.clock is not None
    return clocked.clock


@pytest.fixture
async def patient() -> AsyncIterator[EmulatedNamespace]:
    """A namespace on a fake clock that does not mind idle links."""
    clock = FakeClock()
    names = [NamespaceSettings(name="contoso", link_idle_timeout=7 * 86_400_000)]
    async with Emulator(EmulatorSettings(namespaces=names), clock=clock) as emulator:
        yield EmulatedNamespace(emulator["contoso"], clock)


def counted(emulated: EmulatedNamespace, entity: str = "orders") -> dict[str, int]:
    return emulated.namespace.counters.by_entity().get(entity, {})


def empties(emulated: EmulatedNamespace, entity: str = "orders") -> int:
    return emulated.namespace.counters.of(entity, Kind.EMPTY_RECEIVE)


async def ask(raw: RawClient, receiver: int, credit: int, drain: bool = False) -> None:
    """Grants credit, and returns when the broker has seen it."""
    raw.post(Flow(0, 1 << 20, 0, 1 << 20, receiver, 0, credit, None, drain, True))
    await raw.next(Flow)


# Kinds ---------------------------------------------------------------------------------------------------------------


def test_counts_are_kept_by_entity_and_kind_and_can_be_reset() -> None:
    counters = OperationCounters()
    counters.add("Orders", Kind.SEND, 3)
    counters.add("orders", Kind.SEND)
    counters.add("ORDERS", Kind.PEEK)
    counters.add("invoices", Kind.SEND)
    assert counters.by_entity() == {"Orders": {"peek": 1, "send": 4}, "invoices": {"send": 1}}
    assert counters.of("oRDERS", Kind.SEND) == 4
    assert counters.totals() == {
        "send": 5,
        "receive": 0,
        "empty_receive": 0,
        "settle": 0,
        "peek": 1,
        "manage": 0,
    }
    counters.reset()
    assert counters.by_entity() == {}
    assert set(counters.totals().values()) == {0}


async def test_each_operation_is_counted_once_under_its_kind(emulated: EmulatedNamespace) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with sdk_queue(emulated, AIO) as orders:
        await orders.send("one", "two", "three", "four")
        assert counted(emulated) == {"send": 4}
        one, two, three, four = await orders.take(4)
        assert counted(emulated) == {"send": 4, "receive": 4}
        await orders.receiver.complete_message(one)
        await orders.receiver.dead_letter_message(two)
        await orders.receiver.abandon_message(three)
        await orders.receiver.defer_message(four)
        assert counted(emulated) == {"send": 4, "receive": 4, "settle": 4}
        assert four.sequence_number is not None
        [four] = await orders.receiver.receive_deferred_messages(four.sequence_number)
        assert counted(emulated) == {"send": 4, "receive": 5, "settle": 4}
        await orders.receiver.renew_message_lock(four)
        assert counted(emulated) == {"send": 4, "receive": 5, "settle": 4, "manage": 1}
        await orders.receiver.complete_message(four)  # a deferred one is settled by request
        assert counted(emulated) == {"send": 4, "receive": 5, "settle": 5, "manage": 1}
        [number] = await orders.sender.schedule_messages(ServiceBusMessage("later"), tomorrow)
        assert counted(emulated) == {"send": 5, "receive": 5, "settle": 5, "manage": 1}
        await orders.sender.cancel_scheduled_messages(number)
        assert counted(emulated) == {"send": 5, "receive": 5, "settle": 5, "manage": 2}
        await orders.receiver.peek_messages(10)
        await orders.receiver.peek_messages(10, sequence_number=1_000)  # finds nothing, and is a peek all the same
        assert counted(emulated) == {"send": 5, "receive": 5, "settle": 5, "manage": 2, "peek": 2}
    assert emulated.namespace.counters.totals() == {**counted(emulated), "empty_receive": 0}


async def test_what_is_refused_is_not_counted(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    emulated.namespace.faults.add(Fault(Action.REFUSE, Operation.SEND))
    emulated.namespace.faults.add(Fault(Action.REFUSE, Operation.SETTLE))
    async with raw_client(emulated) as raw:
        sender = await raw.attach_sender("orders")
        await raw.refusal_of(sender, ORDER)
        emulated.namespace.faults.clear(1)
        await raw.send(sender, ORDER)
        receiver = await raw.attach_receiver("orders")
        raw.grant(receiver, 1)
        await raw.settle(await raw.receive(receiver), Accepted())
    assert counted(emulated) == {"send": 1, "receive": 1}


async def test_topics_subscriptions_and_dead_letters_are_counted_by_their_own_paths(
    emulated: EmulatedNamespace,
) -> None:
    emulated.namespace.create_topic(TopicDescription("events"))
    emulated.namespace.create_subscription(SubscriptionDescription("events", "all"))
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(emulated) as raw:
        await raw.send(await raw.attach_sender("Events"), ORDER)
        receiver = await raw.attach_receiver("EVENTS/Subscriptions/all")
        raw.grant(receiver, 1)
        await raw.receive(receiver)
        await ask(raw, await raw.attach_receiver("orders/$DeadLetterQueue"), 1)
    await async_eventually(lambda: emulated.running.connection_count == 0, "the client has left")
    counters = emulated.namespace.counters
    assert counters.of("events", Kind.SEND) == 1
    assert counters.of("events/subscriptions/all", Kind.RECEIVE) == 1
    assert counters.of("orders/$deadletterqueue", Kind.EMPTY_RECEIVE) == 1
    assert sum(counters.totals().values()) == 3


# Receives that bring nothing -----------------------------------------------------------------------------------------


async def test_each_receive_of_the_client_that_brings_nothing_is_one_empty_receive(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        for _ in range(5):
            assert await orders.receiver.receive_messages(10, max_wait_time=MOMENT) == []
            await orders.receiver.peek_messages()  # once it is answered, the broker has heard of the receive as well
            clock.advance(30)
        assert empties(clocked) == 4  # the last one ends with the link, or with the next one
    assert counted(clocked) == {"empty_receive": 5, "peek": 5}


async def test_a_receive_that_brings_fewer_than_requested_is_not_empty(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        await orders.send("an order")
        assert len(await orders.receiver.receive_messages(10, max_wait_time=SOON)) == 1
        clock.advance(60)
    assert empties(clocked) == 0


async def test_four_quarters_of_an_hour_are_four_receives(patient: EmulatedNamespace) -> None:
    assert patient.clock is not None
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        receiver = await raw.attach_receiver("orders")
        for _ in range(4):
            await ask(raw, receiver, 1)
            await ask(raw, receiver, 100)  # at once: the same receive
            patient.clock.advance(QUARTER)
        await raw.detach(receiver)
    assert counted(patient) == {"empty_receive": 4}


async def test_four_quarters_of_an_hour_are_four_receives_though_idle_links_are_detached(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(clocked) as raw:
        receiver = await raw.attach_receiver("orders")
        for _ in range(4):
            await ask(raw, receiver, 100)
            clock.advance(IDLE)
            with pytest.raises(LinkEnded) as ended:
                await raw.next(Flow)
            assert ended.value.condition == "amqp:link:detach-forced"
            receiver = await raw.attach_receiver("orders")
            await ask(raw, receiver, 100)  # the same receive goes on
            clock.advance(QUARTER - IDLE)
        await raw.detach(receiver)
    assert counted(clocked) == {"empty_receive": 4}


async def test_a_receive_of_the_client_is_one_receive_across_a_forced_detach(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    links = clocked.namespace.entity("orders").links
    client = ServiceBusClient.from_connection_string(clocked.connection_string, retry_backoff_factor=0.01)
    async with client, client.get_queue_receiver("orders") as receiver:
        receiving = asyncio.create_task(receiver.receive_messages(100, max_wait_time=SOON * 4))
        await async_eventually(
            lambda: [link for link in links if getattr(link, "credit", 0) == 100], "the receive has begun"
        )
        clock.advance(IDLE)
        assert not links
        await async_eventually(
            lambda: [link for link in links if getattr(link, "credit", 0)], "it goes on, on a new link"
        )
        clock.advance(QUARTER - IDLE)
        assert not receiving.done()
        receiving.cancel()
        await asyncio.wait([receiving])
        assert counted(clocked) == {}
    assert counted(clocked) == {"empty_receive": 1}


@pytest.mark.parametrize("credit", [0, 5])
async def test_a_receive_that_ends_with_a_drain_is_counted_once(patient: EmulatedNamespace, credit: int) -> None:
    assert patient.clock is not None
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        receiver = await raw.attach_receiver("orders")
        await ask(raw, receiver, 5)
        patient.clock.advance(60)
        await ask(raw, receiver, credit, drain=True)
        await raw.detach(receiver)
    assert counted(patient) == {"empty_receive": 1}


async def test_a_receive_that_does_not_wait_is_a_receive(patient: EmulatedNamespace) -> None:
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        await ask(raw, await raw.attach_receiver("orders"), 5, drain=True)
        assert counted(patient) == {"empty_receive": 1}


async def test_credit_within_a_second_belongs_to_the_same_receive(patient: EmulatedNamespace) -> None:
    assert patient.clock is not None
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        receiver = await raw.attach_receiver("orders")
        await ask(raw, receiver, 1)
        patient.clock.advance(0.999)
        await ask(raw, receiver, 10)
        assert empties(patient) == 0
        patient.clock.advance(0.001)
        await ask(raw, receiver, 10)
        assert empties(patient) == 1


async def test_a_link_without_credit_is_no_receive(patient: EmulatedNamespace) -> None:
    assert patient.clock is not None
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        receiver = await raw.attach_receiver("orders")
        await ask(raw, receiver, 0)
        patient.clock.advance(QUARTER)
        await raw.detach(receiver)
    assert counted(patient) == {}


@pytest.mark.parametrize("outage", [Outage.REFUSE, Outage.DROP, Outage.HANG])
async def test_a_receive_that_an_outage_ends_is_not_counted(patient: EmulatedNamespace, outage: Outage) -> None:
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        await ask(raw, await raw.attach_receiver("orders"), 10)
        patient.namespace.faults.begin_outage(outage)
        patient.namespace.faults.end_outage()
        await async_eventually(lambda: patient.running.connection_count == 0, "the connection is cut")
    assert counted(patient) == {}


async def test_a_receive_whose_client_disconnects_is_counted(patient: EmulatedNamespace) -> None:
    patient.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(patient) as raw:
        await ask(raw, await raw.attach_receiver("orders"), 10)
    await async_eventually(lambda: patient.running.connection_count == 0, "the client has left")
    assert counted(patient) == {"empty_receive": 1}


# Idle links ----------------------------------------------------------------------------------------------------------


async def test_a_link_is_detached_by_force_when_nothing_has_happened_on_it_for_ten_minutes(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        clock.advance(IDLE - 1)
        assert await raw.send(sender, ORDER) == Accepted()
        clock.advance(IDLE - 1)
        assert await raw.send(sender, ORDER) == Accepted()
        clock.advance(IDLE)
        with pytest.raises(LinkEnded) as ended:
            await raw.next(Flow)
        assert ended.value.condition == "amqp:link:detach-forced"
        assert await raw.send(await raw.attach_sender("orders"), ORDER) == Accepted()  # on the same connection


async def test_the_time_until_a_link_is_idle_can_be_set() -> None:
    clock = FakeClock()
    names = [NamespaceSettings(name="contoso", link_idle_timeout=60_000)]
    async with Emulator(EmulatorSettings(namespaces=names), clock=clock) as emulator:
        emulated = EmulatedNamespace(emulator["contoso"], clock)
        emulated.namespace.create_queue(QueueDescription("orders"))
        async with raw_client(emulated) as raw:
            await raw.attach_sender("orders")
            clock.advance(60)
            with pytest.raises(LinkEnded):
                await raw.next(Flow)


async def test_the_client_gets_over_the_detachment_of_idle_links(clocked: EmulatedNamespace, clock: FakeClock) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    links = clocked.namespace.entity("orders").links
    client = ServiceBusClient.from_connection_string(clocked.connection_string, retry_backoff_factor=0.01)
    async with client, client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        await sender.send_messages(ServiceBusMessage("first"))
        [first] = await receiver.receive_messages(max_wait_time=SOON)
        await receiver.complete_message(first)
        clock.advance(IDLE)
        assert not links
        await sender.send_messages(ServiceBusMessage("second"))
        [second] = await receiver.receive_messages(max_wait_time=SOON)
        await receiver.complete_message(second)
    assert counted(clocked) == {"send": 2, "receive": 2, "settle": 2}


async def test_an_idle_management_link_costs_the_client_one_error_at_most(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    async with sdk_queue(clocked, AIO) as orders:
        assert await orders.receiver.peek_messages() == []
        clock.advance(IDLE)
        try:
            await orders.receiver.peek_messages()
        except ServiceBusError:
            assert await orders.receiver.peek_messages() == []
