"""The helpers of Map, and the comparison that all other tests here rely on."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest
from hypothesis import given

from syphon.amqp import Array, Described, Float, Int, Long, Map, Symbol, UInt, ULong, Value
from syphon.amqp.frames import Accepted, Error, Released
from tests.support.amqp_equality import assert_same, same
from tests.support.amqp_strategies import examples, values


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Int(1), Long(1)),
        (True, Int(1)),
        (True, 1),
        (False, None),
        (1.0, Float(1.0)),
        (1.0, Int(1)),
        (0.0, -0.0),
        (math.nan, 1.0),
        ("a", Symbol("a")),
        ("a", b"a"),
        ([Int(1)], [Long(1)]),
        ([], Map()),
        ([None], []),
        (Map(((Int(1), None),)), Map(((Long(1), None),))),
        (Map((("a", UInt(1)),)), Map((("a", ULong(1)),))),
        (Array(0x40), Array(0x41)),
        (Array(0x71, (Int(1),)), Array(0x71, (Long(1),))),
        (Array(0x40), Array(0x40, (), None, True)),
        (Array(0x40, (), Int(1), True), Array(0x40, (), Long(1), True)),
        (Described(Symbol("a"), None), Described("a", None)),
        (Described(None, Int(1)), Described(None, Long(1))),
        (uuid.UUID(int=1), uuid.UUID(int=2)),
        (Accepted(), Released()),
        (Error(Symbol("a")), Error("a")),
    ],
)
def test_values_that_differ_in_value_or_type_are_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert not same([one], [other])


@given(values)
@examples(100)
def test_every_value_is_the_same_as_itself_even_if_it_holds_no_number(value: Value) -> None:
    assert_same(value, value)
    assert_same([math.nan, Float(math.nan)], [math.nan, Float(math.nan)])


def test_a_map_finds_an_entry_under_a_string_or_a_symbol() -> None:
    entries = Map(((Int(1), "no"), (Symbol("a"), Int(1)), ("b", None), ("a", Int(2))))
    assert_same(entries.get("a"), Int(1))
    assert entries.get("b") is None
    assert entries.get("c") is None
    assert "a" in entries
    assert "b" in entries
    assert "c" not in entries


def test_a_map_is_made_with_string_keys_or_with_symbol_keys() -> None:
    assert_same(Map.of({"a": Int(1)}), Map((("a", Int(1)),)))
    assert_same(Map.symbols({"a": Int(1)}), Map(((Symbol("a"), Int(1)),)))


def test_a_map_counts_and_gives_its_pairs_in_order() -> None:
    pairs: tuple[tuple[Value, Value], ...] = (("b", None), ("a", True), ("b", False))
    assert len(Map(pairs)) == 3
    assert list(Map(pairs)) == list(pairs)
