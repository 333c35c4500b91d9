"""A pair over WebSockets, behind a proxy: every connection that is made for it goes that way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from syphon.sender import PairOptions, pair
from syphon.sender.aio import pair as aio_pair
from tests.integration.sender.conftest import leftovers
from tests.support.connect_proxy import ConnectProxy, proxy_to
from tests.support.waiting import async_eventually, eventually

pytestmark = [
    leftovers,
    # What the SDK uses for the credentials of a proxy:
    pytest.mark.filterwarnings("ignore:BasicAuth is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The 'proxy_auth' parameter is deprecated:DeprecationWarning"),
]

CREDENTIALS = ("alice", "p@ss:word")
OPTIONS = PairOptions(
    backlog_queue_count=1,
    failover_interval=timedelta(0),
    ping_primary_interval=timedelta(seconds=1),
    enable_syphon=True,
)
NAMES = ("contoso", "contoso-dr")


@pytest.fixture
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundEmulator]:
    both = [NamespaceSettings(name=name) for name in NAMES]
    settings = EmulatorSettings(namespaces=both, state=tmp_path_factory.mktemp("state"), tls=True)
    with BackgroundEmulator(settings) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield emulator


@pytest.fixture
def proxy(emulator: BackgroundEmulator) -> Iterator[ConnectProxy]:
    with proxy_to({name: emulator[name].amqp_port for name in NAMES}, CREDENTIALS) as proxy:
        yield proxy


def client_for(kind: Any, name: str, emulator: BackgroundEmulator, proxy: ConnectProxy) -> Any:
    running = emulator[name]
    string = running.connection_string.replace("UseDevelopmentEmulator=true;", "")
    username, password = CREDENTIALS
    return kind.from_connection_string(
        string.replace(f"127.0.0.1:{running.amqp_port}", f"{name}.servicebus.windows.net"),
        transport_type=TransportType.AmqpOverWebsocket,
        http_proxy={
            "proxy_hostname": "http://127.0.0.1" if kind is AioClient else "127.0.0.1",
            "proxy_port": proxy.port,
            "username": username,
            "password": password,
        },
        connection_verify=str(emulator.ca_file),
        retry_total=0,
    )


def primary_outage(emulator: BackgroundEmulator, kind: Outage | None) -> None:
    faults = emulator["contoso"].namespace.faults
    emulator.call(faults.end_outage if kind is None else lambda: faults.begin_outage(kind))


def in_orders(emulator: BackgroundEmulator) -> int:
    return emulator.call(lambda: len(emulator["contoso"].namespace.message_queue("orders")))


def test_a_sync_pair_and_its_syphon_use_the_transport_of_its_clients(
    emulator: BackgroundEmulator, proxy: ConnectProxy
) -> None:
    first, second = (client_for(SyncClient, name, emulator, proxy) for name in NAMES)
    with first, second, pair(first, second, OPTIONS) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        primary_outage(emulator, Outage.DROP)
        eventually(lambda: client.syphon is not None and not client.syphon._listener.pair.primary.is_connected)
        sender.send_messages(ServiceBusMessage("during"))
        assert client.failed_over == ("orders",)
        primary_outage(emulator, None)
        eventually(lambda: in_orders(emulator) == 2, what="the syphon has moved the backlog")
    assert set(proxy.requests) == {f"{name}.servicebus.windows.net:443" for name in NAMES}


async def test_an_asyncio_pair_and_its_syphon_use_the_transport_of_its_clients(
    emulator: BackgroundEmulator, proxy: ConnectProxy
) -> None:
    first, second = (client_for(AioClient, name, emulator, proxy) for name in NAMES)
    async with first, second, aio_pair(first, second, OPTIONS) as client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage("before"))
        primary_outage(emulator, Outage.DROP)
        await async_eventually(
            lambda: client.syphon is not None and not client.syphon._listener.pair.primary.is_connected
        )
        await sender.send_messages(ServiceBusMessage("during"))
        assert client.failed_over == ("orders",)
        primary_outage(emulator, None)
        await async_eventually(lambda: in_orders(emulator) == 2, what="the syphon has moved the backlog")
    assert set(proxy.requests) == {f"{name}.servicebus.windows.net:443" for name in NAMES}
