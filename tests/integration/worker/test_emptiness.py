"""Counting by peek: it proves that a queue is empty, and also counts the messages that do not match (D4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from azure.servicebus import ServiceBusClient
from pydantic import SecretStr

from syphon.config import SideSettings as Side
from syphon.emulator import BackgroundEmulator, EmulatorSettings, Kind, NamespaceSettings, QueueDescription
from syphon.model import MessageFilter, PathPatterns
from syphon.worker.drain.emptiness import EmptinessCheck, PeekCount
from syphon.worker.drain.queue_drain import selects
from tests.support.processes import aliased

QUEUE = "contoso/x-servicebus-transfer/0"


@pytest.fixture
def emulator() -> Iterator[BackgroundEmulator]:
    """A namespace with a backlog queue of ten messages for `orders` and one for `news`."""
    with BackgroundEmulator(EmulatorSettings(namespaces=[NamespaceSettings(name="contoso-dr")])) as emulator:
        emulator.call(lambda: emulator["contoso-dr"].namespace.create_queue(QueueDescription(QUEUE)))
        string = emulator["contoso-dr"].connection_string
        with ServiceBusClient.from_connection_string(string) as client, client.get_queue_sender(QUEUE) as sender:
            sender.send_messages([*(aliased(number, "orders") for number in range(10)), aliased(10, "news")])
        yield emulator


@pytest.fixture
def secondary(emulator: BackgroundEmulator) -> str:
    return emulator["contoso-dr"].connection_string


@pytest.mark.parametrize(
    ("pattern", "at_most", "found"),
    [
        ("/News/", 100, PeekCount(1, 10)),
        ("ORDERS", 100, PeekCount(10, 1)),
        ("ORDERS", 1, PeekCount(1, 0)),  # enough are found: the rest is not counted
        ("billing/*", 1, PeekCount(0, 11)),
        ("*", 100, PeekCount(11, 0)),
    ],
)
def test_wanted_messages_and_others_are_counted(secondary: str, pattern: str, at_most: int, found: PeekCount) -> None:
    messages = MessageFilter(PathPatterns.of([pattern]))
    check = EmptinessCheck(Side(connection_string=SecretStr(secondary)))
    try:
        assert check.count(QUEUE, partial(selects, messages), at_most) == found
    finally:
        check.close()


def test_scheduled_messages_are_counted_apart_if_they_match(secondary: str) -> None:  # D4
    with ServiceBusClient.from_connection_string(secondary) as client, client.get_queue_sender(QUEUE) as sender:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        sender.schedule_messages([aliased(11, "orders"), aliased(12, "news"), aliased(13, "news")], tomorrow)
    check = EmptinessCheck(Side(connection_string=SecretStr(secondary)))
    try:
        found = check.count(QUEUE, partial(selects, MessageFilter(PathPatterns.of(["news"]))), 100)
    finally:
        check.close()
    assert found == PeekCount(wanted=1, others=10, scheduled=2)


def test_deferred_messages_count_as_messages_of_the_backlog(secondary: str) -> None:  # D4
    with (
        ServiceBusClient.from_connection_string(secondary) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        for message in receiver.receive_messages(4, max_wait_time=20):
            receiver.defer_message(message)
    check = EmptinessCheck(Side(connection_string=SecretStr(secondary)))
    try:
        found = check.count(QUEUE, partial(selects, MessageFilter()), 100)
        assert (found.wanted, found.others) == (11, 0)
        assert found.deferred >= 1
    finally:
        check.close()


def test_to_find_one_message_costs_one_credit(emulator: BackgroundEmulator, secondary: str) -> None:  # S5, S7
    counters = emulator["contoso-dr"].namespace.counters
    check = EmptinessCheck(Side(connection_string=SecretStr(secondary)))
    try:
        assert check.count(QUEUE, partial(selects, MessageFilter()), 1).wanted == 1
        assert emulator.call(lambda: counters.of(QUEUE, Kind.PEEK)) == 1
    finally:
        check.close()
