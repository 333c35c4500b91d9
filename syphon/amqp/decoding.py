"""Decodes AMQP 1.0 values from bytes.

The codec is our own, because existing ones lose types (a timestamp becomes a number, a symbol a string) or are part of
a client. Bytes that are not AMQP raise `Malformed` and nothing else: lengths are checked before anything is read or
allocated, and nesting is bounded.
"""

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

MAX_DEPTH = 64
MAX_EMPTY_ITEMS = 64
"""How many items without any bytes (nulls) an array may have: a large count costs the peer no bytes, but us memory."""


class Malformed(ValueError):
    """The bytes are not valid AMQP 1.0."""


Read = Callable[[bytes, int, int, int], tuple[Any, int]]


def decode(data: bytes, pos: int = 0, end: int | None = None, depth: int = 0) -> tuple[Value, int]:
    """The value that starts at `pos`, and where the next one would start. Reads no byte at or after `end`."""
    if end is None:
        end = len(data)
    if pos >= end:
        raise Malformed(f"a value was expected at byte {pos}, but the data ends there")
    code = data[pos]
    read = _READ.get(code)
    if read is None:
        if code != 0:
            raise Malformed(f"0x{code:02x} at byte {pos} is not an AMQP type")
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
    """The end of the value at `pos`, found without decoding it."""
    if pos >= end:
        raise Malformed(f"a value was expected at byte {pos}, but the data ends there")
    code = data[pos]
    if code == 0:
        if depth >= MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH} at byte {pos}")
        return skip(data, skip(data, pos + 1, end, depth + 1), end, depth + 1)
    if code not in _READ:
        raise Malformed(f"0x{code:02x} at byte {pos} is not an AMQP type")
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
"""How many bytes follow a constructor, by its upper half: that many, or a length of 1 (-1) or 4 (-4) bytes first."""


def _fixed(form: str, make: Callable[[Any], Any]) -> Read:
    shape = struct.Struct(form)
    unpack, size = shape.unpack_from, shape.size

    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:  # noqa: ARG001  one signature for all readers
        return make(unpack(data, pos)[0]), pos + size

    return read


def _constant(value: Any) -> Read:
    return lambda data, pos, end, depth: (value, pos)  # noqa: ARG005  one signature for all readers


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
            code = data[pos] if pos < after else -1
            if code == 0x40:  # most fields of most lists are not set
                items.append(None)
                pos += 1
                continue
            small = _SMALL.get(code)
            if small is not None:  # of the others, most are small numbers
                items.append(small[data[pos + 1]])
                pos += 2
                continue
            simple = _SIMPLE.get(code)
            if simple is not None:  # and most of the rest is not nested: the check at the end is enough for both
                value, pos = simple(data, pos + 1, after, depth)
            else:
                value, pos = decode(data, pos, after, depth + 1)
            items.append(value)
        if pos != after:
            wrong = f"has {after - pos} bytes too many" if pos < after else "has a value that runs past its end"
            raise Malformed(f"a list {wrong}")
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
            return Array(0x40), after  # no constructor: the specification forbids it, but Azure's SDK writes it
        descriptor: Value = None
        described = data[pos : pos + 1] == b"\x00"
        if described:
            descriptor, pos = decode(data, pos + 1, after, depth + 1)
        if pos >= after:
            raise Malformed("an array has no constructor")
        code = data[pos]
        item = _READ.get(code)
        if item is None:
            raise Malformed(f"0x{code:02x} at byte {pos} is not an AMQP type that an array can have")
        pos += 1
        empty = code >> 4 == 4
        if count > (MAX_EMPTY_ITEMS if empty else after - pos):
            raise Malformed(f"an array claims {count} items in {after - pos} bytes")
        items = []
        if empty:
            items = [item(data, pos, after, depth + 1)[0]] * count  # all items are the same: they have no bytes
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

_SIMPLE = {code: _READ[code] for code in (0x41, 0x42, 0x43, 0x45, 0x60, 0x70, 0xA0, 0xA1, 0xA3)}
"""Readers of values that are not nested."""
_SMALL: dict[int, tuple[Value, ...]] = {
    code: tuple(make(number) for number in range(256)) for code, make in ((0x50, UByte), (0x52, UInt), (0x53, ULong))
}
"""The values that have one byte, for each byte: they cannot be changed, and need not be made again."""
