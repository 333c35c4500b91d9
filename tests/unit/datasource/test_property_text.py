"""AMQP values as text and back: every type, exactly."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given

from syphon.amqp import Array, Char, Decimal128, Described, Float, Int, Long, Symbol, Timestamp, UInt, Value
from syphon.datasource.property_text import UnreadableText, text_of, value_of
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import values
from tests.support.property_kinds import TYPES


@given(values)
def test_every_value_is_the_same_after_a_way_through_text(value: Value) -> None:
    text, kind = text_of(value)
    assert_same(value_of(text, kind), value)


@pytest.mark.parametrize(
    ("value", "text", "kind"),
    [
        ("ärger", "ärger", "string"),
        (None, None, "null"),
        (True, "true", "boolean"),
        (Int(-5), "-5", "int"),
        (Long(2**40), "1099511627776", "long"),
        (Float(1.5), "1.5", "float"),
        (1e300, "1e+300", "double"),
        (Decimal128(bytes(16)), "00" * 16, "decimal128"),
        (Char(0x20AC), "€", "char"),
        (Char(0xD800), "U+D800", "char"),
        (Timestamp(1_700_000_000_123), "2023-11-14T22:13:20.123Z", "timestamp"),
        (Timestamp(2**62), str(2**62), "timestamp"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007", "uuid"),
        (b"\xff\xfe", "//4=", "binary"),
        (Symbol("sym"), "sym", "symbol"),
        (Described(Symbol("com.microsoft:timespan"), Long(36)), "36", "com.microsoft:timespan(long)"),
        (Array(0x70, (UInt(1),)), "8AAAAAkAAAABcAAAAAE=", "amqp"),
    ],
)
def test_texts_are_what_people_expect(value: Value, text: str | None, kind: str) -> None:
    assert text_of(value) == (text, kind)


def test_every_kind_of_property_has_its_own_type() -> None:
    kinds = [text_of(value)[1] for value in TYPES.values()]
    assert len(set(kinds)) == len(kinds)
    assert "amqp" not in kinds


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("five", "int", "'five' is not a valid int"),
        ("256", "ubyte", "'256' is not a valid ubyte"),
        ("-1", "ulong", "is not a valid ulong"),
        ("1_000", "long", "is not a valid long"),
        ("yes", "boolean", "is not a valid boolean"),
        ("now", "timestamp", "is not a valid timestamp"),
        ("AB", "char", "is not a valid char"),
        ("ü", "symbol", "is not a valid symbol"),
        ("%", "binary", "is not a valid binary"),
        ("/w==", "amqp", "is not a valid amqp"),
        ("00", "decimal128", "is not a valid decimal128"),
        ("x", "varchar", "'varchar' is not the name of an AMQP type"),
        (None, "int", "no value"),
        ("x", "null", "is given as null"),
    ],
)
def test_a_text_that_is_no_such_value_is_refused_with_the_reason(text: str | None, kind: str, words: str) -> None:
    with pytest.raises(UnreadableText, match=words):
        value_of(text, kind)


def test_a_time_may_have_any_zone_and_none_means_utc() -> None:
    assert value_of("2023-11-14T23:13:20.123+01:00", "timestamp") == 1_700_000_000_123
    assert value_of("2023-11-14T22:13:20", "timestamp") == 1_700_000_000_000
