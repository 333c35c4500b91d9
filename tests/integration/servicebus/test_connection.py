"""Waiting for traffic: in a process with many sockets, and on a socket that has just broken."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from pydantic import SecretStr

from syphon.config import SideSettings as Side
from syphon.emulator import BackgroundEmulator, EmulatorSettings, NamespaceSettings, QueueDescription
from syphon.servicebus.clocks_and_threads import wait_for_traffic
from syphon.servicebus.factory import connected
from syphon.servicebus.queue_peek import peek

SELECT_ENDS_AT = 1024


@pytest.fixture
def connection_string() -> Iterator[str]:
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")])) as emulator:
        emulator.call(lambda: emulator["contoso"].namespace.create_queue(QueueDescription("orders")))
        yield emulator["contoso"].connection_string


@pytest.fixture
def _many_files() -> Iterator[None]:
    """As in a server: the next socket has a number that select() cannot watch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * SELECT_ENDS_AT:
        pytest.skip("this machine allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECT_ENDS_AT), hard))
    with ExitStack() as held:
        while (number := os.open(os.devnull, os.O_RDONLY)) < SELECT_ENDS_AT:
            held.callback(os.close, number)
        os.close(number)
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("_many_files")
def test_an_application_may_have_more_than_a_thousand_open_files(connection_string: str) -> None:
    with ServiceBusClient.from_connection_string(connection_string) as client, client.get_queue_sender("orders") as to:
        to.send_messages(ServiceBusMessage("x"))
    with connected(Side(connection_string=SecretStr(connection_string)), "orders") as connection:
        assert connection.wire.fileno() >= SELECT_ENDS_AT
        assert len(list(peek(connection, "orders"))) == 1


def test_a_connection_that_breaks_during_a_write_ends_the_wait(connection_string: str) -> None:
    with connected(Side(connection_string=SecretStr(connection_string)), "orders") as connection:
        wire = connection.wire
        assert isinstance(wire._socket, socket.socket)
        wire._socket.shutdown(socket.SHUT_WR)
        wire.write(b"bytes that cannot be written")
        wait_for_traffic([wire], 60)
        assert wire.failure is not None
