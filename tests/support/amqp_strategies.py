"""AMQP values, messages and broken bytes for hypothesis to draw."""

from __future__ import annotations

import struct
from collections.abc import Callable

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

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
    Section,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    encode,
)

Values = SearchStrategy[Value]


def examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


# --- values ----------------------------------------------------------------------------------------------------------


def _integers(make: Callable[[int], Value], low: int, high: int) -> Values:
    """Any number of a type; the limits of its encodings more often than by chance."""
    edges = sorted(
        {
            edge
            for base in (0, 127, 128, 255, 256, -128, -129, low, high)
            for edge in (base - 1, base, base + 1)
            if low <= edge <= high
        }
    )
    return st.one_of(st.integers(low, high), st.sampled_from(edges)).map(make)


ubytes: Values = _integers(UByte, 0, 2**8 - 1)
ushorts: Values = _integers(UShort, 0, 2**16 - 1)
uints: Values = _integers(UInt, 0, 2**32 - 1)
ulongs: Values = _integers(ULong, 0, 2**64 - 1)
byte_values: Values = _integers(Byte, -(2**7), 2**7 - 1)
shorts: Values = _integers(Short, -(2**15), 2**15 - 1)
ints: Values = _integers(Int, -(2**31), 2**31 - 1)
longs: Values = _integers(Long, -(2**63), 2**63 - 1)
timestamps: Values = _integers(Timestamp, -(2**63), 2**63 - 1)
chars: Values = _integers(Char, 0, 2**32 - 1)
floats: Values = st.floats(width=32).map(Float)
doubles: Values = st.floats()
booleans: Values = st.booleans()
decimals32: Values = st.binary(min_size=4, max_size=4).map(Decimal32)
decimals64: Values = st.binary(min_size=8, max_size=8).map(Decimal64)
decimals128: Values = st.binary(min_size=16, max_size=16).map(Decimal128)
uuids: Values = st.uuids()
long_enough = st.integers(250, 260)
"""Lengths around the limit of one length byte."""
binaries: Values = st.one_of(st.binary(max_size=20), long_enough.map(lambda size: b"\xff" * size))
ascii_text = st.text(st.characters(min_codepoint=0, max_codepoint=127), max_size=20)
strings: Values = st.one_of(st.text(max_size=20), long_enough.map(lambda size: "é" + "x" * (size - 2)))
symbols: Values = st.one_of(ascii_text, long_enough.map(lambda size: "s" * size)).map(Symbol)

scalars: Values = st.one_of(
    st.none(),
    booleans,
    ubytes,
    ushorts,
    uints,
    ulongs,
    byte_values,
    shorts,
    ints,
    longs,
    floats,
    doubles,
    decimals32,
    decimals64,
    decimals128,
    chars,
    timestamps,
    uuids,
    binaries,
    strings,
    symbols,
)


def maps(inner: Values) -> SearchStrategy[Map]:
    """Keys of any type; sometimes one of them twice."""
    pairs = st.lists(st.tuples(inner, inner), max_size=4)
    return st.builds(lambda found, again: Map(tuple(found + found[:again])), pairs, st.integers(0, 1))


_tiny: Values = st.one_of(st.none(), booleans, ubytes, longs, ascii_text)
_tiny_arrays: Values = st.lists(ubytes, max_size=4).map(lambda items: Array(0x50, tuple(items)))

ITEMS: dict[int, Values] = {
    0x40: st.none(),
    0x41: st.just(True),
    0x42: st.just(False),
    0x56: booleans,
    0x50: ubytes,
    0x60: ushorts,
    0x43: st.just(UInt(0)),
    0x52: st.integers(0, 255).map(UInt),
    0x70: uints,
    0x44: st.just(ULong(0)),
    0x53: st.integers(0, 255).map(ULong),
    0x80: ulongs,
    0x51: byte_values,
    0x61: shorts,
    0x54: st.integers(-128, 127).map(Int),
    0x71: ints,
    0x55: st.integers(-128, 127).map(Long),
    0x81: longs,
    0x72: floats,
    0x82: doubles,
    0x74: decimals32,
    0x84: decimals64,
    0x94: decimals128,
    0x73: chars,
    0x83: timestamps,
    0x98: uuids,
    0xA0: st.binary(max_size=255),
    0xB0: binaries,
    0xA1: st.text(max_size=63),
    0xB1: strings,
    0xA3: ascii_text.map(Symbol),
    0xB3: symbols,
    0x45: st.builds(list),
    0xC0: st.lists(_tiny, max_size=4),
    0xD0: st.deferred(lambda: st.lists(values, max_size=3)),
    0xC1: maps(_tiny),
    0xD1: st.deferred(lambda: maps(values)),
    0xE0: _tiny_arrays,
    0xF0: st.deferred(lambda: arrays),
}
"""For every constructor an array can have, the items it can have."""


def arrays_of(code: int) -> SearchStrategy[Array]:
    items = st.lists(ITEMS[code], max_size=4).map(tuple)
    plain = st.builds(Array, st.just(code), items)
    return st.one_of(plain, st.builds(Array, st.just(code), items, _descriptors, st.just(True)))


_descriptors: Values = st.one_of(st.none(), ulongs, symbols, st.lists(ints, max_size=2))
_arrays_by_code = {code: arrays_of(code) for code in ITEMS}
arrays: SearchStrategy[Array] = st.sampled_from(sorted(ITEMS)).flatmap(lambda code: _arrays_by_code[code])


def _deeper(inner: Values) -> Values:
    return st.one_of(st.lists(inner, max_size=5), maps(inner), st.builds(Described, inner, inner))


values: Values = st.recursive(st.one_of(scalars, arrays), _deeper, max_leaves=8)


# --- damaged bytes ----------------------------------------------------------------------------------


@st.composite
def mutated(draw: st.DrawFn, source: SearchStrategy[bytes]) -> bytes:
    """Valid bytes with a few of them changed, removed, doubled or added."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["change", "cut", "double", "insert", "end"])):
            case "change" if data:
                data[place] = draw(_bytes)
            case "cut":
                del data[place : place + draw(st.integers(1, 4))]
            case "double":
                data[place:place] = data[place : place + draw(st.integers(1, 8))]
            case "insert":
                data[place:place] = bytes((draw(_bytes),))
            case _:
                del data[place:]
    return bytes(data)


_constructors = sorted(ITEMS)
_bytes = st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 127, 128, 255, *_constructors]))
noise: SearchStrategy[bytes] = st.one_of(st.binary(max_size=60), st.lists(_bytes, max_size=60).map(bytes))
"""Random bytes, and random bytes that resemble AMQP."""


# --- messages --------------------------------------------------------------------------------------------------------

Parts = list[tuple[Section, bytes]]

SYMBOLIC = {
    Section.HEADER: b"amqp:header:list",
    Section.DELIVERY_ANNOTATIONS: b"amqp:delivery-annotations:map",
    Section.MESSAGE_ANNOTATIONS: b"amqp:message-annotations:map",
    Section.PROPERTIES: b"amqp:properties:list",
    Section.APPLICATION_PROPERTIES: b"amqp:application-properties:map",
    Section.DATA: b"amqp:data:binary",
    Section.SEQUENCE: b"amqp:amqp-sequence:list",
    Section.VALUE: b"amqp:amqp-value:*",
    Section.FOOTER: b"amqp:footer:map",
}


def descriptors(section: Section) -> list[bytes]:
    """Every encoding of a section's descriptor, the most frequent first."""
    name = SYMBOLIC[section]
    return [
        b"\x00\x53" + bytes((section,)),
        b"\x00\x80" + struct.pack(">Q", section),
        b"\x00\xa3" + bytes((len(name),)) + name,
        b"\x00\xb3" + struct.pack(">I", len(name)) + name,
    ]


def _unreadable(raw: bytes, kind: int) -> bytes:
    return (
        b"\xb1" + struct.pack(">I", len(raw) + 1) + b"\xff" + raw,  # a string that is not UTF-8
        b"\xd0" + struct.pack(">II", len(raw) + 4, 2**32 - 1) + raw,  # a list of far too many items
        b"\xc1" + bytes((len(raw) + 1, 3)) + raw,  # a map with a key too many
        b"\xe0" + bytes((len(raw) + 3, 200, 0x3F, 0x3F)) + raw,  # an array of no type
    )[kind]


unreadable: SearchStrategy[bytes] = st.builds(_unreadable, st.binary(min_size=1, max_size=20), st.integers(0, 3))
"""Values with a correct length and invalid content."""


def _section(section: Section, content: SearchStrategy[bytes]) -> SearchStrategy[tuple[Section, bytes]]:
    usual, *others = descriptors(section)
    described = st.sampled_from([usual, usual, usual, *others])
    return st.tuples(described, content).map(lambda parts: (section, b"".join(parts)))


def _forms(*forms: str | bytes) -> SearchStrategy[bytes]:
    return st.sampled_from([form if isinstance(form, bytes) else bytes.fromhex(form) for form in forms])


# Splitting a message depends on the length and the form of a section, and hardly on its content.
_fields = _forms(
    "45",
    "c0 01 00",
    "d0 00000004 00000000",
    "c0 05 03 40 41 a1 00",
    "c0 03 01 52 07",
    "d0 00000005 00000001 40",
    encode([None, "x" * 300]),
    encode([Symbol("s"), [Map()], Described(ULong(0x70), [])]),
)
_entries = _forms(
    "c1 01 00",
    "d1 00000004 00000000",
    "c1 06 02 a3 01 61 54 07",
    "d1 00000009 00000002 a3 01 61 54 07",
    "c1 05 04 41 40 41 42",
    encode(Map.symbols({"a": "x" * 300, "b": Timestamp(5)})),
    encode(Map(((Int(1), Described(Symbol("com.microsoft:timespan"), Long(5))), (None, [Array(0x40)])))),
)
_binary = _forms("a0 00", "a0 03 00 53 75", "b0 00000002 00 53", encode(b"\x00" * 300))
_around_the_body = {
    Section.HEADER: _fields,
    Section.DELIVERY_ANNOTATIONS: _entries,
    Section.MESSAGE_ANNOTATIONS: _entries,
    Section.PROPERTIES: _fields,
    Section.APPLICATION_PROPERTIES: _entries,
    Section.FOOTER: _entries,
}
_bodies: SearchStrategy[Parts] = st.one_of(
    st.just([]),
    st.lists(_section(Section.DATA, _binary), min_size=1, max_size=3),
    st.lists(_section(Section.SEQUENCE, st.one_of(_fields, unreadable)), min_size=1, max_size=3),
    st.lists(_section(Section.VALUE, st.one_of(_fields, _entries, _binary, unreadable)), min_size=1, max_size=1),
)


def _maybe(section: Section) -> SearchStrategy[Parts]:
    return st.lists(_section(section, _around_the_body[section]), max_size=1)


messages: SearchStrategy[Parts] = st.tuples(
    *(_maybe(section) for section in list(Section)[:5]), _bodies, _maybe(Section.FOOTER)
).map(lambda sections: [part for parts in sections for part in parts])
"""A message as the list of its encoded sections. Its body need not be readable."""


def joined(parts: Parts) -> bytes:
    return b"".join(raw for _, raw in parts)
