"""Peeking at a backlog queue over the raw wire: everything is seen, and nothing is touched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.amqp import Message
from syphon.bus.peeking import PAGE_BYTES, MessageState, peek
from syphon.emulator import Action, Fault, Kind, Operation, Outage
from syphon.model.errors import DestinationMissing, DestinationSilent, Interrupted, NotAllowedByEntity, NotAuthorized
from tests.inspecting.conftest import DEAD, FIRST, Bench, aliased, received


def test_everything_is_seen_in_order_page_after_page(bench: Bench) -> None:
    bench.put(*(aliased(f"{i}", "orders", message_id=f"m{i}") for i in range(700)))
    with bench.connection() as connection:
        seen = list(peek(connection, FIRST))
    assert [message.sequence_number for message in seen] == list(range(1, 701))
    assert [Message(message.payload).properties().message_id for message in seen] == [f"m{i}" for i in range(700)]


def test_a_look_can_begin_anywhere(bench: Bench) -> None:
    bench.put(*(aliased(f"{i}", "orders") for i in range(9)))
    with bench.connection() as connection:
        assert [message.sequence_number for message in peek(connection, FIRST, 4, most=2)] == [4, 5, 6, 7, 8, 9]
        assert list(peek(connection, FIRST, 10)) == []


def test_nothing_is_locked_counted_or_changed(bench: Bench) -> None:
    bench.put(*(aliased(f"{i}", "orders") for i in range(5)))
    with bench.connection() as connection:
        first, second = list(peek(connection, FIRST)), list(peek(connection, FIRST))
    assert first == second
    with bench.client("contoso-dr").get_queue_receiver(FIRST) as receiver:
        taken = received(receiver, 5)
        assert [str(message) for message in taken] == ["0", "1", "2", "3", "4"]
        assert {message.delivery_count for message in taken} == {0}


def test_messages_have_their_state_and_a_locked_one_is_active(bench: Bench) -> None:  # D4
    with bench.connection() as connection:
        assert list(peek(connection, FIRST)) == []
        with bench.client("contoso-dr").get_queue_sender(FIRST) as sender:
            sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
            sender.send_messages([ServiceBusMessage("deferred"), ServiceBusMessage("locked")])
        with bench.client("contoso-dr").get_queue_receiver(FIRST) as receiver:
            deferred, locked = received(receiver, 2)
            receiver.defer_message(deferred)
            assert [(message.state, message.sequence_number) for message in peek(connection, FIRST)] == [
                (MessageState.SCHEDULED, 1),
                (MessageState.DEFERRED, deferred.sequence_number),
                (MessageState.ACTIVE, locked.sequence_number),
            ]
            receiver.complete_message(locked)
        assert {message.state for message in peek(connection, FIRST)} == {MessageState.SCHEDULED, MessageState.DEFERRED}


def test_the_next_page_is_asked_for_when_the_last_is_used_up(bench: Bench) -> None:
    bench.put(*(aliased(f"{i}", "orders") for i in range(600)))

    def peeked() -> int:
        return bench.emulator.call(lambda: bench.secondary.counters.of(FIRST, Kind.PEEK))

    with bench.connection() as connection:
        messages = peek(connection, FIRST, most=100)
        asked = []
        for number, _ in enumerate(messages, 1):
            asked.append(peeked() - number)
            if number == 250:
                break
        messages.close()  # type: ignore[attr-defined]
    assert max(asked) < 100


def test_pages_of_large_messages_are_small(bench: Bench) -> None:
    bench.put(*(bytes.fromhex("005375b0") + (200_000).to_bytes(4, "big") + bytes(200_000) for _ in range(60)))
    with bench.connection() as connection:
        messages = peek(connection, FIRST)
        for _ in range(33):  # the first page, and one message of the next
            next(messages)
        asked = bench.emulator.call(lambda: bench.secondary.counters.of(FIRST, Kind.PEEK))
        assert asked - 32 == PAGE_BYTES // 200_000
        assert len(list(messages)) == 60 - 33


def test_a_message_that_is_malformed_behind_the_annotations_is_seen_too(bench: Bench) -> None:
    bench.put(b"\x00\x53\x74\xff\xff")
    bench.put(aliased("fine", "orders"))
    with bench.connection() as connection:
        broken, _ = peek(connection, FIRST)
    assert broken.payload.endswith(b"\x00\x53\x74\xff\xff")
    assert broken.sequence_number == 1


def test_dead_letters_can_be_peeked_at(bench: Bench) -> None:
    bench.bury(aliased("x", None), reason="NoDestination")
    with bench.connection() as connection:
        (letter,) = peek(connection, f"{FIRST}/{DEAD}")
    assert Message(letter.payload).application_properties().get("DeadLetterReason") == "NoDestination"


def test_a_missing_queue_is_named(bench: Bench) -> None:
    with bench.connection() as connection, pytest.raises(DestinationMissing, match="x-servicebus-transfer/7"):
        list(peek(connection, "contoso/x-servicebus-transfer/7"))


def test_a_throttled_namespace_is_asked_again_later(bench: Bench) -> None:  # S5
    bench.put(*(aliased(f"{i}", "orders") for i in range(3)))
    busy = Fault(Action.ERROR, Operation.MANAGE, FIRST, condition="com.microsoft:server-busy", times=1)
    bench.emulator.call(lambda: bench.secondary.faults.add(busy))
    with bench.connection() as connection:
        assert len(list(peek(connection, FIRST, busy_pause=0.1))) == 3
    assert busy.struck == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(Action.ERROR, Operation.MANAGE, FIRST, condition="amqp:not-allowed"), NotAllowedByEntity),
        (Fault(Action.ERROR, Operation.MANAGE, FIRST, condition="amqp:unauthorized-access"), NotAuthorized),
        (Fault(Action.DROP, Operation.MANAGE, FIRST), Interrupted),
        (Fault(Action.HANG, Operation.MANAGE, FIRST), DestinationSilent),
    ],
)
def test_an_error_of_the_namespace_is_raised(bench: Bench, fault: Fault, error: type[Exception]) -> None:
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    with bench.connection() as connection, pytest.raises(error):
        list(peek(connection, FIRST, answer_within=1.0))


def test_a_broken_connection_is_raised_at_once(bench: Bench) -> None:
    with bench.connection() as connection:
        messages = peek(connection, FIRST, answer_within=60.0)
        bench.emulator.call(lambda: bench.secondary.faults.begin_outage(Outage.REFUSE))
        with pytest.raises(Interrupted):
            list(messages)
