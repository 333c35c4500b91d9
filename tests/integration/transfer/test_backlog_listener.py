"""The listener of a pair: it says which queues have messages, and ends with the pair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from syphon.emulator import QueueDescription
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.namespace import BrokerNamespace
from syphon.model import DestinationUnreachable, NotAuthorized
from syphon.servicebus import Connection, Namespace, Pair
from syphon.transfer import DestinationBackoff
from syphon.transfer import backlog_listener as listening_module
from syphon.transfer.backlog_listener import Listener
from syphon.transfer.backoff_gate import Gate
from syphon.worker.pausable_gate import PausableGate
from tests.integration.transfer.conftest import BACKLOG, TwoNamespaces, aliased

MISSING = "contoso/x-servicebus-transfer/7"


@contextmanager
def listening(
    namespaces: TwoNamespaces,
    *queues: str,
    paused: frozenset[str] | set[str] = frozenset(),
    gate: Gate | None = None,
) -> Iterator[tuple[Listener, list[str]]]:
    heard: list[str] = []
    pair = Pair(namespaces.namespace("contoso", ""), namespaces.namespace("contoso-dr", queues[0]))
    listener = Listener(
        "contoso",
        pair,
        queues,
        lambda queue, _: heard.append(queue),
        gate=gate,
        is_paused=lambda queue: queue in paused,
    )
    assert not listener.is_running  # no thread starts before `start`
    listener.start()
    try:
        yield listener, heard
    finally:
        listener.stop()
        assert not listener.is_running
        assert pair.has_ended
        assert listener.failure is None


def test_a_message_is_announced_once_and_again_when_its_queue_is_armed(namespaces: TwoNamespaces) -> None:  # D3
    with listening(namespaces, BACKLOG) as (listener, heard):
        namespaces.put(aliased("x", "orders"))
        namespaces.wait(lambda: heard == [BACKLOG])
        namespaces.wait(lambda: namespaces.locked() == 0)  # it is released, and a pump can receive it
        listener.arm(BACKLOG)
        namespaces.wait(lambda: heard == [BACKLOG, BACKLOG])
    assert namespaces.active(BACKLOG, "contoso-dr") == 1


def test_a_paused_queue_is_not_received_from_until_the_pause_ends(namespaces: TwoNamespaces) -> None:  # D16
    paused = {BACKLOG}
    with listening(namespaces, BACKLOG, paused=paused) as (listener, heard):
        namespaces.wait(lambda: listener.pair.secondary.is_connected)
        namespaces.put(aliased("x", "orders"))
        seen = listener.heard_at
        namespaces.wait(lambda: listener.heard_at > seen)
        assert (heard, namespaces.credit()) == ([], 0)
        paused.clear()
        namespaces.wait(lambda: heard == [BACKLOG])


def test_a_queue_that_is_missing_does_not_keep_the_others_from_being_heard(namespaces: TwoNamespaces) -> None:  # S3
    with listening(namespaces, MISSING, BACKLOG) as (listener, heard):
        namespaces.wait(lambda: bool(listener.trouble(MISSING)))
        namespaces.put(aliased("x", "orders"))
        namespaces.wait(lambda: heard == [BACKLOG])
        assert listener.trouble(BACKLOG) == ""


def test_it_ends_when_both_sides_of_the_pair_have_ended(namespaces: TwoNamespaces) -> None:  # C2
    with listening(namespaces, BACKLOG) as (listener, _):
        for side in listener.pair.sides:
            side.fault(NotAuthorized("the key was rotated"))
        namespaces.wait(lambda: not listener.is_running)
        assert isinstance(listener.pair.fault, NotAuthorized)


def test_many_queues_are_peeked_into_at_once_and_each_still_rings(namespaces: TwoNamespaces) -> None:  # S10, D16
    """A connection has 256 links, and a queue that is watched by peeking needs three of them."""
    queues = [f"contoso/x-servicebus-transfer/{number}" for number in range(100)]
    backoffs = PausableGate("contoso")
    backoffs.record([DestinationBackoff("full", 3600.0, "is full", 1)])
    namespaces.put(aliased("x", "full"))
    namespaces.emulator.call(lambda: copy_messages(namespaces.secondary, queues[1:]))
    with listening(namespaces, *queues, gate=backoffs) as (listener, heard):
        namespaces.wait(lambda: sum(map(namespaces.received, queues)) == 100, within=60)  # it has received from all
        connection = listener.pair.secondary._connection
        assert connection is not None
        for queue in queues:
            listener.arm(queue, scan=True)
        namespaces.wait(lambda: all(map(listener.waiting, queues)), within=60)
        assert connection.wire.failure is None
        assert [listener.trouble(queue) for queue in queues] == [""] * 100
        namespaces.put(aliased("x", "orders"), queue=queues[-1])
        namespaces.wait(lambda: heard == [queues[-1]], within=60)


def test_queues_whose_own_connection_cannot_be_opened_say_so(
    namespaces: TwoNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:  # S10
    monkeypatch.setattr(listening_module, "MOST_QUEUES", 1)  # each queue has a connection of its own
    other = "contoso/x-servicebus-transfer/1"
    namespaces.emulator.call(lambda: namespaces.secondary.create_queue(QueueDescription(other)))
    client, is_away = namespaces.client("contoso-dr"), True

    def connect() -> Connection:
        if is_away:
            raise DestinationUnreachable("contoso-dr: connection refused")
        return Connection(client, other)

    secondary = namespaces.namespace("contoso-dr", BACKLOG)
    monkeypatch.setattr(secondary, "another", lambda: Namespace("contoso-dr", connect, longest_delay=0.1))
    listener = Listener(
        "contoso",
        Pair(namespaces.namespace("contoso", ""), secondary),
        [BACKLOG, other],
        lambda queue, ring: None,  # noqa: ARG005
    )
    listener.start()
    try:
        namespaces.wait(lambda: listener.trouble(other) == "contoso-dr: connection refused")
        namespaces.wait(lambda: namespaces.credit() == 1)
        assert (secondary.error, listener.trouble(BACKLOG)) == (None, "")
        is_away = False
        namespaces.wait(lambda: namespaces.credit(other) == 1)
        assert listener.trouble(other) == ""
    finally:
        listener.stop()


def copy_messages(backlog: BrokerNamespace, queues: list[str]) -> None:
    """Creates queues with the messages of the first backlog queue."""
    for queue in queues:
        backlog.create_queue(QueueDescription(queue))
        for found in backlog.message_queue(BACKLOG).peek(0, 10):
            message = BrokeredMessage()
            message.bare, message.size = found.bare, found.size
            backlog.message_queue(queue).enqueue([message])
