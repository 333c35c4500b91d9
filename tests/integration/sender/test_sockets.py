"""A client that is closed during an outage leaves no socket behind, not even until the garbage collector runs."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusError

from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, Outage, QueueDescription
from syphon.sender import PairOptions, pair
from syphon.sender.aio import pair as aio_pair
from tests.support.waiting import async_eventually, eventually

OPTIONS = PairOptions(primary_name="contoso", backlog_queue_count=1)
TRIES = 3


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    both = [NamespaceSettings(name="contoso"), NamespaceSettings(name="contoso-dr")]
    with BackgroundEmulator(EmulatorSettings(namespaces=both)) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield emulator


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.collect()


def sockets(emulator: BackgroundEmulator) -> int:
    """The sockets of this process that are connected to the emulator, or were."""
    held = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            held.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            continue  # closed in the meantime
    ports = {namespace.amqp_port for namespace in emulator.namespaces}
    found = 0
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        _, _, remote, *_ = fields = line.split()
        if int(remote.rpartition(":")[2], 16) in ports and f"socket:[{fields[9]}]" in held:
            found += 1
    return found


def drop_all(emulator: BackgroundEmulator) -> None:
    for running in emulator.namespaces:
        faults = running.namespace.faults
        emulator.call(lambda faults=faults: faults.begin_outage(Outage.DROP))  # type: ignore[misc]


def options(emulator: BackgroundEmulator, name: str, transport: TransportType) -> dict[str, Any]:
    if transport is TransportType.Amqp:
        return {}
    return {"transport_type": transport, "custom_endpoint_address": f"sb://127.0.0.1:{emulator[name].amqp_port}"}


both_transports = pytest.mark.parametrize("transport", list(TransportType))


@both_transports
def test_a_sync_client_leaves_no_socket(emulator: BackgroundEmulator, transport: TransportType) -> None:
    primary, secondary = (
        SyncClient.from_connection_string(
            emulator[name].connection_string, retry_total=0, **options(emulator, name, transport)
        )
        for name in ("contoso", "contoso-dr")
    )
    with primary, secondary, pair(primary, secondary, OPTIONS) as client:
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("before"))
        assert sockets(emulator) == 1
        drop_all(emulator)
        for _ in range(TRIES):
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("during"))
    eventually(lambda: sockets(emulator) == 0, what=lambda: f"{sockets(emulator)} sockets are left")


@pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")  # the SDK's way to say "no TLS"
@both_transports
async def test_an_asyncio_client_leaves_no_socket(emulator: BackgroundEmulator, transport: TransportType) -> None:
    primary, secondary = (
        AioClient.from_connection_string(
            emulator[name].connection_string, retry_total=0, **options(emulator, name, transport)
        )
        for name in ("contoso", "contoso-dr")
    )
    async with primary, secondary, aio_pair(primary, secondary, OPTIONS) as client:
        sender = client.get_queue_sender("orders")
        await sender.send_messages(ServiceBusMessage("before"))
        assert sockets(emulator) == 1
        drop_all(emulator)
        for _ in range(TRIES):
            with pytest.raises(ServiceBusError):
                await sender.send_messages(ServiceBusMessage("during"))
    await async_eventually(lambda: sockets(emulator) == 0, what=lambda: f"{sockets(emulator)} are left")
