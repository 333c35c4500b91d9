"""AMQP over WebSockets, as on port 443 of Service Bus: for the official clients, and byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusError
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from syphon.amqp.frames import SASL_HEADER
from syphon.emulator import (
    BackgroundEmulator,
    Emulator,
    EmulatorSettings,
    Fault,
    NamespaceSettings,
    Outage,
    QueueDescription,
)
from syphon.emulator.broker.faults import Action, Operation
from tests.integration.emulator.conftest import EmulatedNamespace, ignore_unclosed_resources
from tests.support.connect_proxy import ConnectProxy, proxy_to
from tests.support.waiting import TIMEOUT, async_eventually

pytestmark = [ignore_unclosed_resources, pytest.mark.usefixtures("garbage_collected")]

PATH = "/$servicebus/websocket"
CREDENTIALS = ("alice", "p@ss:word")
LARGE = "x" * 300_000


# --- the official clients --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundEmulator]:
    settings = EmulatorSettings(
        namespaces=[NamespaceSettings(name="contoso")], state=tmp_path_factory.mktemp("state"), tls=True
    )
    with BackgroundEmulator(settings) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield emulator


@pytest.fixture(scope="module")
def proxy(secure: BackgroundEmulator) -> Iterator[ConnectProxy]:
    with proxy_to({"contoso": secure["contoso"].amqp_port}, CREDENTIALS) as proxy:
        yield proxy


def directly(emulator: BackgroundEmulator, *, tls: bool) -> tuple[str, dict[str, Any]]:
    """A port other than 443 is given as a custom endpoint: the Python client ignores the connection string's."""
    contoso = emulator["contoso"]
    string = contoso.connection_string
    return string.replace("UseDevelopmentEmulator=true;", "") if tls else string, {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://127.0.0.1:{contoso.amqp_port}",
        "connection_verify": str(emulator.ca_file),
    }


def through(proxy: ConnectProxy, emulator: BackgroundEmulator, *, scheme: str) -> tuple[str, dict[str, Any]]:
    """As on Azure: port 443 of the host. The asyncio client wants the proxy's scheme, the sync one must not have it."""
    string, options = directly(emulator, tls=True)
    del options["custom_endpoint_address"]
    address = {"proxy_hostname": f"{scheme}127.0.0.1", "proxy_port": proxy.port}
    options["http_proxy"] = address | dict(zip(("username", "password"), CREDENTIALS, strict=True))
    host = f"127.0.0.1:{emulator['contoso'].amqp_port}"
    return string.replace(host, "contoso.servicebus.windows.net"), options


def send_and_receive(string: str, options: dict[str, Any]) -> list[str]:
    with SyncClient.from_connection_string(string, **options) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage("small"), ServiceBusMessage(LARGE[:200_000])])
        with client.get_queue_receiver("orders") as receiver:
            bodies: list[str] = []
            while len(bodies) < 2:
                for message in receiver.receive_messages(max_message_count=2, max_wait_time=30):
                    receiver.complete_message(message)
                    bodies.append(str(message))
            return bodies


async def send_and_receive_async(string: str, options: dict[str, Any]) -> list[str]:
    async with AioClient.from_connection_string(string, **options) as client:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages([ServiceBusMessage("small"), ServiceBusMessage(LARGE[:200_000])])
        async with client.get_queue_receiver("orders") as receiver:
            bodies: list[str] = []
            while len(bodies) < 2:
                for message in await receiver.receive_messages(max_message_count=2, max_wait_time=30):
                    await receiver.complete_message(message)
                    bodies.append(str(message))
            return bodies


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_sync_client_sends_and_receives(secure: BackgroundEmulator, tls: bool) -> None:
    assert send_and_receive(*directly(secure, tls=tls)) == ["small", LARGE[:200_000]]


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the SDK's way to say "no TLS"
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_the_asyncio_client_sends_and_receives(secure: BackgroundEmulator, tls: bool) -> None:
    assert await send_and_receive_async(*directly(secure, tls=tls)) == ["small", LARGE[:200_000]]


def test_the_sync_client_sends_and_receives_through_a_proxy(secure: BackgroundEmulator, proxy: ConnectProxy) -> None:
    before = len(proxy.requests)
    assert send_and_receive(*through(proxy, secure, scheme="")) == ["small", LARGE[:200_000]]
    assert proxy.requests[before:] == 2 * ["contoso.servicebus.windows.net:443"]


@pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning")  # which the SDK uses
@pytest.mark.filterwarnings("ignore:The 'proxy_auth' parameter is deprecated:DeprecationWarning")
async def test_the_asyncio_client_sends_and_receives_through_a_proxy(
    secure: BackgroundEmulator, proxy: ConnectProxy
) -> None:
    before = len(proxy.requests)
    assert await send_and_receive_async(*through(proxy, secure, scheme="http://")) == ["small", LARGE[:200_000]]
    assert proxy.requests[before:] == 2 * ["contoso.servicebus.windows.net:443"]


@pytest.mark.parametrize("outage", [Outage.REFUSE, Outage.DROP])
async def test_a_client_gets_an_error_in_an_outage_and_works_after_it(
    emulated: EmulatedNamespace, outage: Outage
) -> None:
    emulated.namespace.create_queue(QueueDescription("orders"))
    options: dict[str, Any] = {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"sb://127.0.0.1:{emulated.running.amqp_port}",
        "retry_total": 0,
    }

    def use() -> None:
        with SyncClient.from_connection_string(emulated.connection_string, **options) as client:
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("before"))
                asyncio.run_coroutine_threadsafe(switch(outage), loop).result(TIMEOUT)
                with pytest.raises(ServiceBusError):
                    sender.send_messages(ServiceBusMessage("during"))
            asyncio.run_coroutine_threadsafe(switch(None), loop).result(TIMEOUT)
            with client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("after"))

    async def switch(outage: Outage | None) -> None:
        if outage is None:
            emulated.namespace.faults.end_outage()
        else:
            emulated.namespace.faults.begin_outage(outage)

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(use)
    assert len(emulated.namespace.message_queue("orders")) == 2


# --- byte by byte ----------------------------------------------------------------------------------------------------


class RawWebSocket:
    """A WebSocket that sends what a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._websocket = WSConnection(ConnectionType.CLIENT)
        self._events: list[Event] = []

    def request(self, path: str = PATH, subprotocols: tuple[str, ...] = ("AMQPWSB10",)) -> bytes:
        return self._websocket.send(Request(host="127.0.0.1", target=path, subprotocols=list(subprotocols)))

    def post(self, event: Event) -> None:
        self.writer.write(self._websocket.send(event))

    async def next(self) -> Event:
        while not self._events:
            async with asyncio.timeout(TIMEOUT):
                data = await self._reader.read(65_536)
            self._websocket.receive_data(data or None)
            self._events += self._websocket.events()
        return self._events.pop(0)

    async def open(self) -> None:
        self.writer.write(self.request())
        answer = await self.next()
        assert isinstance(answer, AcceptConnection)
        assert answer.subprotocol == "AMQPWSB10"

    async def is_cut(self) -> bool:
        """Waits for the end of the connection."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(TIMEOUT):
                return await self._reader.read() == b""
        return True

    async def answered(self) -> bool:
        """Whether there is an answer that has arrived, or does so in a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                return bool(await self._reader.read(1))
        return False


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[RawWebSocket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RawWebSocket(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_a_request_may_arrive_in_pieces_of_any_size(emulated: EmulatedNamespace) -> None:
    for port in (emulated.running.amqp_port, emulated.running.http_port):
        async with raw(port) as client:
            for byte in client.request():
                client.writer.write(bytes((byte,)))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert isinstance(await client.next(), AcceptConnection)


async def test_bytes_of_one_frame_may_come_in_several_messages(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        await client.open()
        for byte in SASL_HEADER:
            client.post(BytesMessage(data=bytes((byte,))))
        answer = await client.next()
        assert isinstance(answer, BytesMessage)
        assert answer.data.startswith(SASL_HEADER)


async def test_pings_are_answered(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        await client.open()
        client.post(Ping(payload=b"are you there"))
        assert await client.next() == Pong(payload=b"are you there")


async def test_a_closed_websocket_is_a_closed_connection(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        await client.open()
        assert emulated.running.connection_count == 1
        client.post(CloseConnection(code=1000))
        assert isinstance(await client.next(), CloseConnection)
        await async_eventually(lambda: emulated.running.connection_count == 0, what="the connection is closed")


@pytest.mark.parametrize("is_upgraded", [False, True])
async def test_a_connection_that_vanishes_is_removed(emulated: EmulatedNamespace, is_upgraded: bool) -> None:
    async with raw(emulated.running.amqp_port) as client:
        if is_upgraded:
            await client.open()
        else:
            client.writer.write(client.request()[:40])
            await async_eventually(lambda: emulated.running.connection_count == 1, what="the connection is open")
        client.writer.transport.abort()
        await async_eventually(lambda: emulated.running.connection_count == 0, what="the connection is closed")


async def test_the_subprotocol_must_be_requested(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        client.writer.write(client.request(subprotocols=("amqp",)))
        refusal, reason = await client.next(), await client.next()
        assert isinstance(refusal, RejectConnection)
        assert refusal.status_code == 400
        assert isinstance(reason, RejectData)
        assert b"AMQPWSB10" in reason.data
        await async_eventually(lambda: emulated.running.connection_count == 0, what="the connection is closed")


async def test_a_request_that_is_no_upgrade_is_refused(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        client.writer.write(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        async with asyncio.timeout(TIMEOUT):
            assert (await client._reader.read()).startswith(b"HTTP/1.1 400 ")


async def test_text_is_refused(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        await client.open()
        client.post(TextMessage(data="AMQP"))
        refusal = await client.next()
        assert isinstance(refusal, CloseConnection)
        assert refusal.code == 1003


async def test_bytes_that_are_no_frames_end_the_connection(emulated: EmulatedNamespace) -> None:
    async with raw(emulated.running.amqp_port) as client:
        await client.open()
        client.writer.write(b"\x82\x04AMQP")  # a client must mask what it sends
        refusal = await client.next()
        assert isinstance(refusal, CloseConnection)
        assert refusal.code == 1002


@pytest.mark.parametrize("is_upgraded", [False, True])
async def test_a_silent_namespace_answers_neither_requests_nor_pings(
    emulated: EmulatedNamespace, is_upgraded: bool
) -> None:
    async with raw(emulated.running.amqp_port) as client:
        if is_upgraded:
            await client.open()
        emulated.namespace.faults.begin_outage(Outage.HANG)
        if is_upgraded:
            client.post(Ping(payload=b"are you there"))
        else:
            client.writer.write(client.request())
        assert not await client.answered()
        emulated.namespace.faults.end_outage()  # which cuts the connections that were silent
        assert await client.is_cut()


async def test_connections_are_dropped_before_the_upgrade(emulated: EmulatedNamespace) -> None:
    emulated.namespace.faults.begin_outage(Outage.DROP)
    async with raw(emulated.running.amqp_port) as client:
        client.writer.write(client.request())
        assert await client.is_cut()


async def test_a_delayed_connection_is_upgraded_after_the_delay(clocked: EmulatedNamespace) -> None:
    clocked.namespace.faults.add(Fault(Action.DELAY, Operation.CONNECT, seconds=5))
    async with raw(clocked.running.amqp_port) as client:
        client.writer.write(client.request())
        await async_eventually(lambda: clocked.running.connection_count == 1, what="the connection is open")
        assert clocked.clock is not None
        clocked.clock.advance(5)
        assert isinstance(await client.next(), AcceptConnection)
        client.post(BytesMessage(data=SASL_HEADER))
        assert isinstance(await client.next(), BytesMessage)


async def test_an_emulator_that_stops_says_farewell() -> None:
    settings = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])
    async with Emulator(settings) as emulator, raw(emulator["contoso"].amqp_port) as client:
        await client.open()
        await emulator.stop()
        assert isinstance(await client.next(), CloseConnection)


async def test_without_the_extra_the_answer_names_it(
    emulated: EmulatedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "syphon.emulator.amqp_front.websocket", None)
    async with raw(emulated.running.amqp_port) as client:
        client.writer.write(client.request())
        async with asyncio.timeout(TIMEOUT):
            answer = await client._reader.read()
        assert answer.startswith(b"HTTP/1.1 501 ")
        assert b"syphon-servicebus[websockets]" in answer
