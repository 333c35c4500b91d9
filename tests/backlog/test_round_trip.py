"""Aliasing and restoring give back the same message: every AMQP type, every body kind, byte by byte (M1, M2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Decimal128, Described, Long, Map, Message, Section, Symbol, Timestamp, UInt, Value, encode
from syphon.amqp.sections import entries
from syphon.backlog import Restored, Ttl, restore, to_backlog
from syphon.emulator.broker.message import BrokeredMessage, StoredState
from syphon.model.entity_path import EntityPath
from tests.support.amqp_strategies import examples
from tests.support.backlog_messages import NOW, SCHEDULED, Sent, paths, sent

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
    assert found.raw(Section.DELIVERY_ANNOTATIONS) == b""
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


@examples(100)
@given(sent, paths)
def test_the_application_properties_are_the_same_bytes_where_the_backlog_had_room_for_their_form(
    message: Sent, path: str
) -> None:  # M2
    aliased = to_backlog(message.payload, path)
    before = Message(message.payload).span(Section.APPLICATION_PROPERTIES)
    during = Message(aliased).span(Section.APPLICATION_PROPERTIES)
    assert during is not None
    back = Message(restored(aliased).payload).raw(Section.APPLICATION_PROPERTIES)
    # A short map that became long because of the aliases stays long: its first form is not recorded.
    if before is None or message.payload[before.value] == aliased[during.value]:
        assert back == message.application


@examples(100)
@given(sent, paths)
def test_a_message_comes_back_from_a_broker_as_it_was_sent_there(message: Sent, path: str) -> None:  # M2
    brokered = BrokeredMessage.parse(to_backlog(message.payload, path))
    brokered.ordinal, brokered.enqueued_at = 7, NOW - 5_000
    brokered.enqueued_sequence, brokered.dead_letter_source = 3, "contoso/x-servicebus-transfer/0"
    brokered.lock_token, brokered.locked_until, brokered.delivery_count = b"t" * 16, NOW, 2
    brokered.state = StoredState.DEFERRED  # an active message does not say its state
    stamped = brokered.to_bytes()
    assert b"x-opt-lock-token" in Message(stamped).raw(Section.DELIVERY_ANNOTATIONS)
    assert {str(key) for key, _ in Message(stamped).annotations()} >= BROKER_MADE

    back = restored(stamped)

    found = Message(back.payload)
    assert found.raw(Section.DELIVERY_ANNOTATIONS) == b""  # the lock is ours
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
@given(sent, paths, st.sampled_from(Ttl))
def test_restoring_gives_a_message_that_can_be_put_into_a_backlog_again(message: Sent, path: str, rule: Ttl) -> None:
    # M2: all four are gone. With no time spent, both rules give the same (M5).
    aliased = to_backlog(message.payload, path)
    once = restore(aliased, enqueued_at=NOW, now=NOW, ttl=rule)
    if not isinstance(once, Restored):
        assert message.ttl == 0
        return
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
