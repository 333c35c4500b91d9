"""What the broker wrote onto a message: read at a glance where it can be, and then it is what a walk would find."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Int, Long, Map, Section, Symbol, Timestamp, UInt, Value, data_section, encode, split
from syphon.backlog import Facts, Ttl, aliases, facts_of, restore, to_backlog
from syphon.backlog.cutting import take
from syphon.backlog.facts import stamps_from, usual_stamps
from syphon.emulator.broker.message import BrokeredMessage
from tests.amqp import strategies as amqp
from tests.amqp.strategies import examples, mutated

from .messages import NOW, Sent, compound, paths, sent

STAMPS: dict[str, Value] = {
    "x-opt-sequence-number": Long(70_000),
    "x-opt-enqueued-time": Timestamp(NOW - 5_000),
    "x-opt-locked-until": Timestamp(NOW),
    "x-opt-enqueue-sequence-number": Long(0),
    "x-opt-message-state": Int(0),
}

_stamps = st.one_of(amqp.longs, amqp.timestamps, amqp.ints, amqp.values)
_pairs = st.one_of(
    st.sampled_from(list(STAMPS.items())),
    st.tuples(st.sampled_from([*STAMPS, "x-opt-deadletter-source", "x-opt-partition-key", "mine"]), _stamps),
)


@st.composite
def _annotations(draw: st.DrawFn) -> bytes:
    pairs = draw(st.permutations(list(STAMPS.items())))[draw(st.integers(0, 3)) :] + draw(st.lists(_pairs, max_size=2))
    body = b"".join(encode(Symbol(name)) + encode(value) for name, value in pairs)
    count = 2 * len(pairs) + draw(st.sampled_from([0, 0, 0, 0, 2, -2]))
    forms = [0xC1, 0xD1] if len(body) < 255 else [0xD1]
    return b"\x00\x53\x72" + compound(draw(st.sampled_from(forms)), max(0, count), body)


@examples(500)
@given(st.one_of(_annotations(), mutated(_annotations())))
def test_stamps_at_a_glance_are_what_a_walk_finds(data: bytes) -> None:
    try:
        (span,) = split(data)
        stamps = usual_stamps(data, span)
    except ValueError:
        return
    if stamps is not None:
        rest, count, found = take(data, span, aliases.NOT_CARRIED)
        assert (rest, count) == (b"", 0)
        assert stamps_from(data, found) == stamps


@examples(100)
@given(sent, paths, st.sampled_from(Ttl), st.integers(128, 2**62))
def test_a_message_is_restored_to_the_same_whether_it_was_glanced_at_or_walked_through(
    message: Sent, path: str, rule: Ttl, sequence: int
) -> None:  # M2, M5
    brokered = BrokeredMessage.parse(to_backlog(message.payload, path))
    brokered.ordinal, brokered.enqueued_at, brokered.enqueued_sequence = sequence, NOW - 5_000, 0
    brokered.lock_token, brokered.locked_until, brokered.delivery_count = b"t" * 16, NOW, 2
    payload = brokered.to_bytes()

    glanced = restore(payload, enqueued_at=None, now=NOW, ttl=rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aliases, "usual_stamps", lambda *_: None)
        assert restore(payload, enqueued_at=None, now=NOW, ttl=rule) == glanced


def test_a_stamp_that_is_there_twice_is_not_overlooked_when_the_count_leaves_it_out() -> None:
    pairs = [*STAMPS.items(), ("x-opt-sequence-number", Long(70_001))]
    body = b"".join(encode(Symbol(name)) + encode(value) for name, value in pairs)
    data = b"\x00\x53\x72" + compound(0xD1, 2 * len(STAMPS), body)
    assert usual_stamps(data, split(data)[0]) is None


@pytest.mark.parametrize("form", [0xC1, 0xD1])
@pytest.mark.parametrize("names", [list(STAMPS), list(reversed(STAMPS)), list(STAMPS)[:3]])
def test_what_brokers_write_is_read_at_a_glance(form: int, names: list[str]) -> None:
    body = b"".join(encode(Symbol(name)) + encode(STAMPS[name]) for name in names)
    data = b"\x00\x53\x72" + compound(form, 2 * len(names), body)
    assert usual_stamps(data, split(data)[0]) == (70_000, NOW - 5_000, NOW)


@pytest.mark.parametrize(
    "pairs",
    [
        [*STAMPS.items(), ("mine", Int(1))], [*STAMPS.items(), ("x-opt-partition-key", "k")],
        [*STAMPS.items(), ("x-opt-locked-until", Timestamp(5))], list(STAMPS.items())[1:], [],
        [("x-opt-sequence-number", Long(5)), *list(STAMPS.items())[1:]],
        [("x-opt-enqueued-time", "yesterday"), *list(STAMPS.items())],
    ],
)  # fmt: skip
def test_other_annotations_are_walked_through(pairs: list[tuple[str, Value]]) -> None:
    body = b"".join(encode(Symbol(name)) + encode(value) for name, value in pairs)
    data = b"\x00\x53\x72" + compound(0xD1, 2 * len(pairs), body)
    assert usual_stamps(data, split(data)[0]) is None


def test_a_stamp_that_is_no_number_says_nothing() -> None:
    values: list[Value] = ["seven..", True, b"1234567", 1.0, None]
    for value in values:
        annotations = Map.symbols(dict.fromkeys(list(STAMPS)[:3], value))
        data = b"\x00\x53\x72" + encode(annotations) + data_section(b"body")
        assert facts_of(data) == Facts()


def test_facts_are_read_from_whole_messages_and_none_from_others() -> None:
    header = b"\x00\x53" + bytes((Section.HEADER,)) + encode([True, None, None, None, UInt(3)])
    stamped = header + b"\x00\x53\x72" + encode(Map.symbols(STAMPS)) + data_section(b"body")
    assert facts_of(stamped) == Facts(70_000, NOW - 5_000, NOW, 3)
    assert facts_of(stamped[:-10]) == Facts()
