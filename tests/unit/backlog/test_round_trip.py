"""Aliasing and restoring return the same message: every AMQP type, every body kind, byte by byte (M1, M2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import (
    Decimal128,
    Described,
    Header,
    Long,
    Map,
    Message,
    Section,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    Value,
    encode,
    header_bytes,
    section_bytes,
    split,
)
from syphon.amqp.sections import entries
from syphon.backlog import Restored, destination_of, restore, to_backlog
from syphon.emulator.broker.message import BrokeredMessage, StoredState
from syphon.model import TimeToLive
from syphon.model.entity_path import EntityPath
from tests.support.amqp_strategies import examples
from tests.support.backlog_messages import NOW, SCHEDULED, Sent, compound, paths, sent

BROKER_MADE = {
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-sequence-number",
    "x-opt-enqueue-sequence-number",
    "x-opt-message-state",
    "x-opt-deadletter-source",
}


def restored(payload: bytes, now: int = NOW) -> Restored:
    found = restore(payload, enqueued_at=None, now=now)
    assert isinstance(found, Restored), found
    return found


def through_a_broker(payload: bytes) -> bytes:
    """The message as a broker delivers it, with all that a broker writes."""
    brokered = BrokeredMessage.parse(payload)
    brokered.ordinal, brokered.enqueued_at = 7, NOW - 5_000
    brokered.enqueued_sequence, brokered.dead_letter_source = 3, "contoso/x-servicebus-transfer/0"
    brokered.lock_token, brokered.locked_until, brokered.delivery_count = b"t" * 16, NOW, 2
    brokered.state = StoredState.DEFERRED  # an active message does not say its state
    return brokered.to_bytes()


def pairs(payload: bytes, section: Section) -> list[bytes]:
    """The pairs of a map section as bytes."""
    span = Message(payload).span(section)
    return [payload[entry.start : entry.end] for entry in entries(payload, span)] if span is not None else []


def tail(payload: bytes) -> bytes:
    spans = [span for span in Message(payload).spans if span.section > Section.APPLICATION_PROPERTIES]
    return payload[spans[0].start :] if spans else b""


def annotations_of(message: Sent) -> list[bytes]:
    """The annotations after restoring: those of the sender, and a scheduled time."""
    own = [key + value for key, value in message.annotations]
    if message.scheduled is not None:
        own.append(encode(Symbol(SCHEDULED)) + encode(Timestamp(message.scheduled)))
    return own


def trimmed(fields: list[Value]) -> list[Value]:
    while fields and fields[-1] is None:
        fields = fields[:-1]
    return fields


def assert_is_what_was_sent(back: Restored, message: Sent) -> None:
    found = Message(back.payload)
    # The bare message, byte by byte.
    assert found.raw(Section.PROPERTIES) == message.properties
    assert tail(back.payload) == message.tail
    assert pairs(back.payload, Section.APPLICATION_PROPERTIES) == pairs(message.payload, Section.APPLICATION_PROPERTIES)
    # The parts that brokers may rewrite: the same pairs and fields.
    assert pairs(back.payload, Section.MESSAGE_ANNOTATIONS) == annotations_of(message)
    assert found.raw(Section.DELIVERY_ANNOTATIONS) == message.delivery_annotations
    assert found.read(Section.HEADER) in (None, trimmed((message.header or [])[:3]))
    assert found.header().ttl == message.ttl
    # And what the result says about it.
    properties = Message(message.payload).properties()
    assert back.message_id == properties.message_id
    assert back.session_id == properties.group_id
    assert back.partition_key == Message(message.payload).annotations().get("x-opt-partition-key")
    assert back.size == len(back.payload)


@examples(250)
@given(sent, paths)
def test_restoring_is_the_exact_inverse_of_aliasing(message: Sent, path: str) -> None:  # M1, M2
    back = restored(to_backlog(message.payload, path))
    assert back.destination == EntityPath.of(path)
    assert_is_what_was_sent(back, message)


@examples(250)
@given(sent, paths)
def test_the_application_properties_are_the_same_bytes(message: Sent, path: str) -> None:  # M2
    """Aliases push a short map into the long form. It comes back in the form that it had."""
    back = restored(through_a_broker(to_backlog(message.payload, path)))
    assert Message(back.payload).raw(Section.APPLICATION_PROPERTIES) == message.application


@pytest.mark.parametrize("form", [0xC1, 0xD1])
@pytest.mark.parametrize("size", [1, 100, 180, 220, 240, 250, 251, 252])
def test_a_map_that_aliases_push_past_255_bytes_comes_back_in_its_own_form(form: int, size: int) -> None:  # M2
    pair = encode("k") + encode("x" * (size - 5))
    application = b"\x00\x53\x74" + compound(form, 2, pair)
    body = b"\x00\x53\x75\xa0\x01x"
    aliased = to_backlog(application + body, "o" * 60)
    assert restored(aliased).payload == application + body
    assert restored(through_a_broker(aliased)).payload == application + body


@pytest.mark.parametrize(
    ("sent_header", "given_back"),
    [
        (None, b""),
        (Header(), b""),
        (Header(durable=True), header_bytes(Header(durable=True))),
        (Header(durable=False), header_bytes(Header(durable=False))),
        (Header(priority=UByte(7)), header_bytes(Header(priority=UByte(7)))),
        (Header(ttl=UInt(5000)), header_bytes(Header(ttl=UInt(5000)))),
        (Header(durable=True, ttl=UInt(5000)), header_bytes(Header(durable=True, ttl=UInt(5000)))),
    ],
)
def test_a_brokers_durable_is_not_given_to_a_message_that_had_none(
    sent_header: Header | None, given_back: bytes
) -> None:  # M2
    body = b"\x00\x53\x75\xa0\x01x"
    payload = (header_bytes(sent_header) if sent_header is not None else b"") + body
    delivered = through_a_broker(to_backlog(payload, "orders"))
    if sent_header is None:
        assert Message(delivered).header().durable is True  # the broker has written it
    assert restored(delivered).payload == given_back + body


def test_a_message_of_another_sender_keeps_the_durable_that_it_has() -> None:  # M2
    """Whether that is the sender's or the broker's cannot be known."""
    body = b"\x00\x53\x75\xa0\x01x"
    aliased = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"x-ms-path": "orders"})) + body
    assert Message(restored(through_a_broker(aliased)).payload).header() == Header(durable=True)


# --- sections in any order ---


def shuffled(payload: bytes, order: st.DataObject) -> bytes:
    """The same sections in another order."""
    spans = order.draw(st.permutations(Message(payload).spans))
    parts = [payload[span.start : span.end] for span in spans]
    if [span.section for span in spans if span.section in (Section.DATA, Section.SEQUENCE)][1:]:
        return payload  # the parts of one body must stay in their order
    return b"".join(parts)


@examples(150)
@given(sent, paths, st.data())
def test_the_order_of_the_sections_makes_no_difference(message: Sent, path: str, order: st.DataObject) -> None:  # M8
    payload = message.payload
    aliased = to_backlog(payload, path)
    assert to_backlog(shuffled(payload, order), path) == aliased
    assert restored(shuffled(aliased, order)) == restored(aliased)
    assert destination_of(shuffled(aliased, order)) == destination_of(aliased)
    first, second = BrokeredMessage.parse(aliased), BrokeredMessage.parse(shuffled(aliased, order))
    assert first.to_bytes() == second.to_bytes()
    standard = [span.section for span in split(second.to_bytes())]
    assert standard == sorted(standard)


@pytest.mark.parametrize("key", [b"customer 7", "Käse".encode(), b""])
def test_a_binary_partition_key_is_the_key_of_its_text(key: bytes) -> None:  # M2, S8
    annotations = section_bytes(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("x-opt-partition-key"), key),)))
    payload = annotations + b"\x00\x53\x75\xa0\x01x"
    assert BrokeredMessage.parse(payload).partition_key == key.decode()
    back = restored(through_a_broker(to_backlog(payload, "orders")))
    assert back.partition_key == key.decode()
    assert back.payload == payload


@examples(100)
@given(sent, paths)
def test_a_message_comes_back_from_a_broker_as_it_was_sent_there(message: Sent, path: str) -> None:  # M2
    stamped = through_a_broker(to_backlog(message.payload, path))
    assert b"x-opt-lock-token" in Message(stamped).raw(Section.DELIVERY_ANNOTATIONS)
    assert {str(key) for key, _ in Message(stamped).annotations()} >= BROKER_MADE

    back = restored(stamped)

    found = Message(back.payload)
    assert found.raw(Section.DELIVERY_ANNOTATIONS) == message.delivery_annotations  # without the lock, which is ours
    assert pairs(back.payload, Section.MESSAGE_ANNOTATIONS) == annotations_of(message)
    assert (found.header().first_acquirer, found.header().delivery_count) == (None, None)
    assert (found.header().ttl, found.header().priority) == (message.ttl, Message(message.payload).header().priority)
    assert found.raw(Section.PROPERTIES) == message.properties
    assert tail(back.payload) == message.tail


@examples(100)
@given(sent, paths)
def test_in_the_backlog_a_message_has_no_session_no_time_to_live_and_no_schedule(message: Sent, path: str) -> None:
    # M1
    original, aliased = Message(message.payload), Message(to_backlog(message.payload, path))
    aliases = {str(key): value for key, value in aliased.application_properties() if str(key).startswith("x-ms-")}
    expected: dict[str, Value] = {"x-ms-path": path}
    if (session := original.properties().group_id) is not None:
        expected["x-ms-sessionid"] = session
    if isinstance(message.ttl, UInt):
        expected["x-ms-timetolive"] = Described(Symbol("com.microsoft:timespan"), Long(message.ttl * 10_000))
    if message.scheduled is not None:
        expected["x-ms-scheduledenqueuetimeutc"] = Timestamp(message.scheduled)
    assert aliases == expected
    assert {name: type(value) for name, value in aliases.items()} == {
        name: type(value) for name, value in expected.items()
    }
    assert aliased.properties().group_id is None
    assert aliased.header().ttl is None
    assert SCHEDULED not in aliased.annotations()


@examples(100)
@given(sent, paths, st.sampled_from(TimeToLive))
def test_restoring_gives_a_message_that_can_be_put_into_a_backlog_again(
    message: Sent, path: str, rule: TimeToLive
) -> None:
    # M2: all four are removed. With no time spent, both rules give the same (M5).
    aliased = to_backlog(message.payload, path)
    once = restore(aliased, enqueued_at=NOW, now=NOW, ttl=rule)
    assert isinstance(once, Restored)
    again = restored(to_backlog(once.payload, path))
    assert again.payload == once.payload


def test_the_messages_that_sdks_cannot_survive_pass() -> None:  # M2: decimal128, char, described types
    properties = Map.of(
        {
            "price": Decimal128(bytes(range(16))),
            "span": Described(Symbol("com.microsoft:timespan"), Long(5)),
            "uri": Described(Symbol("com.microsoft:uri"), "https://contoso"),
            "raw": b"\xff\x00",
        }
    )
    payload = b"\x00\x53\x74" + encode(properties) + b"\x00\x53\x77" + encode(Decimal128(b"x" * 16))
    assert restored(to_backlog(payload, "orders")).payload == payload
