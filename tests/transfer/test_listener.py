"""The listener of a pair: it says which queues have messages, and ends with the pair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syphon.bus import Pair
from syphon.model import NotAuthorized
from syphon.transfer.listener import Listener
from tests.transfer.conftest import BACKLOG, TwoNamespaces, aliased

MISSING = "contoso/x-servicebus-transfer/7"


@contextmanager
def listening(
    namespaces: TwoNamespaces, *queues: str, paused: frozenset[str] | set[str] = frozenset()
) -> Iterator[tuple[Listener, list[str]]]:
    heard: list[str] = []
    pair = Pair(namespaces.namespace("contoso", ""), namespaces.namespace("contoso-dr", queues[0]))
    listener = Listener(
        "contoso", pair, queues, lambda queue, _: heard.append(queue), is_paused=lambda queue: queue in paused
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
