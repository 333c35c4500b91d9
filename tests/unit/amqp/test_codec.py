"""Values to bytes and back (AMQP 1.0 part 1: types)."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    decode,
    encode,
)
from syphon.amqp.decoding import MAX_DEPTH, MAX_EMPTY_ITEMS, skip
from syphon.amqp.encoding import compound
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import ITEMS, arrays, arrays_of, examples, maps, scalars, values
from tests.support.amqp_vectors import UUID, VECTORS

# --- decode after encode ---------------------------------------------------------------------------------------------


def assert_comes_back(value: Value) -> None:
    data = encode(value)
    back, end = decode(data)
    assert_same(back, value)
    assert end == len(data)
    assert skip(data, 0, len(data)) == end


@given(scalars)
@examples(400)
def test_a_primitive_comes_back_with_its_exact_type(value: Value) -> None:
    assert_comes_back(value)


@given(values)
@examples(250)
def test_any_value_comes_back_with_the_exact_types_of_all_its_parts(value: Value) -> None:
    assert_comes_back(value)


@given(maps(values))
@examples(60)
def test_a_map_comes_back_in_order_with_keys_of_any_type_and_keys_that_repeat(value: Map) -> None:
    assert_comes_back(value)


@pytest.mark.parametrize("code", ITEMS, ids=hex)
@given(data=st.data())
@examples(20)
def test_an_array_of_every_constructor_comes_back(code: int, data: st.DataObject) -> None:
    array = data.draw(arrays_of(code))
    assert_comes_back(array)
    assert_comes_back(Array(0xF0, (array, array)))
    assert_comes_back([array, Described(array, array)])


@given(arrays)
@examples(150)
def test_arrays_in_arrays_and_described_arrays_come_back(value: Array) -> None:
    assert_comes_back(value)


@pytest.mark.parametrize("code", ITEMS, ids=hex)
def test_an_empty_array_keeps_its_constructor(code: int) -> None:
    assert_comes_back(Array(code))
    assert_comes_back(Array(code, (), Symbol("of:these"), True))
    assert_comes_back(Array(code, (), None, True))


@pytest.mark.parametrize(
    "value",
    [
        *(UByte(n) for n in (0, 1, 255)),
        *(UShort(n) for n in (0, 255, 256, 2**16 - 1)),
        *(UInt(n) for n in (0, 1, 255, 256, 2**32 - 1)),
        *(ULong(n) for n in (0, 1, 255, 256, 2**64 - 1)),
        *(Byte(n) for n in (-128, -1, 0, 127)),
        *(Short(n) for n in (-(2**15), -129, -1, 0, 128, 2**15 - 1)),
        *(Int(n) for n in (-(2**31), -129, -128, -1, 0, 127, 128, 2**31 - 1)),
        *(Long(n) for n in (-(2**63), -129, -128, -1, 0, 127, 128, 2**63 - 1)),
        *(Timestamp(n) for n in (-(2**63), -1, 0, 2**63 - 1)),
        *(Char(n) for n in (0, 0xD800, 0x10FFFF, 2**32 - 1)),
        *(make(n) for make in (Float, float) for n in (0.0, -0.0, math.inf, -math.inf, math.nan, 0.5)),
        *(make * n for make in ("x", b"x", [None]) for n in (0, 1, 253, 254, 255, 256, 65536)),
        *(Symbol("x" * n) for n in (0, 1, 255, 256)),
        "é" * 127,
        "é" * 128,
        "\U0001f600",
        "\x00",
        *(Map(((None, None),) * n) for n in (0, 1, 127, 128, 1000)),
        *(Array(0x50, (UByte(7),) * n) for n in (0, 1, 255, 256, 65536)),
        Array(0x40, (None,) * MAX_EMPTY_ITEMS),
    ],
    ids=lambda value: f"{type(value).__name__} {value!r:.20}",
)
def test_values_at_the_edges_of_their_types_and_encodings_come_back(value: Value) -> None:
    assert_comes_back(value)


def test_nesting_comes_back_up_to_the_limit() -> None:
    nested: Value = Int(1)
    for depth in range(MAX_DEPTH):
        nested = [nested] if depth % 3 else Described(ULong(1), nested)
    assert_comes_back(nested)


# --- hand-written bytes ----------------------------------------------------------------------------------------------

VECTOR = pytest.mark.parametrize(
    ("raw", "value"), [pytest.param(bytes.fromhex(raw), value, id=name) for name, raw, value in VECTORS]
)


@VECTOR
def test_every_encoding_of_the_specification_is_read(raw: bytes, value: Value) -> None:
    back, end = decode(raw)
    assert_same(back, value)
    assert end == len(raw)


@VECTOR
def test_a_value_is_read_where_it_stands_and_not_beyond(raw: bytes, value: Value) -> None:
    around = b"\xff\xff" + raw + b"\x00\xff"
    back, end = decode(around, 2)
    assert_same(back, value)
    assert end == 2 + len(raw) == skip(around, 2, len(around))


@VECTOR
def test_what_was_read_is_written_in_no_more_bytes_and_read_again(raw: bytes, value: Value) -> None:
    written = encode(value)
    # Arrays are always written in their long form: eight bytes instead of two.
    assert len(written) <= len(raw) + (8 if raw[0] == 0xE0 else 0)
    assert_same(decode(written)[0], value)


def test_there_is_a_vector_for_every_constructor() -> None:
    assert {bytes.fromhex(raw)[0] for _, raw, _ in VECTORS} == {*ITEMS, 0}


@pytest.mark.parametrize(
    ("value", "raw"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (UInt(0), "43"),
        (ULong(0), "44"),
        ([], "45"),
        (UByte(0), "50 00"),
        (Byte(-1), "51 ff"),
        (UInt(1), "52 01"),
        (UInt(255), "52 ff"),
        (UInt(256), "70 00000100"),
        (ULong(1), "53 01"),
        (ULong(255), "53 ff"),
        (ULong(256), "80 0000000000000100"),
        (Int(-128), "54 80"),
        (Int(127), "54 7f"),
        (Int(128), "71 00000080"),
        (Int(-129), "71 ffffff7f"),
        (Long(-128), "55 80"),
        (Long(127), "55 7f"),
        (Long(128), "81 0000000000000080"),
        (UShort(1), "60 0001"),
        (Short(-1), "61 ffff"),
        (Float(1.0), "72 3f800000"),
        (1.0, "82 3ff0000000000000"),
        (Char(65), "73 00000041"),
        (Timestamp(1), "83 0000000000000001"),
        (UUID, "98" + UUID.hex),
        (Decimal32(b"1234"), "74 31323334"),
        (Decimal64(b"12345678"), "84 3132333435363738"),
        (Decimal128(b"1234567812345678"), "94 31323334353637383132333435363738"),
        (b"ab", "a0 02 6162"),
        ("ab", "a1 02 6162"),
        (Symbol("ab"), "a3 02 6162"),
        (b"", "a0 00"),
        ("", "a1 00"),
        ([None], "c0 02 01 40"),
        (Map(((True, False),)), "c1 03 02 41 42"),
        (Map(), "c1 01 00"),
        (Described(ULong(0x77), None), "00 53 77 40"),
        (Array(0x50, (UByte(7),)), "f0 00000006 00000001 50 07"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{type(value).__name__} {value!r:.20}",
)
def test_a_value_is_written_in_the_shortest_form_of_its_type(value: Value, raw: str) -> None:
    assert encode(value) == bytes.fromhex(raw)


@pytest.mark.parametrize(
    ("count", "size", "head"),
    [
        (255, 254, b"\xc0\xff\xff"),
        (1, 254, b"\xc0\xff\x01"),
        (1, 255, b"\xd0" + struct.pack(">II", 259, 1)),
        (256, 254, b"\xd0" + struct.pack(">II", 258, 256)),
    ],
)
def test_a_list_takes_its_long_form_when_a_size_or_a_count_needs_it(count: int, size: int, head: bytes) -> None:
    body = bytes(size)
    assert compound(0xC0, count, body) == head + body


# --- what cannot be written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1, (), {}, bytearray(), 1j, object(), [1], Map((("a", 1),)), Array(0xD0, ([1],))])
def test_a_value_without_an_amqp_type_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError, match="is not an AMQP type"):
        encode(value)


@pytest.mark.parametrize(
    "value",
    [
        UByte(-1),
        UByte(256),
        UShort(-1),
        UShort(2**16),
        UInt(-1),
        UInt(2**32),
        ULong(-1),
        ULong(2**64),
        Byte(-129),
        Byte(128),
        Short(2**15),
        Int(2**31),
        Int(-(2**31) - 1),
        Long(2**63),
        Timestamp(2**63),
        Char(-1),
        Char(2**32),
        Float(1e39),
        Decimal32(b"123"),
        Decimal64(b""),
        Decimal128(b"1" * 17),
        Symbol("é"),
        "\ud800",
        [UByte(-1)],
        Map((("a", Int(2**31)),)),
    ],
    ids=lambda value: f"{type(value).__name__} {value!r:.20}",
)
def test_a_value_outside_the_range_of_its_type_is_not_written(value: Value) -> None:
    with pytest.raises(ValueError, match=r"fit|has .* bytes|codec can't encode"):
        encode(value)


@pytest.mark.parametrize(
    ("code", "item"),
    [
        (0x71, Long(1)),
        (0x71, True),
        (0x71, None),
        (0x41, False),
        (0x42, True),
        (0x40, False),
        (0x43, UInt(1)),
        (0x44, ULong(1)),
        (0x44, UInt(0)),
        (0x45, [None]),
        (0x52, UInt(256)),
        (0x53, ULong(256)),
        (0x54, Int(128)),
        (0x55, Long(-129)),
        (0x56, Int(1)),
        (0x72, Float(1e39)),
        (0x72, 1.0),
        (0x82, Float(1)),
        (0x74, Decimal32(b"1")),
        (0x74, Int(4)),
        (0x74, b"1234"),
        (0x98, b"1" * 16),
        (0xA0, b"1" * 256),
        (0xA0, Decimal32(b"1234")),
        (0xA1, "1" * 256),
        (0xA1, Int(1)),
        (0xA1, b"a"),
        (0xA3, Symbol("1" * 256)),
        (0xA3, b"a"),
        (0xC0, [b"1" * 255]),
        (0xC0, Map()),
        (0xC0, "ab"),
        (0xC1, []),
        (0xE0, Array(0xA0, (b"1" * 255,))),
        (0xE0, []),
        (0xF0, Array(0x71, (Long(1),))),
        (0x00, None),
        (0x3F, None),
        (0x100, None),
    ],
    ids=lambda value: f"{value!r:.25}",
)
def test_an_array_does_not_take_an_item_that_its_constructor_cannot_hold(code: int, item: Value) -> None:
    with pytest.raises(
        ValueError, match=r"into an array of|not a constructor that an array can have|Decimal32 has 4 bytes"
    ):
        encode(Array(code, (item,)))


def test_an_array_takes_strings_for_symbols_and_symbols_for_strings_as_its_constructor_says_what_is_meant() -> None:
    assert_same(decode(encode(Array(0xA3, ("PLAIN",))))[0], Array(0xA3, (Symbol("PLAIN"),)))
    assert_same(decode(encode(Array(0xB1, (Symbol("PLAIN"),))))[0], Array(0xB1, ("PLAIN",)))


def test_an_array_of_more_empty_items_than_decode_accepts_is_not_written() -> None:
    with pytest.raises(ValueError, match="at most"):
        encode(Array(0x40, (None,) * (MAX_EMPTY_ITEMS + 1)))


# --- skip ------------------------------------------------------------------------------------------------------------


@given(st.lists(values, min_size=1, max_size=4))
@examples(80)
def test_skip_finds_the_same_ends_as_decode_in_a_row_of_values(row: list[Value]) -> None:
    data = b"".join(map(encode, row))
    pos = 0
    for value in row:
        back, end = decode(data, pos)
        assert_same(back, value)
        assert skip(data, pos, len(data)) == end
        pos = end
    assert pos == len(data)


@pytest.mark.parametrize(
    "raw", ["a1 01 ff", "a3 01 ff", "56 02", "c0 02 ff 40", "c1 02 01 40", "e0 02 ff 3f", "c0 01 01"]
)
def test_skip_does_not_look_inside(raw: str) -> None:
    data = bytes.fromhex(raw)
    assert skip(data, 0, len(data)) == len(data)
