"""The layout cache never gives a message the layout of another one that is laid out differently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Int, Malformed, Map, Properties, Section, Value, data_section, properties_bytes, section_bytes
from syphon.backlog import to_backlog
from syphon.backlog.layout_cache import (
    LONGEST_HEAD,
    MISSES_PER_ENTRY,
    MOST_LAYOUTS,
    LayoutCache,
    parse_layout,
    section_starts,
)
from syphon.emulator.broker.message import BrokeredMessage
from tests.support.amqp_strategies import examples, mutated
from tests.support.backlog_messages import NOW, Sent, paths, sent


def stored(payload: bytes, sequence: int = 1, deliveries: int = 0) -> bytes:
    """A message as a broker delivers it."""
    brokered = BrokeredMessage.parse(payload)
    brokered.ordinal, brokered.enqueued_at, brokered.enqueued_sequence = sequence, NOW - 5_000, 0
    brokered.lock_token = sequence.to_bytes(16, "big")  # another one in each delivery
    brokered.locked_until, brokered.delivery_count = NOW, deliveries
    return brokered.to_bytes()


SOME = Int(70_000)


def an_order(number: int, customer: str = "contoso", amount: Value = SOME) -> bytes:
    properties = properties_bytes(Properties(message_id=f"order-{number:08}", group_id=f"c{number % 10}"))
    own = section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"customer": customer, "amount": amount}))
    return stored(to_backlog(properties + own + data_section(b"%d" % number), "orders"), 10_000 + number, number)


def assert_found_as_on_foot(layouts: LayoutCache, data: bytes) -> None:
    try:
        expected = parse_layout(data)
    except Malformed:
        with pytest.raises(Malformed):
            layouts.of(data)
    else:
        assert layouts.of(data) == expected


def test_messages_that_differ_in_values_alone_share_a_layout() -> None:
    layouts = LayoutCache()
    first = layouts.of(an_order(1))
    assert layouts.of(an_order(2, "adatum!", Int(-2_000_000))) is first
    assert layouts.of(an_order(3)) == parse_layout(an_order(3))


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(an_order(2, "adatum"), id="another length"),
        pytest.param(an_order(2, amount="444"), id="another type of the same length"),
        pytest.param(an_order(2).replace(b"customer", b"Customer"), id="another key"),
        pytest.param(an_order(2).replace(b"x-ms-path", b"x-ms-part"), id="an alias that is none"),
        pytest.param(an_order(2).replace(b"x-opt-sequence-number", b"x-opt-sequence-numbeR"), id="another annotation"),
    ],
)
def test_a_message_with_another_layout_is_parsed(other: bytes) -> None:
    layouts = LayoutCache()
    first = layouts.of(an_order(1))
    assert layouts.of(other) == parse_layout(other)
    assert layouts.of(other) is not first


@examples(100)
@given(sent, paths, st.data())
def test_what_is_known_of_a_message_is_not_reported_of_a_damaged_one(
    message: Sent, path: str, more: st.DataObject
) -> None:
    data = stored(to_backlog(message.payload, path))
    layouts = LayoutCache()
    assert_found_as_on_foot(layouts, data)
    assert_found_as_on_foot(layouts, data)
    for _ in range(3):
        assert_found_as_on_foot(layouts, more.draw(mutated(st.just(data))))


def test_every_byte_that_a_layout_depends_on_is_compared() -> None:
    data = an_order(1)
    layouts = LayoutCache()
    layouts.of(data)
    for place in range(parse_layout(data).outline.body):
        for value in (0x00, 0x40, 0x41, 0xA1, 0xFF, data[place] ^ 1):
            assert_found_as_on_foot(layouts, data[:place] + bytes((value,)) + data[place + 1 :])


def test_only_ordinary_messages_have_section_starts() -> None:
    ordinary = an_order(1)
    assert section_starts(ordinary) is not None
    assert section_starts(ordinary[:-1]) is None
    assert section_starts(ordinary + data_section(b"more")) is None
    assert section_starts(properties_bytes(Properties())) is None
    assert section_starts(b"") is None


def test_what_is_remembered_is_bounded_and_learnt_now_and_then() -> None:
    layouts = LayoutCache()
    long = an_order(1, customer="x" * LONGEST_HEAD)
    assert layouts.of(long) is not layouts.of(long)
    layouts = LayoutCache()
    for length in range(MISSES_PER_ENTRY * MOST_LAYOUTS + 1):
        layouts.of(an_order(1, "x" * (length % 1500), [Int(1)] * (length // 1500)))
        assert len(layouts) <= MOST_LAYOUTS
    assert 0 < len(layouts) < MOST_LAYOUTS
