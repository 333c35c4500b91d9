"""Connections: one port for all protocols, with and without TLS; heartbeats both ways; many clients at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from syphon.amqp import data_section
from syphon.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    Accepted,
    Attach,
    Begin,
    Close,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)
from syphon.emulator import Emulator, EmulatorSettings, NamespaceSettings, QueueDescription
from syphon.emulator.amqp_front import AmqpConnection, AmqpTimeouts
from syphon.emulator.broker.access import EVERYTHING, Policy
from syphon.emulator.broker.descriptions import Tier
from syphon.emulator.broker.journal import NoJournal
from syphon.emulator.broker.namespace import BrokerNamespace, NamespaceIdentity
from syphon.emulator.broker.virtual_hosts import VirtualHosts
from syphon.emulator.clock import SystemClock
from syphon.emulator.port_listener import PortListener, Protocols
from syphon.emulator.settings import ROOT_KEY, ROOT_POLICY
from tests.integration.emulator.conftest import EmulatedNamespace, settings
from tests.support.amqp_peer import AmqpPeer, peer, text, text_of
from tests.support.raw_client import RawClient
from tests.support.sdk_queue import SOON
from tests.support.waiting import TIMEOUT, async_eventually

# --- one port for everything, with TLS -------------------------------------------------------------------------------


class Secure:
    """An emulator with TLS, and what its clients need to trust it."""

    def __init__(self, emulator: Emulator) -> None:
        assert emulator.ca_file is not None
        self.emulated = EmulatedNamespace(emulator["contoso"])
        self.ca_file = emulator.ca_file
        self.context = ssl.create_default_context(cafile=str(emulator.ca_file))

    @property
    def port(self) -> int:
        return self.emulated.running.amqp_port

    @property
    def over_tls(self) -> str:
        """The connection string without the flag that makes a client do without TLS."""
        return self.emulated.connection_string.replace("UseDevelopmentEmulator=true;", "")


@pytest.fixture
async def secure(tmp_path: Path) -> AsyncIterator[Secure]:
    plain = settings()
    with_tls = EmulatorSettings(namespaces=plain.namespaces, state=tmp_path, tls=True)
    async with Emulator(with_tls) as emulator:
        secured = Secure(emulator)
        secured.emulated.namespace.create_queue(QueueDescription("orders"))
        yield secured


def round_trip(client: SyncClient, queue: str) -> None:
    """Sends a message and receives the very same."""
    with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        sender.send_messages(ServiceBusMessage(queue))
        (message,) = receiver.receive_messages(max_wait_time=SOON)
        assert str(message) == queue
        receiver.complete_message(message)


async def async_round_trip(client: ServiceBusClient, queue: str) -> None:
    async with client, client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        await sender.send_messages(ServiceBusMessage(queue))
        (message,) = await receiver.receive_messages(max_wait_time=SOON)
        assert str(message) == queue
        await receiver.complete_message(message)


async def test_the_sdk_connects_over_tls_and_without_on_one_port(secure: Secure) -> None:
    there: dict[str, Any] = {
        "custom_endpoint_address": f"sb://127.0.0.1:{secure.port}",
        "transport_type": TransportType.Amqp,  # with an endpoint of its own, the client takes websockets unless told so
        "retry_total": 0,
    }
    make, make_sync = ServiceBusClient.from_connection_string, SyncClient.from_connection_string
    ca_file = str(secure.ca_file)
    for name in ("verified", "with-a-context", "in-the-clear", "verified-sync", "with-a-context-sync"):
        secure.emulated.namespace.create_queue(QueueDescription(name))
    await asyncio.gather(
        async_round_trip(make(secure.over_tls, connection_verify=ca_file, **there), "verified"),
        async_round_trip(make(secure.over_tls, ssl_context=secure.context, **there), "with-a-context"),
        async_round_trip(make(secure.emulated.connection_string, retry_total=0), "in-the-clear"),
        asyncio.to_thread(round_trip, make_sync(secure.over_tls, connection_verify=ca_file, **there), "verified-sync"),
        asyncio.to_thread(
            round_trip, make_sync(secure.over_tls, ssl_context=secure.context, **there), "with-a-context-sync"
        ),
    )


async def test_the_administration_client_takes_the_same_connection_string(secure: Secure) -> None:
    # It always says https, flag or no flag: with TLS on, the port it is given answers that too.
    async with ServiceBusAdministrationClient.from_connection_string(
        secure.emulated.connection_string, connection_verify=str(secure.ca_file)
    ) as administration:
        await administration.create_queue("bills")
        assert (await administration.get_queue("bills")).name == "bills"
    assert secure.emulated.namespace.describe("bills").path == "bills"


async def test_http_and_https_are_answered_on_the_port_of_amqp(secure: Secure) -> None:
    async with ClientSession(connector=TCPConnector(ssl=secure.context)) as session:
        for scheme in ("http", "https"):
            async with session.get(f"{scheme}://127.0.0.1:{secure.port}/orders") as answer:
                assert answer.status == 401


async def test_amqp_is_answered_within_tls_frame_by_frame(secure: Secure) -> None:
    async with peer(secure.port, secure.context) as one:
        await one.connect()
        await one.attach_sender("orders")
        one.send(Transfer(0, 0, b"t", 0, False), text("x"))
        assert isinstance((await one.expect(Disposition)).state, Accepted)
        one.write(b"\xff" * 8)
        assert (await one.error_of(Close)).condition == "amqp:connection:framing-error"
        assert await one.rest() == b""
    await async_eventually(lambda: secure.emulated.running.connection_count == 0, "the connection is closed")


@pytest.mark.parametrize(
    "garbage", [b"\x16" * 500, b"\x16\x03\x01\xff\xff" + bytes(2000), b"\x16\x03\x01\x00\x05hello", b"\x16"]
)
async def test_garbage_in_the_shape_of_tls_is_cut_off_and_harms_no_other_connection(
    secure: Secure, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with peer(secure.port, secure.context) as bystander:
        await bystander.connect()
        async with peer(secure.port) as one:
            one.write(garbage)
            one.writer.write_eof()
            with contextlib.suppress(ConnectionResetError):
                await one.rest()
        await bystander.attach_sender("orders")
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_a_client_that_says_nothing_costs_nothing_and_does_not_keep_the_emulator(tmp_path: Path) -> None:
    for tls in (False, True):
        emulator = Emulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], state=tmp_path, tls=tls))
        await emulator.start()
        running = emulator["contoso"]
        async with peer(running.amqp_port) as silent, peer(running.amqp_port) as other:
            await other.connect()
            assert running.connection_count == 1
            await emulator.stop()
            with contextlib.suppress(ConnectionResetError):
                assert await silent.rest() == b""
            assert (await other.error_of(Close)).condition == "amqp:connection:forced"


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_that_arrives_while_the_port_closes_is_aborted_at_every_turn_of_the_loop(turns: int) -> None:
    listener = PortListener("127.0.0.1", 0, None, Protocols(*3 * (asyncio.Protocol,)))
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        await listener.open()
        with socket.create_connection(("127.0.0.1", listener.port)) as one:
            for _ in range(turns):
                await asyncio.sleep(0)
            listener.close()
            one.setblocking(False)
            async with asyncio.timeout(TIMEOUT):
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.get_running_loop().sock_recv(one, 1) == b""
    assert [str(complaint.message) for complaint in complaints] == []  # such as a socket that was left open


# --- time: heartbeats and patience -----------------------------------------------------------------------------------


class Door:
    """The AMQP front of a namespace alone, as patient as a test wants it."""

    def __init__(self, patience: AmqpTimeouts) -> None:
        root = Policy(ROOT_POLICY, ROOT_KEY, EVERYTHING)
        identity = NamespaceIdentity("contoso", "127.0.0.1", Tier.STANDARD, (root,), False)
        self.namespace = BrokerNamespace(identity, SystemClock(), NoJournal())
        self.namespace.create_queue(QueueDescription("orders"))
        self.connections: set[AmqpConnection] = set()
        self._patience = patience
        self._listener = PortListener("127.0.0.1", 0, None, Protocols(self._make, *2 * (asyncio.Protocol,)))

    def _make(self) -> AmqpConnection:
        connection = AmqpConnection(VirtualHosts(self.namespace), self._patience, self.connections.discard)
        self.connections.add(connection)
        return connection

    @property
    def port(self) -> int:
        return self._listener.port

    @classmethod
    @asynccontextmanager
    async def open(cls, patience: AmqpTimeouts) -> AsyncIterator[Door]:
        door = cls(patience)
        await door._listener.open()
        try:
            yield door
        finally:
            door._listener.close()
            for connection in list(door.connections):
                connection.abort()
            await async_eventually(lambda: not door.connections, "all connections are closed")


async def test_a_peer_that_wants_heartbeats_gets_them_in_time() -> None:
    async with Door.open(AmqpTimeouts()) as door, peer(door.port) as one:
        await one.connect(Open("peer", None, None, None, 300))
        for _ in range(3):
            # However late the loop gets to them, its timers ring in their order: the heartbeat's first, then this one.
            await asyncio.sleep(0.3)
            one.flow(echo=True)
            assert (await one.frame()).performative is None
            await one.expect(Flow)


async def test_a_peer_that_asks_for_none_gets_no_heartbeats() -> None:
    async with Door.open(AmqpTimeouts()) as door, peer(door.port) as wants, peer(door.port) as does_not:
        await wants.connect(Open("peer", None, None, None, 100))
        await does_not.connect()
        for _ in range(3):
            assert (await wants.frame()).performative is None
        does_not.flow(echo=True)
        assert isinstance((await does_not.frame()).performative, Flow)


async def test_a_peer_that_falls_silent_is_closed() -> None:
    async with Door.open(AmqpTimeouts(connection_idle_timeout=100)) as door, peer(door.port) as one:
        assert await one.sasl() == 0
        assert (await one.open()).idle_time_out == 100
        error = await one.error_of(Close)
        assert error.condition == "amqp:resource-limit-exceeded"
        assert await one.rest() == b""


async def test_a_peer_that_sends_heartbeats_stays() -> None:
    patience = AmqpTimeouts(connection_idle_timeout=1500)  # twice as long: a busy machine may hold up the heartbeats
    async with Door.open(patience) as door, peer(door.port) as beats, peer(door.port) as silent:
        await beats.connect()
        await silent.connect()
        closing = asyncio.create_task(silent.error_of(Close))
        while not closing.done():  # for as long as it takes to lose patience with the other one
            beats.write(EMPTY_FRAME)
            await asyncio.sleep(0.02)
        assert (await closing).condition == "amqp:resource-limit-exceeded"
        await beats.attach_sender("orders")


@pytest.mark.parametrize("start", [b"", b"AMQP", b"AMQP\x03\x01\x00\x00", AMQP_HEADER, AMQP_HEADER + b"\x00\x00"])
async def test_half_a_handshake_and_then_silence_is_cut_off(start: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syphon.emulator.port_listener.FIRST_BYTE_TIMEOUT", 0.1)
    async with Door.open(AmqpTimeouts(handshake_timeout=100)) as door, peer(door.port) as one:
        one.write(start)
        with contextlib.suppress(ConnectionResetError):
            await one.rest()
        await async_eventually(lambda: not door.connections, "the connection is closed")


async def test_a_peer_that_does_not_take_our_last_words_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syphon.emulator.amqp_front.connection.CLOSE_TIMEOUT", 0.1)
    async with Door.open(AmqpTimeouts()) as door, peer(door.port) as one:
        await one.connect()
        one.write(b"\xff" * 8)
        assert (await one.error_of(Close)).condition == "amqp:connection:framing-error"
        # It never closes its end, and need not.
        await async_eventually(lambda: not door.connections, "the connection is closed")


# --- many at once ----------------------------------------------------------------------------------------------------


async def test_three_hundred_connections_at_once_each_get_their_own_messages(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    count = 300
    got: list[str] = []

    async def client(number: int, all_here: asyncio.Barrier) -> None:
        async with peer(emulated.running.amqp_port) as one:
            await one.connect()
            await one.attach_sender("orders", 0)
            await one.attach_receiver("orders", 1)
            await all_here.wait()
            assert emulated.running.connection_count == count
            one.send(Transfer(0, 0, b"t", 0, False), text(str(number)))
            one.flow(1, 1)
            got.append(await one_of_each(one))
            await all_here.wait()
            one.send(Close())
            await one.expect(Close)

    async def one_of_each(one: AmqpPeer) -> str:
        """An answer to what was sent, a message received and settled: in whichever order they come."""
        answers, arrived = 0, ""
        while answers < 2:
            found = await one.next_frame()
            if isinstance(found.performative, Disposition):
                answers += 1
                assert isinstance(found.performative.state, Accepted)
            else:
                assert isinstance(found.performative, Transfer)
                arrived = text_of(found.payload)
                one.send(Disposition(True, 0, None, False, Accepted()))
        return arrived

    all_here = asyncio.Barrier(count)
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(client(number, all_here))
    assert sorted(got, key=int) == [str(number) for number in range(count)]
    await async_eventually(lambda: emulated.running.connection_count == 0, "all have left")
    assert not emulated.namespace.entity("orders").links


async def test_one_connection_takes_hundreds_of_sessions(emulated: EmulatedNamespace) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    async with peer(emulated.running.amqp_port) as one:
        await one.connect()
        for channel in range(1, 500):
            one.send(Begin(None, 0, 100, 100), channel=channel)
            one.ask_to_receive("orders", 0, channel)
        for channel in range(1, 500):
            begin = await one.next_frame()
            assert isinstance(begin.performative, Begin)
            assert begin.performative.remote_channel == begin.channel == channel
            assert isinstance((await one.next_frame()).performative, Attach)
        assert len(emulated.namespace.entity("orders").links) == 499
        one.send(End(), channel=250)
        assert (await one.next_frame()).channel == 250
        assert len(emulated.namespace.entity("orders").links) == 498


@pytest.mark.skipif(sys.platform != "linux", reason="Linux limits the size of a segment that can be set")
async def test_a_client_can_set_the_segment_size_that_it_reads(emulated: EmulatedNamespace) -> None:
    """The asyncio client of azure-servicebus before 7.15 does so for every option of TCP that it knows."""
    emulated.namespace.create_queue(QueueDescription("orders"))
    reader, writer = await asyncio.open_connection("127.0.0.1", emulated.running.amqp_port)
    client = RawClient(reader, writer)
    try:
        await client.sign_in()
        sender = await client.attach_sender("orders")
        for _ in range(50):  # without a limit the segments of a busy connection grow to 64 KB
            assert await client.send(sender, data_section(b"x" * 200_000)) == Accepted()
        endpoint = writer.get_extra_info("socket")
        size = endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)
        endpoint.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, size)
    finally:
        writer.transport.abort()
