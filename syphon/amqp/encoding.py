"""Encodes AMQP 1.0 values as bytes, each in the shortest form of its type."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from .amqp_values import (
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
)
from .decoding import MAX_EMPTY_ITEMS

Write = Callable[[Any], bytes]


def encode(value: Value) -> bytes:
    """The bytes of a value, in the shortest form of its type."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise TypeError(
            f"{type(value).__name__} is not an AMQP type: choose one, for example Int(…), Long(…) or Symbol(…)"
        )
    try:
        return writer(value)
    except (struct.error, OverflowError):
        raise ValueError(f"{value!r} does not fit into the AMQP type {type(value).__name__.lower()}") from None


def _packed(form: str) -> Write:
    return struct.Struct(form).pack


def _small(short: str, short_code: int, low: int, high: int, long: str, long_code: int) -> Write:
    """A writer for a number that has a one-byte form."""
    pack_short, pack_long = struct.Struct(">B" + short).pack, struct.Struct(">B" + long).pack
    return lambda value: pack_short(short_code, value) if low <= value <= high else pack_long(long_code, value)


def _tagged(code: int, form: str) -> Write:
    pack = struct.Struct(">B" + form).pack
    return lambda value: pack(code, value)


def _bytes_of(code: int, raw: bytes) -> bytes:
    if len(raw) < 256:
        return bytes((code, len(raw))) + raw
    return bytes((code | 0x10,)) + struct.pack(">I", len(raw)) + raw


def _exact(size: int, constructor: bytes = b"") -> Write:
    def write(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"{type(value).__name__} has {size} bytes, not {len(value)}")
        return constructor + value

    return write


def compound(code: int, count: int, body: bytes) -> bytes:
    """A list (0xc0) or map (0xc1) of `count` encoded items, in its short or long form."""
    if len(body) < 255 and count < 256:
        return bytes((code, len(body) + 1, count)) + body
    return bytes((code | 0x10,)) + struct.pack(">II", len(body) + 4, count) + body


def _write_list(value: list[Value]) -> bytes:
    return compound(0xC0, len(value), b"".join(map(encode, value))) if value else b"\x45"


def _write_map(value: Map) -> bytes:
    return compound(0xC1, 2 * len(value.pairs), b"".join(encode(key) + encode(item) for key, item in value.pairs))


def _write_array(value: Array) -> bytes:
    if value.code not in _ITEM:
        raise ValueError(f"0x{value.code:02x} is not a constructor that an array can have")
    kind, write = _ITEM[value.code]
    for item in value.items:
        if type(item) is not kind and not (isinstance(item, str) and issubclass(kind, str)):
            raise ValueError(f"{type(item).__name__} does not fit into an array of 0x{value.code:02x}")
    if value.code >> 4 == 4 and len(value.items) > MAX_EMPTY_ITEMS:
        raise ValueError(f"an array of 0x{value.code:02x} has {MAX_EMPTY_ITEMS} items at most")
    constructor = bytes((value.code,))
    if value.described:
        constructor = b"\x00" + encode(value.descriptor) + constructor
    try:
        body = constructor + b"".join(map(write, value.items))
    except (struct.error, OverflowError) as error:
        raise ValueError(f"an item does not fit into an array of 0x{value.code:02x}: {error}") from None
    return b"\xf0" + struct.pack(">II", len(body) + 4, len(value.items)) + body


_UINT: Write = _small("B", 0x52, 1, 255, "I", 0x70)
_ULONG: Write = _small("B", 0x53, 1, 255, "Q", 0x80)

_WRITERS: dict[type, Write] = {
    type(None): lambda value: b"\x40",  # noqa: ARG005
    bool: lambda value: b"\x41" if value else b"\x42",
    UByte: _tagged(0x50, "B"),
    UShort: _tagged(0x60, "H"),
    Byte: _tagged(0x51, "b"),
    Short: _tagged(0x61, "h"),
    UInt: lambda value: b"\x43" if value == 0 else _UINT(value),
    ULong: lambda value: b"\x44" if value == 0 else _ULONG(value),
    Int: _small("b", 0x54, -128, 127, "i", 0x71),
    Long: _small("b", 0x55, -128, 127, "q", 0x81),
    Float: _tagged(0x72, "f"),
    float: _tagged(0x82, "d"),
    Char: _tagged(0x73, "I"),
    Timestamp: _tagged(0x83, "q"),
    Decimal32: _exact(4, b"\x74"),
    Decimal64: _exact(8, b"\x84"),
    Decimal128: _exact(16, b"\x94"),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: lambda value: _bytes_of(0xA0, value),
    str: lambda value: _bytes_of(0xA1, value.encode("utf-8")),
    Symbol: lambda value: _bytes_of(0xA3, value.encode("ascii")),
    list: _write_list,
    Map: _write_map,
    Array: _write_array,
    Described: lambda value: b"\x00" + encode(value.descriptor) + encode(value.value),
}


def _with_length(form: str, encoding: str | None = None) -> Write:
    pack = struct.Struct(form).pack

    def write(value: Any) -> bytes:
        raw: bytes = value.encode(encoding) if encoding else value
        return pack(len(raw)) + raw

    return write


def _compound_item(width: int, parts: Callable[[Any], list[Value]]) -> Write:
    pack = struct.Struct(">BB" if width == 1 else ">II").pack

    def write(value: Any) -> bytes:
        items = parts(value)
        body = b"".join(map(encode, items))
        return pack(len(body) + width, len(items)) + body

    return write


def _flat(value: Map) -> list[Value]:
    return [part for pair in value.pairs for part in pair]


def _array_item(width: int) -> Write:
    pack = struct.Struct(">BB" if width == 1 else ">II").pack

    def write(value: Array) -> bytes:
        body = _write_array(value)[9:]
        return pack(len(body) + width, len(value.items)) + body

    return write


def _only(constant: Value) -> Write:
    def write(value: Value) -> bytes:
        if value != constant:
            raise ValueError(f"{value!r} does not fit into an array of {constant!r} only")
        return b""

    return write


_ITEM: dict[int, tuple[type, Write]] = {
    0x40: (type(None), _only(None)),
    0x41: (bool, _only(True)),
    0x42: (bool, _only(False)),
    0x56: (bool, _packed(">?")),
    0x50: (UByte, _packed(">B")),
    0x60: (UShort, _packed(">H")),
    0x43: (UInt, _only(UInt(0))),
    0x52: (UInt, _packed(">B")),
    0x70: (UInt, _packed(">I")),
    0x44: (ULong, _only(ULong(0))),
    0x53: (ULong, _packed(">B")),
    0x80: (ULong, _packed(">Q")),
    0x51: (Byte, _packed(">b")),
    0x61: (Short, _packed(">h")),
    0x54: (Int, _packed(">b")),
    0x71: (Int, _packed(">i")),
    0x55: (Long, _packed(">b")),
    0x81: (Long, _packed(">q")),
    0x72: (Float, _packed(">f")),
    0x82: (float, _packed(">d")),
    0x74: (Decimal32, _exact(4)),
    0x84: (Decimal64, _exact(8)),
    0x94: (Decimal128, _exact(16)),
    0x73: (Char, _packed(">I")),
    0x83: (Timestamp, _packed(">q")),
    0x98: (uuid.UUID, lambda value: value.bytes),
    0xA0: (bytes, _with_length(">B")),
    0xB0: (bytes, _with_length(">I")),
    0xA1: (str, _with_length(">B", "utf-8")),
    0xB1: (str, _with_length(">I", "utf-8")),
    0xA3: (Symbol, _with_length(">B", "ascii")),
    0xB3: (Symbol, _with_length(">I", "ascii")),
    0x45: (list, _only([])),
    0xC0: (list, _compound_item(1, list)),
    0xD0: (list, _compound_item(4, list)),
    0xC1: (Map, _compound_item(1, _flat)),
    0xD1: (Map, _compound_item(4, _flat)),
    0xE0: (Array, _array_item(1)),
    0xF0: (Array, _array_item(4)),
}
"""The type of an array's items, by the constructor that they share, and the function that writes one of them."""
