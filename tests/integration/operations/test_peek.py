"""Peeking at a backlog queue over the raw wire: everything is seen, and nothing is touched."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Int, Long, Malformed, Map, Message, Section, Symbol, Value, decode, section_bytes, split
from syphon.backlog.dead_letters import read_dead_letters
from syphon.emulator import Action, Fault, Kind, Operation, Outage
from syphon.emulator.broker.message import ORDINAL_MASK, BrokeredMessage
from syphon.emulator.broker.message_store import MessageStore
from syphon.model.errors import DestinationMissing, DestinationSilent, Interrupted, NotAllowedByEntity, NotAuthorized
from syphon.servicebus.management_node import ManagementReply
from syphon.servicebus.peek_reply import MessageState, payloads_of, usual_stamps
from syphon.servicebus.queue_peek import PAGE_BYTES, peek, peek_pages, sequence_bounds
from tests.integration.operations.conftest import DEAD, FIRST, SECOND, Bench, aliased, received
from tests.support.amqp_strategies import ascii_text, mutated, noise, values


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


@pytest.mark.parametrize("messages", [400, 3000])
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_every_message_of_a_partitioned_queue_is_seen_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, messages: int, is_interleaved: bool
) -> None:
    bench.partition()
    bench.put_spread(*(aliased(f"{i}", "orders", message_id=f"m{i}") for i in range(messages)))
    if is_interleaved:
        monkeypatch.setattr(MessageStore, "peek_page", _peek_in_order_of_arrival)
    with bench.connection() as connection:
        seen = Counter(str(Message(found.payload).properties().message_id) for found in peek(connection, FIRST))
        partitions = {found.sequence_number >> 48 for found in peek(connection, FIRST)}
    assert seen == Counter(f"m{i}" for i in range(messages))
    assert len(partitions) == 16


def _peek_in_order_of_arrival(
    self: MessageStore, sequence: int, count: int, session_id: str | None = None
) -> list[BrokeredMessage]:
    """What a service would answer that interleaves its partitions. Numbers alone do not say that Azure never does."""
    assert session_id is None
    ordinals = range(sequence & ORDINAL_MASK, self._last_ordinal + 1)
    return [self._messages[ordinal] for ordinal in ordinals if ordinal in self._messages][:count]


def test_dead_letters_of_a_partitioned_queue_are_seen_once(bench: Bench) -> None:
    bench.partition()
    bench.put_spread(*(aliased(f"{i}", "orders", message_id=f"m{i}") for i in range(400)))
    bench.bury(reason="Why", taken=400)
    with bench.connection() as connection:
        letters = [letter.message_id for letter in read_dead_letters(connection, FIRST)]
    assert Counter(letters) == Counter(f"m{i}" for i in range(400))


def test_the_next_page_is_requested_when_the_last_is_used_up(bench: Bench) -> None:
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
        assert len(list(peek(connection, FIRST, busy_delay=0.1))) == 3
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


def test_pages_end_at_a_number_and_are_requested_ahead(bench: Bench) -> None:
    bench.put(*(aliased(f"{number}", "orders") for number in range(700)))
    with bench.connection() as connection:
        pages = list(peek_pages(connection, FIRST, 101, stop=650))
        assert [message.sequence_number for page in pages for message in page] == list(range(101, 651))
        assert max(map(len, pages)) == 250
        pages_ahead = peek_pages(connection, FIRST)
        first = next(pages_ahead)
        assert first == next(peek_pages(connection, FIRST, ahead=False))
        assert sum(len(page) for page in pages_ahead) == 700 - len(first)
        assert list(peek_pages(connection, FIRST, 5, stop=4)) == []
        assert list(peek_pages(connection, FIRST, 701, stop=9000)) == []


def test_a_throttled_page_that_was_requested_ahead_is_requested_again(bench: Bench) -> None:  # S5
    bench.put(*(aliased(f"{number}", "orders") for number in range(100)))
    with bench.connection() as connection:
        pages = peek_pages(connection, FIRST, busy_delay=0.01)
        first = next(pages)
        busy = Fault(Action.ERROR, Operation.MANAGE, FIRST, condition="com.microsoft:server-busy", times=1)
        bench.emulator.call(lambda: bench.secondary.faults.add(busy))
        rest = [message.sequence_number for page in pages for message in page]
        assert [message.sequence_number for message in first] + rest == list(range(1, 101))


@pytest.mark.parametrize("gone", [(), range(1, 60), range(60, 140), range(100, 201), range(2, 200)])
def test_the_bounds_of_a_queue_are_found_whatever_gaps_it_has(bench: Bench, gone: Sequence[int]) -> None:
    bench.put(*(aliased(f"{number}", "orders") for number in range(200)))

    def remove() -> None:
        queue = bench.secondary.message_queue(FIRST)
        for number in gone:
            if number in queue._messages:
                queue._remove(queue._messages[number])

    bench.emulator.call(remove)
    left = sorted(set(range(1, 201)) - set(gone))
    with bench.connection() as connection:
        assert sequence_bounds(connection, FIRST) == (left[0], left[-1])
        assert sequence_bounds(connection, FIRST, after=left[0]) == (left[1], left[-1])
        assert sequence_bounds(connection, FIRST, after=left[-1]) is None
        assert sequence_bounds(connection, SECOND) is None


@given(st.lists(st.binary(max_size=400), max_size=4), st.booleans())
def test_the_usual_answer_is_read_by_hand_as_the_codec_reads_it(payloads: list[bytes], is_unusual: bool) -> None:
    more: dict[str, Value] = {"other": "x"} if is_unusual else {}
    body = Map.of({"messages": [Map.of({"message": payload, **more}) for payload in payloads], **more})
    reply = ManagementReply(200, "OK", "", Message(section_bytes(Section.VALUE, body)))
    assert payloads_of(reply) == payloads


def _stamped(others: dict[str, Value], number: int, state: int) -> bytes:
    pairs = [(Symbol(name), value) for name, value in others.items()]
    pairs += [(Symbol("x-opt-sequence-number"), Long(number)), (Symbol("x-opt-message-state"), Int(state))]
    return section_bytes(Section.MESSAGE_ANNOTATIONS, Map(tuple(pairs)))


_others = st.dictionaries(ascii_text, values, max_size=3)
_stampings = st.builds(_stamped, _others, st.integers(0, 2**63 - 1), st.integers(0, 2))


def _annotations(payload: bytes) -> Map:
    try:
        for span in split(payload, until=Section.MESSAGE_ANNOTATIONS):
            if span.section == Section.MESSAGE_ANNOTATIONS:
                found = decode(payload, span.value, span.end)[0]
                return found if isinstance(found, Map) else Map()
    except Malformed:
        pass
    return Map()


@given(_stampings | mutated(_stampings) | noise)
def test_stamps_are_read_by_hand_as_the_codec_reads_them(payload: bytes) -> None:
    try:
        number, state = usual_stamps(payload)
    except (IndexError, struct.error):
        return
    found = _annotations(payload)
    if number is not None and len(found):
        assert found.get("x-opt-sequence-number") == number
        code = found.get("x-opt-message-state")
        assert state is None if code is None else isinstance(code, int) and code & 0xFF == state
