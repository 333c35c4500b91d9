"""Dead letters as bytes: reading them, selecting them, and the message that is put back."""

from __future__ import annotations

import pytest
from hypothesis import given

from syphon.amqp import Map, Message, Section, Symbol, Timestamp, ULong, Value, encode, section_bytes
from syphon.amqp.section_edit import extract, keys, outline, with_pairs
from syphon.backlog import to_backlog
from syphon.backlog.dead_letter_edit import LetterEdit
from syphon.backlog.dead_letters import DeadLetter, DeadLetterFilter, NotPutBack, grouped, put_back, read
from syphon.servicebus.peek_reply import stamped
from syphon.sql import Where
from tests.support import backlog_messages
from tests.support.backlog_messages import Sent

SAID = {"DeadLetterReason": "DestinationMissing", "DeadLetterErrorDescription": "no 'orders'"}
STAMPS: dict[str, Value] = {
    "x-opt-sequence-number": ULong(7),
    "x-opt-enqueued-time": Timestamp(5),
    "x-opt-deadletter-source": "q",
    "x-opt-enqueue-sequence-number": ULong(3),
    "x-opt-message-state": ULong(0),
    "x-opt-locked-until": Timestamp(9),
}


def dead(payload: bytes) -> bytes:
    """A message after a broker made it a dead letter: it adds properties and annotations, nothing else."""
    _, annotations, properties, application, body = outline(payload)
    assert application is not None  # aliases are in it
    own, kept = extract(payload, application, keys(())), extract(payload, annotations, keys(()))
    said = b"".join(encode(key) + encode(value) for key, value in SAID.items())
    pairs = own.remaining(payload) + said
    application_bytes = with_pairs(payload, application, Section.APPLICATION_PROPERTIES, own.pairs + 2, pairs)
    stamps = b"".join(encode(Symbol(key)) + encode(value) for key, value in STAMPS.items())
    total = kept.pairs + len(STAMPS)
    first = outline(payload).header
    return b"".join(
        (
            payload[first.start : first.end] if first is not None else b"",
            with_pairs(payload, annotations, Section.MESSAGE_ANNOTATIONS, total, kept.remaining(payload) + stamps),
            payload[properties.start : properties.end] if properties is not None else b"",
            application_bytes,
            payload[body:],
        )
    )


def pieces(payload: bytes) -> tuple[bytes, ...]:
    """All bytes except the header and the lengths of maps: a broker that adds to a map may use the long form."""
    _, annotations, properties, application, body = outline(payload)
    return (
        extract(payload, annotations, keys(())).remaining(payload),
        payload[properties.start : properties.end] if properties is not None else b"",
        extract(payload, application, keys(())).remaining(payload),
        payload[body:],
    )


@given(backlog_messages.sent, backlog_messages.paths)
def test_put_back_a_message_has_every_byte_it_had_in_the_backlog(sent: Sent, path: str) -> None:  # X4, M2
    before = to_backlog(sent.payload, path)
    assert pieces(put_back(dead(before))) == pieces(before)


@given(backlog_messages.sent, backlog_messages.paths)
def test_the_header_keeps_what_is_the_senders(sent: Sent, path: str) -> None:
    before = Message(to_backlog(sent.payload, path)).header()
    after = Message(put_back(dead(to_backlog(sent.payload, path)))).header()
    assert (after.durable, after.priority, after.ttl) == (before.durable, before.priority, before.ttl)
    assert (after.first_acquirer, after.delivery_count) == (None, None)


@given(backlog_messages.sent, backlog_messages.paths, backlog_messages.paths)
def test_a_destination_that_is_set_is_the_only_thing_that_changes(sent: Sent, path: str, other: str) -> None:
    moved = Message(put_back(dead(to_backlog(sent.payload, path)), LetterEdit.of(path=other)))
    assert moved.application_properties().get("x-ms-path") == other
    home = [pair for pair in Message(to_backlog(sent.payload, path)).application_properties() if pair[0] != "x-ms-path"]
    kept = [pair for pair in moved.application_properties() if pair[0] != "x-ms-path"]
    assert sorted(map(str, kept)) == sorted(map(str, home))


def test_a_message_that_has_no_properties_can_be_given_a_destination() -> None:  # M4
    bare = put_back(section_bytes(Section.VALUE, "x"), LetterEdit.of(path="orders"))
    assert Message(bare).application_properties() == Map.of({"x-ms-path": "orders"})


def test_what_is_no_message_cannot_be_put_back() -> None:
    with pytest.raises(NotPutBack, match="well-formed"):
        put_back(b"\x00\x53\x74\xff\xff")


def letter(reason: str = "r", destination: str | None = "orders", at: int | None = 100, number: int = 1) -> DeadLetter:
    return DeadLetter("q", number, reason, "d", destination, None, at, b"1234")


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (DeadLetterFilter(), True),
        (DeadLetterFilter(reason="R"), True),
        (DeadLetterFilter(reason="x*"), False),
        (DeadLetterFilter(destination="ORD*"), True),
        (DeadLetterFilter(destination=""), False),
        (DeadLetterFilter(after=100, before=101), True),
        (DeadLetterFilter(before=100), False),
        (DeadLetterFilter(after=101), False),
        (DeadLetterFilter(where=Where("1 = 1")), True),
        (DeadLetterFilter(where=Where("colour = 'green'")), False),
    ],
)
def test_dead_letters_are_chosen_by_reason_destination_and_time(wanted: DeadLetterFilter, taken: bool) -> None:
    assert wanted.matches(letter()) is taken


def test_an_empty_pattern_means_those_without_a_destination() -> None:
    assert DeadLetterFilter(destination="").matches(letter(destination=None))


def test_groups_are_counted_and_the_one_that_was_enqueued_first_is_the_example() -> None:
    letters = [letter(at=5, number=1), letter(at=3, number=2), letter(at=4, number=3), letter("other", None)]
    first, second = grouped(iter(letters))
    assert (first.reason, first.destination, first.count, first.bytes) == ("r", "orders", 3, 12)
    assert first.example.sequence_number == 2
    assert (second.reason, second.destination, second.count) == ("other", None, 1)


def test_a_dead_letter_says_why_and_what_cannot_be_read_is_one_too() -> None:
    payload = dead(to_backlog(section_bytes(Section.VALUE, "x"), "orders"))
    found = read("q", stamped(payload))
    assert (found.reason, found.description) == (SAID["DeadLetterReason"], SAID["DeadLetterErrorDescription"])
    assert (found.destination, found.sequence_number, found.enqueued_at) == ("orders", 7, 5)
    broken = read("q", stamped(payload[: outline(payload).body] + b"\xff"))
    assert (broken.reason, broken.sequence_number) == ("", 7)
    assert "well-formed" in broken.description
