"""The order of sessions from a backlog queue to the destination, where something has disturbed it (D21)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from syphon.emulator import Action, Fault, Operation
from syphon.emulator.broker import QueueDescription
from syphon.model import SessionOrder, SyphonError
from syphon.transfer.pump import Pump
from tests.integration.transfer.conftest import BACKLOG, PATIENT, TwoNamespaces, aliased
from tests.support.waiting import eventually

ORDERED = replace(PATIENT, session_order=SessionOrder.KEPT)


def put(namespaces: TwoNamespaces, count: int, sessions: int = 1) -> None:
    """Puts messages into the backlog: number n has session n % sessions."""
    namespaces.queue("orders")
    namespaces.put(
        *(
            aliased(
                f"{number}",
                "orders",
                message_id=f"{number}",
                application_properties={"x-ms-sessionid": f"s{number % sessions}"},
            )
            for number in range(count)
        )
    )


@contextmanager
def receiving(namespaces: TwoNamespaces, count: int) -> Iterator[tuple[Any, list[Any]]]:
    """Another receiver has locked the first messages."""
    with namespaces.client("contoso-dr").get_queue_receiver(BACKLOG) as receiver:
        found: list[Any] = []
        while len(found) < count:
            found += receiver.receive_messages(count - len(found), max_wait_time=20)
        yield receiver, found


def arrived(namespaces: TwoNamespaces, count: int) -> list[int]:
    return [int(message.message_id) for message in namespaces.take("orders", count)]


def all_held(pump: Pump, count: int) -> bool:
    return pump.counters.in_flight == count


def held_sessions(pump: Pump) -> int:
    order = pump.queues[BACKLOG].order
    assert order is not None
    return order.held_sessions


def test_messages_wait_for_the_earlier_ones_that_another_receiver_has_locked(namespaces: TwoNamespaces) -> None:  # D21
    put(namespaces, 20, sessions=2)
    with receiving(namespaces, 3) as (receiver, found), namespaces.running(ORDERED) as (pump, _, _):
        eventually(lambda: all_held(pump, 17))
        eventually(lambda: held_sessions(pump) == 2)
        assert namespaces.active("orders") == 0
        for message in reversed(found):
            receiver.abandon_message(message)
        eventually(lambda: namespaces.active("orders") == 20)
        eventually(lambda: held_sessions(pump) == 0)
    numbers = arrived(namespaces, 20)
    assert [number for number in numbers if number % 2 == 0] == list(range(0, 20, 2))
    assert [number for number in numbers if number % 2] == list(range(1, 20, 2))


def test_sessions_whose_messages_are_all_there_do_not_wait_for_others(namespaces: TwoNamespaces) -> None:  # D21, S3
    put(namespaces, 20, sessions=4)
    with receiving(namespaces, 1), namespaces.running(ORDERED):
        eventually(lambda: namespaces.active("orders") == 15)
        assert {number % 4 for number in arrived(namespaces, 15)} == {1, 2, 3}


def test_a_session_goes_on_when_the_message_it_waits_for_has_been_completed(namespaces: TwoNamespaces) -> None:  # D21
    put(namespaces, 20)
    with receiving(namespaces, 1) as (receiver, found), namespaces.running(ORDERED) as (pump, _, _):
        eventually(lambda: all_held(pump, 19))
        receiver.complete_message(found[0])
        eventually(lambda: namespaces.active("orders") == 19)
    assert arrived(namespaces, 19) == list(range(1, 20))


def test_deferred_messages_come_before_the_later_ones_of_their_session(namespaces: TwoNamespaces) -> None:  # D21, D16
    put(namespaces, 20)
    with receiving(namespaces, 5) as (receiver, found):
        for message in found:
            receiver.defer_message(message)
    with namespaces.running(ORDERED):
        eventually(lambda: namespaces.active("orders") == 20)
    assert arrived(namespaces, 20) == list(range(20))


def test_a_message_that_fails_alone_holds_up_its_session_and_no_other(namespaces: TwoNamespaces) -> None:  # D21, S3
    put(namespaces, 40, sessions=2)
    fault = namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", "amqp:internal-error", message_id="4"))
    with namespaces.running(ORDERED):
        eventually(lambda: namespaces.active("orders") == 22)
        assert sorted(arrived(namespaces, 22)) == sorted([*range(1, 40, 2), 0, 2])
    assert fault.struck


@pytest.mark.parametrize(("order", "expected"), [(SessionOrder.KEPT, 19), (SessionOrder.STRICT, 4)])
def test_a_refused_message_holds_up_its_session_only_in_strict_order(
    namespaces: TwoNamespaces, order: SessionOrder, expected: int
) -> None:  # D21, S4
    put(namespaces, 20)
    namespaces.fault(Fault(Action.ERROR, Operation.SEND, "orders", "amqp:not-allowed", message_id="4"))
    with namespaces.running(replace(ORDERED, session_order=order)):
        eventually(lambda: namespaces.active("orders") == expected)
        assert arrived(namespaces, expected) == [number for number in range(20) if number != 4][:expected]
    assert namespaces.dead(BACKLOG) == (order is SessionOrder.KEPT)


def test_two_pumps_on_one_queue_keep_the_order_together(namespaces: TwoNamespaces) -> None:  # D21, X1
    put(namespaces, 12)
    with namespaces.running(ORDERED), namespaces.running(ORDERED):
        eventually(lambda: namespaces.active("orders") >= 12)
    assert arrived(namespaces, 12) == list(range(12))


def test_a_partitioned_backlog_queue_is_refused(namespaces: TwoNamespaces) -> None:  # D21
    namespaces.emulator.call(lambda: namespaces.secondary.delete(BACKLOG))
    description = QueueDescription(BACKLOG, enable_partitioning=True)
    namespaces.emulator.call(lambda: namespaces.secondary.create_queue(description))
    put(namespaces, 1)
    with namespaces.pump(ORDERED) as (pump, _), pytest.raises(SyphonError, match="is partitioned"):
        pump.run()
