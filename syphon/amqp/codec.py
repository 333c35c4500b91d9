"""AMQP 1.0 values from bytes and to bytes.

Ours, because the codecs that exist lose types (a timestamp becomes a number, a symbol a string) or live in a client.
Bytes that are not AMQP give `Malformed` and nothing else: lengths are checked before anything is read or allocated,
and nesting is bounded.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

from .values import (
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

MAX_DEPTH = 64
MAX_EMPTY_ITEMS = 64
"""How many items without any bytes (nulls) an array may claim: a count costs nothing to write and memory to believe."""


class Malformed(ValueError):
    """The bytes are not what AMQP 1.0 says they should be."""


Read = Callable[[bytes, int, int, int], tuple[Any, int]]
Write = Callable[[Any], bytes]


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(data: bytes, pos: int = 0, end: int | None = None, depth: int = 0) -> tuple[Value, int]:
    """The value that starts at `pos`, and where the next one would start. Nothing at or after `end` is touched."""
    if end is None:
        end = len(data)
    if pos >= end:
        raise Malformed(f"a value was expected at byte {pos}, but the data ends there")
    code = data[pos]
    read = _READ.get(code)
    if read is None:
        if code != 0:
            raise Malformed(f"0x{code:02x} at byte {pos} is no AMQP type")
        if depth >= MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
        descriptor, pos = decode(data, pos + 1, end, depth + 1)
        value, pos = decode(data, pos, end, depth + 1)
        return Described(descriptor, value), pos
    try:
        value, after = read(data, pos + 1, end, depth)
    except (struct.error, IndexError) as error:
        raise Malformed(f"the value at byte {pos} is cut short") from error
    if after > end:
        raise Malformed(f"the value at byte {pos} runs past its end")
    return value, after


def skip(data: bytes, pos: int, end: int, depth: int = 0) -> int:
    """Where the value at `pos` ends, found without decoding it."""
    if pos >= end:
        raise Malformed(f"a value was expected at byte {pos}, but the data ends there")
    code = data[pos]
    if code == 0:
        if depth >= MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
        return skip(data, skip(data, pos + 1, end, depth + 1), end, depth + 1)
    if code not in _READ:
        raise Malformed(f"0x{code:02x} at byte {pos} is no AMQP type")
    width = _WIDTH[code >> 4]
    if width >= 0:
        after = pos + 1 + width
    else:
        start = pos + 1 - width
        after = start + int.from_bytes(data[pos + 1 : start], "big")
    if after > end:
        raise Malformed(f"the value at byte {pos} runs past its end")
    return after


_WIDTH = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4)
"""How many bytes follow a constructor, by its upper half: that many, or first a length of 1 (-1) or 4 (-4) bytes."""


def _fixed(form: str, make: Callable[[Any], Any]) -> Read:
    shape = struct.Struct(form)
    unpack, size = shape.unpack_from, shape.size

    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001  one shape for all readers
        return make(unpack(data, pos)[0]), pos + size

    return read


def _constant(value: Any) -> Read:
    return lambda data, pos, end, depth: (value, pos)  # noqa: ARG005  one shape for all readers


def _raw(size: int, make: Callable[[bytes], Any]) -> Read:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        after = pos + size
        if after > end:
            raise Malformed(f"{size} bytes were expected at byte {pos}")
        return make(data[pos:after]), after

    return read


def _uuid(raw: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=raw)


def _boolean(byte: int) -> bool:
    if byte > 1:
        raise Malformed(f"a boolean is 0 or 1, not {byte}")
    return byte == 1


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"a string is not UTF-8: {error.reason} at its byte {error.start}") from None


def _symbol(raw: bytes) -> Symbol:
    try:
        return Symbol(raw, "ascii")
    except UnicodeDecodeError as error:
        raise Malformed(f"a symbol is not ASCII at its byte {error.start}") from None


def _sized(width: int, make: Callable[[bytes], Any]) -> Read:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001
        start = pos + width
        after = start + int.from_bytes(data[pos:start], "big")
        if after > end:
            raise Malformed(f"a length at byte {pos} runs past the end")
        return make(data[start:after]), after

    return read


def _bounds(data: bytes, pos: int, end: int, depth: int, width: int) -> tuple[int, int, int]:
    """The item count of a compound value, where its items start and where it ends."""
    if depth >= MAX_DEPTH:
        raise Malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
    start = pos + width
    after = start + int.from_bytes(data[pos:start], "big")
    items = start + width
    if after > end or items > after:
        raise Malformed(f"the size of a list, map or array at byte {pos} does not fit")
    return int.from_bytes(data[start:items], "big"), items, after


def _list(width: int) -> Read:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        count, pos, after = _bounds(data, pos, end, depth, width)
        if count > after - pos:
            raise Malformed(f"{count} items cannot fit into {after - pos} bytes")
        items: list[Value] = []
        for _ in range(count):
            if pos < after and data[pos] == 0x40:  # most fields of most lists are not set
                items.append(None)
                pos += 1
                continue
            value, pos = decode(data, pos, after, depth + 1)
            items.append(value)
        if pos != after:
            raise Malformed(f"a list has {after - pos} bytes too many")
        return items, after

    return read


def _map(width: int) -> Read:
    read_list = _list(width)

    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        items, after = read_list(data, pos, end, depth)
        if len(items) % 2:
            raise Malformed("a map has a key without a value")
        return Map(tuple(zip(items[::2], items[1::2], strict=True))), after

    return read


def _array(width: int) -> Read:
    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        count, pos, after = _bounds(data, pos, end, depth, width)
        if count == 0 and pos == after:
            return Array(0x40), after  # no constructor at all: against the specification, but Azure's SDK writes it
        descriptor: Value = None
        described = data[pos : pos + 1] == b"\x00"
        if described:
            descriptor, pos = decode(data, pos + 1, after, depth + 1)
        if pos >= after:
            raise Malformed("an array does not say of what")
        code = data[pos]
        item = _READ.get(code)
        if item is None:
            raise Malformed(f"0x{code:02x} at byte {pos} is no AMQP type an array can have")
        pos += 1
        empty = code >> 4 == 4
        if count > (MAX_EMPTY_ITEMS if empty else after - pos):
            raise Malformed(f"an array claims {count} items in {after - pos} bytes")
        items = []
        if empty:
            items = [item(data, pos, after, depth + 1)[0]] * count  # one for all: not a byte was spent on the others
        else:
            for _ in range(count):
                value, pos = item(data, pos, after, depth + 1)
                items.append(value)
        if pos != after:
            raise Malformed("an array's size does not match its items")
        return Array(code, tuple(items), descriptor, described), after

    return read


_READ: dict[int, Read] = {
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x56: _fixed(">B", _boolean),
    0x50: _fixed(">B", UByte),
    0x60: _fixed(">H", UShort),
    0x70: _fixed(">I", UInt),
    0x52: _fixed(">B", UInt),
    0x43: _constant(UInt(0)),
    0x80: _fixed(">Q", ULong),
    0x53: _fixed(">B", ULong),
    0x44: _constant(ULong(0)),
    0x51: _fixed(">b", Byte),
    0x61: _fixed(">h", Short),
    0x71: _fixed(">i", Int),
    0x54: _fixed(">b", Int),
    0x81: _fixed(">q", Long),
    0x55: _fixed(">b", Long),
    0x72: _fixed(">f", Float),
    0x82: _fixed(">d", float),
    0x74: _raw(4, Decimal32),
    0x84: _raw(8, Decimal64),
    0x94: _raw(16, Decimal128),
    0x73: _fixed(">I", Char),
    0x83: _fixed(">q", Timestamp),
    0x98: _raw(16, _uuid),
    0xA0: _sized(1, bytes),
    0xB0: _sized(4, bytes),
    0xA1: _sized(1, _text),
    0xB1: _sized(4, _text),
    0xA3: _sized(1, _symbol),
    0xB3: _sized(4, _symbol),
    0x45: lambda data, pos, end, depth: ([], pos),  # noqa: ARG005
    0xC0: _list(1),
    0xD0: _list(4),
    0xC1: _map(1),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(value: Value) -> bytes:
    """The bytes of a value, in the shortest form its type has."""
    writer = _WRITERS.get(type(value))
    if writer is None:
        raise TypeError(
            f"{type(value).__name__} is no AMQP type: say which one is meant, for example Int(…), Long(…) or Symbol(…)"
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
        raise ValueError(f"0x{value.code:02x} is no constructor an array can have")
    kind, write = _ITEM[value.code]
    for item in value.items:
        if type(item) is not kind and not (isinstance(item, str) and issubclass(kind, str)):
            raise ValueError(f"{type(item).__name__} does not fit into an array of 0x{value.code:02x}")
    if value.code >> 4 == 4 and len(value.items) > MAX_EMPTY_ITEMS:
        raise ValueError(f"an array of 0x{value.code:02x} has {MAX_EMPTY_ITEMS} items at the most")
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
            raise ValueError(f"{value!r} does not fit into an array of nothing but {constant!r}")
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
"""What an array holds, by the constructor it has for all of its items, and how one of them is written."""
