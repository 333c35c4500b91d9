"""Throttling: a limit of credits per second for the whole namespace, and server-busy beyond it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusServerBusyError

from syphon.amqp import Message, Properties, Section, properties_bytes, section_bytes
from syphon.amqp.frames import BATCH_FORMAT, Accepted
from syphon.emulator import FakeClock, QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.plain_http import AioPlainHttp
from tests.support.raw_client import raw_client
from tests.support.sdk_queue import AIO, SdkQueue, sdk_queue

BUSY = "com.microsoft:server-busy"


def message(number: int) -> bytes:
    return properties_bytes(Properties(message_id=str(number))) + section_bytes(Section.DATA, b"an order")


@pytest.fixture
def clock(clocked: EmulatedNamespace) -> FakeClock:
    assert clocked.clock is not None
    return clocked.clock


@pytest.fixture
async def orders(clocked: EmulatedNamespace) -> AsyncIterator[SdkQueue]:
    async with sdk_queue(clocked, AIO) as it:
        yield it


@pytest.fixture
async def admin(clocked: EmulatedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    async with ServiceBusAdministrationClient.from_connection_string(
        clocked.connection_string.replace("UseDevelopmentEmulator=true;", ""), transport=AioPlainHttp(), retry_total=0
    ) as it:
        yield it


async def test_each_message_sent_costs_one_credit_and_every_second_brings_new_ones(
    clocked: EmulatedNamespace, clock: FakeClock
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    clocked.namespace.faults.set_throttle(3)
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        assert [await raw.send(sender, message(number)) for number in range(3)] == [Accepted()] * 3
        refusal = await raw.refusal_of(sender, message(3))
        assert refusal.condition == BUSY
        assert "50009" in (refusal.description or "")
        clock.advance(1)
        assert await raw.send(sender, message(3)) == Accepted()
    assert clocked.namespace.counters.totals()["send"] == 4  # and the refused one is not counted


async def test_a_batch_costs_as_many_credits_as_it_has_messages_and_is_refused_as_a_whole(
    clocked: EmulatedNamespace,
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    clocked.namespace.faults.set_throttle(4)
    parts = [section_bytes(Section.DATA, message(number)) for number in range(5)]
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        assert (await raw.refusal_of(sender, b"".join(parts), BATCH_FORMAT)).condition == BUSY
        assert len(clocked.namespace.message_queue("orders")) == 0
        assert await raw.send(sender, b"".join(parts[:4]), BATCH_FORMAT) == Accepted()


async def test_the_client_is_told_that_the_server_is_busy(clocked: EmulatedNamespace, orders: SdkQueue) -> None:
    clocked.namespace.faults.set_throttle(1)
    await orders.send("first")
    with pytest.raises(ServiceBusServerBusyError, match="50009"):
        await orders.send("second")


async def test_receivers_are_slowed_and_lose_nothing(clocked: EmulatedNamespace, clock: FakeClock) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        for number in range(10):
            await raw.send(sender, message(number))
        clock.advance(1)
        clocked.namespace.faults.set_throttle(4)
        receiver = await raw.attach_receiver("orders")
        raw.grant(receiver, 10)
        arrivals, by_second = [], []
        for expected in (4, 4, 2):
            arrivals += [await raw.receive(receiver) for _ in range(expected)]
            by_second.append(clocked.namespace.counters.totals()["receive"])
            clock.advance(1)
        assert by_second == [4, 8, 10]
        ids = [Message(arrival.payload).properties().message_id for arrival in arrivals]
        assert ids == [str(number) for number in range(10)]
        assert [await raw.settle(arrival, Accepted()) for arrival in arrivals] == [Accepted()] * 10
    assert len(clocked.namespace.message_queue("orders")) == 0


async def test_settling_and_attaching_cost_nothing(clocked: EmulatedNamespace) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        await raw.send(sender, message(0))
        receiver = await raw.attach_receiver("orders")
        raw.grant(receiver, 1)
        arrival = await raw.receive(receiver)
        clocked.namespace.faults.set_throttle(0)
        assert await raw.settle(arrival, Accepted()) == Accepted()
        assert (await raw.refusal_of(await raw.attach_sender("orders"), message(1))).condition == BUSY


async def test_a_management_operation_costs_ten_credits_and_a_peeked_message_one(
    clocked: EmulatedNamespace, clock: FakeClock, orders: SdkQueue
) -> None:
    await orders.send("first", "second", "third")
    held = await orders.take_one()
    clocked.namespace.faults.set_throttle(23)
    await orders.receiver.renew_message_lock(held)
    await orders.receiver.renew_message_lock(held)
    assert len(await orders.receiver.peek_messages(3, sequence_number=1)) == 3
    with pytest.raises(ServiceBusServerBusyError):
        await orders.receiver.peek_messages(1, sequence_number=1)
    clock.advance(1)
    assert len(await orders.receiver.peek_messages(3, sequence_number=1)) == 3


async def test_a_request_over_http_costs_ten_credits(
    clocked: EmulatedNamespace, clock: FakeClock, admin: ServiceBusAdministrationClient
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    clocked.namespace.faults.set_throttle(29)
    await admin.get_queue("orders")
    await admin.get_queue("orders")
    with pytest.raises(HttpResponseError, match="50009") as refused:
        await admin.get_queue("orders")
    assert refused.value.status_code == 503
    clock.advance(1)
    await admin.get_queue("orders")


async def test_message_counts_read_zero_while_the_namespace_is_throttled_and_are_right_afterwards(
    clocked: EmulatedNamespace, clock: FakeClock, admin: ServiceBusAdministrationClient
) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))

    async def count() -> int:
        return (await admin.get_queue_runtime_properties("orders")).active_message_count or 0

    clocked.namespace.faults.set_throttle(20)
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        for number in range(20):
            await raw.send(sender, message(number))
        clock.advance(1)
        assert await count() == 20  # a limit that was not reached hides nothing
        for number in range(10):
            await raw.send(sender, message(number))
        await raw.refusal_of(sender, message(0))
    clock.advance(1)
    assert await count() == 0
    clock.advance(9)
    assert await count() == 30


async def test_counts_are_right_as_soon_as_the_throttle_is_taken_away(clocked: EmulatedNamespace) -> None:
    clocked.namespace.create_queue(QueueDescription("orders"))
    clocked.namespace.faults.set_throttle(1)
    async with raw_client(clocked) as raw:
        sender = await raw.attach_sender("orders")
        await raw.send(sender, message(0))
        await raw.refusal_of(sender, message(1))
        assert clocked.namespace.runtime("orders").active == 0
        clocked.namespace.faults.set_throttle(None)
        assert clocked.namespace.runtime("orders").active == 1
        assert await raw.send(sender, message(1)) == Accepted()
