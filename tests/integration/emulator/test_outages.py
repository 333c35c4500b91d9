"""Outages: one call makes a whole namespace unavailable in one of four ways; it comes back with all its messages."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from azure.core.exceptions import HttpResponseError, ServiceRequestError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from syphon.amqp import Properties, Section, properties_bytes, section_bytes
from syphon.amqp.frames import SASL_HEADER, Accepted
from syphon.emulator import Outage, QueueDescription
from tests.integration.emulator.conftest import EmulatedNamespace, ignore_unclosed_resources
from tests.support.plain_http import AioPlainHttp
from tests.support.raw_client import LinkEnded, RawClient, raw_client
from tests.support.sdk_queue import AIO, MOMENT, SOON, sdk_queue
from tests.support.waiting import TIMEOUT, async_eventually

pytestmark = [ignore_unclosed_resources, pytest.mark.usefixtures("garbage_collected")]

Switch = Callable[[Outage | None], Awaitable[None]]
"""Begins an outage, or ends it."""


@pytest.fixture(params=["in-process", "http"])
async def switch(request: pytest.FixtureRequest, emulated: EmulatedNamespace) -> AsyncIterator[Switch]:
    """Both ways to do it."""

    async def in_process(outage: Outage | None) -> None:
        if outage is None:
            emulated.namespace.faults.end_outage()
        else:
            emulated.namespace.faults.begin_outage(outage)

    async with aiohttp.ClientSession(f"http://127.0.0.1:{emulated.running.http_port}") as session:

        async def over_http(outage: Outage | None) -> None:
            if outage is None:
                answering = session.delete("/$emulator/outage")
            else:
                answering = session.put("/$emulator/outage", json={"kind": outage})
            async with answering as answer:
                assert answer.status == 200
                assert await answer.json() == {"outage": outage}

        yield in_process if request.param == "in-process" else over_http


def message(number: int) -> bytes:
    return properties_bytes(Properties(message_id=str(number))) + section_bytes(Section.DATA, b"an order")


def persistent(emulated: EmulatedNamespace) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(
        emulated.connection_string, retry_total=20, retry_backoff_factor=0.1, retry_mode="fixed"
    )


async def connect(emulated: EmulatedNamespace) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", emulated.running.amqp_port)


async def sends(emulated: EmulatedNamespace) -> None:
    """A client comes, sends and is content."""
    async with raw_client(emulated) as raw:
        assert await raw.send(await raw.attach_sender("orders"), message(0)) == Accepted()


@pytest.fixture
def orders(emulated: EmulatedNamespace) -> str:
    emulated.namespace.create_queue(QueueDescription("orders"))
    return "orders"


# Each kind, on the socket --------------------------------------------------------------------------------------------


async def test_the_port_is_closed_while_connections_are_refused(
    emulated: EmulatedNamespace, orders: str, switch: Switch
) -> None:
    port = emulated.running.amqp_port
    reader, writer = await connect(emulated)
    writer.write(SASL_HEADER)
    await reader.readexactly(8)
    await switch(Outage.REFUSE)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1000)
    with pytest.raises(ConnectionRefusedError):
        await connect(emulated)
    await switch(None)
    assert emulated.running.amqp_port == port
    await sends(emulated)
    writer.close()


async def test_the_port_is_kept_while_connections_are_refused(emulated: EmulatedNamespace) -> None:
    emulated.namespace.faults.begin_outage(Outage.REFUSE)
    with socket.socket() as thief, pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)):
        thief.bind(("127.0.0.1", emulated.running.amqp_port))


async def test_connections_are_dropped_as_soon_as_they_are_made(
    emulated: EmulatedNamespace, orders: str, switch: Switch
) -> None:
    old_reader, old_writer = await connect(emulated)
    old_writer.write(SASL_HEADER)
    await old_reader.readexactly(8)
    await switch(Outage.DROP)
    new_reader, new_writer = await connect(emulated)
    new_writer.write(SASL_HEADER)
    assert await new_reader.read() == b""
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await old_reader.readexactly(1000)
    await switch(None)
    await sends(emulated)
    for writer in (old_writer, new_writer):
        writer.close()


async def test_connections_fall_silent_and_are_cut_in_the_end(
    emulated: EmulatedNamespace, orders: str, switch: Switch
) -> None:
    async with raw_client(emulated) as old:
        sender = await old.attach_sender("orders")
        await switch(Outage.HANG)
        new_reader, new_writer = await connect(emulated)
        new_writer.write(SASL_HEADER)
        old.put(sender, message(1))
        silence = asyncio.gather(old.outcome(), new_reader.read(), return_exceptions=True)
        heard, _ = await asyncio.wait([silence], timeout=MOMENT)
        assert not heard
        await switch(None)
        cut, end = await silence
        assert isinstance(cut, ConnectionResetError | asyncio.IncompleteReadError)
        assert end == b""
    assert emulated.namespace.runtime("orders").active == 0  # it was never heard
    await sends(emulated)
    new_writer.close()


async def test_a_busy_namespace_refuses_everything_and_keeps_its_connections(
    emulated: EmulatedNamespace, orders: str, switch: Switch
) -> None:
    async with raw_client(emulated) as raw:
        sender, receiver = await raw.attach_sender("orders"), await raw.attach_receiver("orders")
        await raw.send(sender, message(0))
        raw.grant(receiver, 2)
        arrival = await raw.receive(receiver)
        await switch(Outage.BUSY)
        assert (await raw.refusal_of(sender, message(1))).condition == "com.microsoft:server-busy"
        assert "server-busy" in str(await raw.settle(arrival, Accepted()))
        with pytest.raises(LinkEnded) as refused:
            await raw.attach_sender("orders")
        assert refused.value.condition == "com.microsoft:server-busy"
        await switch(None)
        assert await raw.send(sender, message(1)) == Accepted()
    assert emulated.namespace.runtime("orders").active == 2


@pytest.mark.parametrize("first", Outage)
@pytest.mark.parametrize("second", Outage)
async def test_one_outage_can_follow_another(
    emulated: EmulatedNamespace, orders: str, first: Outage, second: Outage
) -> None:
    async with raw_client(emulated) as raw:
        sender = await raw.attach_sender("orders")
        emulated.namespace.faults.begin_outage(first)
        emulated.namespace.faults.begin_outage(second)
        if second is Outage.REFUSE:
            with pytest.raises(ConnectionRefusedError):
                await connect(emulated)
        elif second is Outage.BUSY:
            async with raw_client(emulated) as another:
                with pytest.raises(LinkEnded):
                    await another.attach_sender("orders")
        else:
            reader, writer = await connect(emulated)
            writer.write(SASL_HEADER)
            dropped = asyncio.create_task(reader.read())
            await asyncio.wait([dropped], timeout=TIMEOUT if second is Outage.DROP else MOMENT / 2)
            assert dropped.done() == (second is Outage.DROP)
            dropped.cancel()
            writer.close()
        emulated.namespace.faults.end_outage()
        await sends(emulated)
        await check_fate(raw, sender, survives=(first, second) == (Outage.BUSY, Outage.BUSY))


async def check_fate(raw: RawClient, sender: int, survives: bool) -> None:
    """A connection from before: it lives on only if the namespace was never more than busy."""
    raw.put(sender, message(9))
    if survives:
        assert await raw.outcome() == Accepted()
    else:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await raw.outcome()


# What the official clients make of it --------------------------------------------------------------------------------


async def test_a_client_that_does_not_retry_gets_an_error_of_each_kind(emulated: EmulatedNamespace) -> None:
    async with sdk_queue(emulated, AIO) as orders:
        faults = emulated.namespace.faults
        for outage, error in [
            (Outage.BUSY, ServiceBusServerBusyError),
            (Outage.REFUSE, ServiceBusConnectionError),
            (Outage.DROP, ServiceBusConnectionError),
        ]:
            faults.begin_outage(outage)
            with pytest.raises(error):
                await orders.send("an order")
            faults.end_outage()
            await orders.send("an order")
        assert orders.stored() == 3


async def test_clients_of_a_silent_namespace_time_out(emulated: EmulatedNamespace) -> None:
    async with sdk_queue(emulated, AIO) as orders:
        emulated.namespace.faults.begin_outage(Outage.HANG)
        with pytest.raises(OperationTimeoutError):
            await orders.sender.send_messages(ServiceBusMessage("an order"), timeout=MOMENT)
        assert await orders.receiver.receive_messages(max_wait_time=MOMENT) == []
        assert orders.stored() == 0
        emulated.namespace.faults.end_outage()


@pytest.mark.parametrize("outage", Outage)
async def test_clients_come_back_by_themselves_and_nothing_acknowledged_is_lost(
    clocked: EmulatedNamespace, outage: Outage
) -> None:
    clock = clocked.clock
    assert clock is not None
    clocked.namespace.create_queue(QueueDescription("orders"))
    faults = clocked.namespace.faults
    acknowledged: list[str] = []
    failures: list[ServiceBusError] = []
    received: set[str] = set()
    over = asyncio.Event()
    """If one of them fails, the others do not go on forever."""

    async def send() -> None:
        client = ServiceBusClient.from_connection_string(clocked.connection_string, retry_total=0)
        async with client, client.get_queue_sender("orders") as sender:
            while (number := len(acknowledged)) < 200 and not over.is_set():
                try:
                    await sender.send_messages(ServiceBusMessage("an order", message_id=str(number)), timeout=2)
                except ServiceBusError as error:
                    failures.append(error)
                else:
                    acknowledged.append(str(number))

    async def receive() -> None:
        async with persistent(clocked) as client, client.get_queue_receiver("orders") as receiver:
            while len(received) < 200 and not over.is_set():
                for arrived in await receiver.receive_messages(20, max_wait_time=SOON):
                    received.add(str(arrived.message_id))
                    with contextlib.suppress(ServiceBusError):  # then it is redelivered: at least once is the promise
                        await receiver.complete_message(arrived)

    async def disturb() -> None:
        await async_eventually(lambda: len(acknowledged) >= 40, "sends are in flight")
        faults.begin_outage(outage)
        stood, failed = len(acknowledged), len(failures)
        await async_eventually(lambda: len(failures) > failed, "a send has failed")
        assert len(acknowledged) <= stood + 1  # one answer may have been in flight
        faults.end_outage()
        clock.advance(60)  # what was received and never settled is available when its lock has expired

    try:
        async with asyncio.timeout(90):
            await asyncio.gather(send(), receive(), disturb())
    finally:
        over.set()
    assert acknowledged == [str(number) for number in range(200)]
    assert received == set(acknowledged)


async def test_a_receive_goes_on_after_an_outage(emulated: EmulatedNamespace, orders: str) -> None:
    async with persistent(emulated) as client, client.get_queue_receiver("orders") as receiver:
        receiving = asyncio.create_task(receiver.receive_messages(max_wait_time=2 * SOON))
        await async_eventually(lambda: emulated.namespace.entity("orders").links, "the receiver is attached")
        emulated.namespace.faults.begin_outage(Outage.REFUSE)
        await async_eventually(lambda: emulated.running.connection_count == 0, "its connection is cut")
        emulated.namespace.faults.end_outage()
        await sends(emulated)
        [arrived] = await receiving
        await receiver.complete_message(arrived)
    assert emulated.namespace.runtime("orders").active == 0


# The rest of the namespace, and its neighbour ------------------------------------------------------------------------


@pytest.fixture
async def admin(emulated: EmulatedNamespace) -> AsyncIterator[ServiceBusAdministrationClient]:
    address = emulated.connection_string.replace(str(emulated.running.amqp_port), str(emulated.running.http_port))
    async with ServiceBusAdministrationClient.from_connection_string(
        address.replace("UseDevelopmentEmulator=true;", ""), transport=AioPlainHttp(), retry_total=0
    ) as it:
        yield it


@pytest.mark.parametrize("outage", Outage)
async def test_the_administration_api_is_out_too_and_the_controls_answer(
    emulated: EmulatedNamespace, orders: str, admin: ServiceBusAdministrationClient, outage: Outage
) -> None:
    await admin.get_queue("orders")
    emulated.namespace.counters.reset()
    emulated.namespace.faults.begin_outage(outage)
    asking = asyncio.create_task(admin.get_queue("orders"))
    if outage is Outage.HANG:
        answered, _ = await asyncio.wait([asking], timeout=MOMENT)
        assert not answered
    elif outage is Outage.BUSY:
        with pytest.raises(HttpResponseError, match="50009") as refused:
            await asking
        assert refused.value.status_code == 503
    else:
        with pytest.raises(ServiceRequestError):
            await asking
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{emulated.running.http_port}/$emulator/health") as health,
    ):
        assert await health.json() == {"namespace": "contoso", "outage": outage}
    assert emulated.namespace.counters.by_entity() == {}  # what did not get through is not counted
    emulated.namespace.faults.end_outage()
    if outage is Outage.HANG:
        await asking  # its connection was cut, and the client has asked again by itself
    assert (await admin.get_queue("orders")).name == "orders"


async def test_an_emulator_stops_in_the_middle_of_an_outage(orders: str, emulated: EmulatedNamespace) -> None:
    for outage in Outage:
        emulated.namespace.faults.begin_outage(outage)
    emulated.namespace.faults.begin_outage(Outage.REFUSE)  # and the fixture stops it
    with socket.socket() as probe:
        probe.settimeout(SOON)
        assert probe.connect_ex(("127.0.0.1", emulated.running.amqp_port)) == errno.ECONNREFUSED
