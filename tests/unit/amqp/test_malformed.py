"""Bytes that are not AMQP, by accident or by intent: `Malformed` and nothing else, in memory that fits the input."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Malformed, Message, Section, Value, batch_parts, decode, encode, split
from syphon.amqp.decoding import MAX_DEPTH, MAX_EMPTY_ITEMS, skip
from syphon.amqp.frames import read_performative
from tests.fuzz.targets import a_value_is_read_or_malformed
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import ITEMS, examples, mutated, noise, values

# --- bytes that went wrong -------------------------------------------------------------------------------------------


@given(values)
@examples(60)
def test_a_value_that_is_cut_short_is_malformed_wherever_the_cut_is(value: Value) -> None:
    data = encode(value)
    for cut in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:cut])
        with pytest.raises(Malformed):
            decode(data, 0, cut)  # the rest is there, but beyond `end`
        with pytest.raises(Malformed):
            skip(data, 0, cut)


@given(noise)
@examples(600)
def test_random_bytes_are_a_value_or_malformed(data: bytes) -> None:
    a_value_is_read_or_malformed(data)


@given(mutated(values.map(encode)))
@examples(300)
def test_a_damaged_value_is_a_value_or_malformed(data: bytes) -> None:
    a_value_is_read_or_malformed(data)


@given(mutated(values.map(encode)), st.integers(0, 10))
@examples(200)
def test_no_byte_after_the_end_is_read(data: bytes, cut: int) -> None:
    end = max(0, len(data) - cut)

    def outcome(*args: Any) -> Any:
        try:
            return decode(*args)
        except Malformed:
            return None

    assert_same(outcome(data, 0, end), outcome(data[:end]))


def test_a_constructor_that_the_specification_does_not_know_is_malformed() -> None:
    for code in set(range(1, 256)) - set(ITEMS):
        data = bytes((code,)) + b"\x00\x00\x00\x04\x00\x00\x00\x00" + bytes(16)
        with pytest.raises(Malformed, match=f"0x{code:02x} at byte 0 is not an AMQP type"):
            decode(data)
        with pytest.raises(Malformed, match=f"0x{code:02x} at byte 0 is not an AMQP type"):
            skip(data, 0, len(data))
        with pytest.raises(Malformed, match=f"0x{code:02x} at byte 3 is not an AMQP type that an array can have"):
            decode(b"\xe0\x04\x01" + bytes((code,)) + b"\x00\x00")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("", "the data ends"),
        ("00", "the data ends"),
        ("00 43", "the data ends"),
        ("56 02", "0 or 1"),
        ("a1 01 ff", "not UTF-8"),
        ("a1 03 ed a0 80", "not UTF-8"),
        ("b1 00000001 80", "not UTF-8"),
        ("a3 01 80", "not ASCII"),
        ("b3 00000001 ff", "not ASCII"),
        ("e0 04 01 a3 01 80", "not ASCII"),
        ("70 00 00 00", "cut short"),
        ("98 00", "16 bytes"),
        ("a0 01", "past the end"),
        ("b0 00 00", "past the end"),
        ("c0 00", "does not fit"),
        ("c0 00 00", "does not fit"),
        ("d0 00000003 000000", "does not fit"),
        ("c0 02 01", "does not fit"),
        ("c0 01 01", "cannot fit"),
        ("c0 02 00 40", "too many"),
        ("c0 03 01 40 40", "too many"),
        ("c0 03 02 53 01", "the data ends"),
        ("c0 02 01 53 01", "past its end"),
        ("c0 02 01 70 00 00 00 01", "past its end"),
        ("c1 02 01 40", "key without a value"),
        ("c1 04 03 40 40 40", "key without a value"),
        ("e0 01 01", "has no constructor"),
        ("e0 03 00 00 40", "has no constructor"),
        ("e0 02 01 00", "the data ends"),
        ("e0 02 01 50 07", "claims 1 items in 0 bytes"),
        ("e0 04 01 50 07 08", "does not match"),
        ("e0 03 01 60 00 00", "does not match"),
        ("e0 04 02 00 40 00", "not an AMQP type that an array can have"),
        ("e0 03 01 56 02", "0 or 1"),
        ("e0 03 00 40 40", "does not match"),
        ("e0 04 01 a0 05 00", "past the end"),
    ],
)
def test_a_mistake_is_named(raw: str, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        decode(bytes.fromhex(raw))


def test_malformed_is_a_value_error_so_that_careless_callers_still_catch_it() -> None:
    assert issubclass(Malformed, ValueError)


# --- bytes that were made to do harm ---------------------------------------------------------------------------------

SLACK = 64 * 1024
"""The memory of an exception, its traceback and the interpreter, for any input."""


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def long_form(code: int, count: int, body: bytes) -> bytes:
    return bytes((code,)) + struct.pack(">II", len(body) + 4, count) + body


HUGE = 2**32 - 1
CLAIMS = {
    "a list of 4 billion items": long_form(0xD0, HUGE, b"\x40" * 100),
    "a list of 4 billion items and none there": long_form(0xD0, HUGE, b""),
    "a map of 4 billion items": long_form(0xD1, HUGE - 1, b"\x40" * 100),
    "a list that is 4 GB long": b"\xd0\xff\xff\xff\xff\x00\x00\x00\x01\x40",
    "a map that is 4 GB long": b"\xd1\xff\xff\xff\xff\x00\x00\x00\x02\x40\x40",
    "an array that is 4 GB long": b"\xf0\xff\xff\xff\xff\x00\x00\x00\x01\x40",
    "a binary that is 4 GB long": b"\xb0\xff\xff\xff\xff\x00",
    "a string that is 4 GB long": b"\xb1\xff\xff\xff\xff\x00",
    "a symbol that is 4 GB long": b"\xb3\xff\xff\xff\xff\x00",
    "an array of 4 billion bytes": long_form(0xF0, HUGE, b"\x50" + bytes(100)),
    "an array of 4 billion nulls": long_form(0xF0, HUGE, b"\x40"),
    "an array of 4 billion trues": long_form(0xF0, HUGE, b"\x41"),
    "an array of 4 billion zeroes": long_form(0xF0, HUGE, b"\x43"),
    "an array of 4 billion empty lists": long_form(0xF0, HUGE, b"\x45"),
    "an array of one null too many": long_form(0xF0, MAX_EMPTY_ITEMS + 1, b"\x40"),
    "a described array of 4 billion nulls": long_form(0xF0, HUGE, b"\x00\x43\x40"),
    "an array of arrays of 4 billion nulls": long_form(0xF0, 1, b"\xf0" + long_form(0xF0, HUGE, b"\x40")[1:]),
    "a list of 4 billion items in an array": long_form(0xF0, 1, b"\xd0" + long_form(0xD0, HUGE, b"\x40")[1:]),
    "a list of 4 billion items in a list": long_form(0xD0, 1, long_form(0xD0, HUGE, b"\x40")),
    "a list of 4 billion items in a map": long_form(0xD1, 2, b"\x40" + long_form(0xD0, HUGE, b"\x40")),
}
CLAIM = pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in CLAIMS.items()])


@CLAIM
def test_a_size_or_count_allocates_no_memory_before_the_bytes_have_arrived(data: bytes) -> None:
    def attempt() -> None:
        with pytest.raises(Malformed):
            decode(data)

    assert peak(attempt) < SLACK


@CLAIM
def test_a_frame_or_a_section_that_claims_too_much_costs_nothing_either(data: bytes) -> None:
    def attempt() -> None:
        with pytest.raises(Malformed):
            read_performative(b"\x00\x53\x14" + data)
        with pytest.raises(Malformed):
            read_performative(b"\x00" + data + b"\x45")
        with pytest.raises(Malformed):
            split(b"\x00" + data + b"\x45")
        with pytest.raises(Malformed):
            Message(b"\x00\x53\x72" + data).annotations()
        with pytest.raises(Malformed):
            batch_parts(b"\x00\x53\x75" + data)

    assert peak(attempt) < SLACK


MANY = 5000
_NULLS = bytes((2, MAX_EMPTY_ITEMS, 0x40))
_LISTS = bytes((2, MAX_EMPTY_ITEMS, 0x45))
BOMBS = {
    "a list of empty lists": long_form(0xD0, MANY, b"\x45" * MANY),
    "a list of empty symbols": long_form(0xD0, MANY, b"\xa3\x00" * MANY),
    "a list of empty maps": long_form(0xD0, MANY, b"\xc1\x01\x00" * MANY),
    "a list of described nulls": long_form(0xD0, MANY, b"\x00\x40\x40" * MANY),
    "a map of nulls": long_form(0xD1, MANY, b"\x40" * MANY),
    "an array of empty symbols": long_form(0xF0, MANY, b"\xa3" + b"\x00" * MANY),
    "an array of bytes": long_form(0xF0, MANY, b"\x50" + b"\x07" * MANY),
    "an array of empty lists": long_form(0xF0, MANY, b"\xc0" + b"\x01\x00" * MANY),
    "a list of arrays of nulls": long_form(0xD0, MANY, (b"\xe0" + _NULLS) * MANY),
    "a list of arrays of empty lists": long_form(0xD0, MANY, (b"\xe0" + _LISTS) * MANY),
    "an array of arrays of nulls": long_form(0xF0, MANY, b"\xe0" + _NULLS * MANY),
    "an array of arrays of empty lists": long_form(0xF0, MANY, b"\xe0" + _LISTS * MANY),
    "an array of arrays of arrays of nulls": long_form(
        0xF0, MANY // 40, b"\xe0" + (b"\x7a\x28\xe0" + _NULLS * 40) * (MANY // 40)
    ),
}


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in BOMBS.items()])
def test_even_the_densest_value_takes_memory_in_proportion_to_its_bytes(data: bytes) -> None:
    assert decode(data)[1] == len(data)
    assert peak(lambda: decode(data)) < 256 * len(data) + SLACK


DEEP = 100_000


def nested(code: int, levels: int, key: bytes = b"") -> bytes:
    """Lists in lists, or maps in maps as values of `key`, around a null."""
    level = 9 + len(key)
    heads = (
        bytes((code,)) + struct.pack(">II", 4 + len(key) + level * inside + 1, 2 if key else 1) + key
        for inside in reversed(range(levels))
    )
    return b"".join(heads) + b"\x40"


def nested_arrays(levels: int) -> bytes:
    """Arrays of arrays, around one of a null."""
    heads = (struct.pack(">IIB", 5 + 9 * inside, 1, 0xF0 if inside else 0x40) for inside in reversed(range(levels)))
    return b"\xf0" + b"".join(heads)


def nested_descriptors(levels: int) -> bytes:
    return b"\x00" * levels + b"\x40" * (levels + 1)


def nested_descriptions(levels: int) -> bytes:
    return b"\x00\x43" * levels + b"\x40"


def nested_array_descriptors(levels: int) -> bytes:
    """Arrays whose descriptor is an array whose descriptor is an array…"""
    heads = (b"\xf0" + struct.pack(">II", 11 * inside + 7, 0) + b"\x00" for inside in reversed(range(levels)))
    return b"".join(heads) + b"\x43" + b"\x40" * levels


SHAPES: dict[str, Callable[[int], bytes]] = {
    "lists": lambda levels: nested(0xD0, levels),
    "maps": lambda levels: nested(0xD1, levels, b"\x43"),
    "arrays": nested_arrays,
    "descriptors": nested_descriptors,
    "described values": nested_descriptions,
    "descriptors of arrays": nested_array_descriptors,
}
SHAPE = pytest.mark.parametrize("shape", [pytest.param(shape, id=name) for name, shape in SHAPES.items()])


@SHAPE
def test_nesting_is_read_up_to_a_depth_and_malformed_beyond(shape: Callable[[int], bytes]) -> None:
    data = shape(MAX_DEPTH)
    value, end = decode(data)
    assert end == len(data)
    assert_same(decode(encode(value))[0], value)
    with pytest.raises(Malformed, match="nested deeper"):
        decode(shape(MAX_DEPTH + 1))


@SHAPE
def test_nesting_a_hundred_thousand_deep_is_malformed_and_exhausts_neither_stack_nor_memory(
    shape: Callable[[int], bytes],
) -> None:
    data = shape(DEEP)

    def attempt() -> None:
        with pytest.raises(Malformed, match="nested deeper"):
            decode(data)
        with pytest.raises(Malformed, match="nested deeper"):
            read_performative(b"\x00" + data)
        with pytest.raises(Malformed, match="nested deeper"):
            split(b"\x00" + data)
        with pytest.raises(Malformed, match="nested deeper"):
            Message(b"\x00\x53\x72" + data).read(Section.MESSAGE_ANNOTATIONS)

    assert peak(attempt) < len(data) * 2 + SLACK * 8


@pytest.mark.parametrize("shape", [nested_descriptors, nested_descriptions])
def test_skip_follows_descriptors_only_so_deep(shape: Callable[[int], bytes]) -> None:
    data = shape(MAX_DEPTH)
    assert skip(data, 0, len(data)) == len(data)
    data = shape(DEEP)
    with pytest.raises(Malformed, match="nested deeper"):
        skip(data, 0, len(data))


def test_skip_passes_over_deep_lists_by_their_length_alone() -> None:
    data = nested(0xD0, DEEP)
    assert skip(data, 0, len(data)) == len(data)
