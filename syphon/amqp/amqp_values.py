"""AMQP 1.0 values in Python, with the exact type kept.

Where Python has the type, the value is a plain one: `None`, `bool`, `str` (string), `bytes` (binary), `float` (double),
`list` and `uuid.UUID`. Other types are thin subclasses or frozen records. A bare `int` is not an AMQP value: the code
must choose `Int`, `Long` or another type, because the type matters to the peer.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Union


class UByte(int):
    __slots__ = ()


class UShort(int):
    __slots__ = ()


class UInt(int):
    __slots__ = ()


class ULong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Long(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970, UTC."""

    __slots__ = ()


class Char(int):
    """One UTF-32 unit. It is a number, because .NET also sends halves of surrogate pairs."""

    __slots__ = ()


class Float(float):
    """A 32-bit float. A Python float is the 64-bit double."""

    __slots__ = ()


class Symbol(str):
    """An ASCII name from a constrained domain."""

    __slots__ = ()


class Decimal32(bytes):
    """An IEEE 754 decimal as its 4 bytes. It is passed on and never used for arithmetic."""

    __slots__ = ()


class Decimal64(bytes):
    """An IEEE 754 decimal as its 8 bytes."""

    __slots__ = ()


class Decimal128(bytes):
    """An IEEE 754 decimal as its 16 bytes: what a .NET decimal becomes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that gives its meaning."""

    descriptor: Value
    value: Value


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type. `code` is the constructor byte that all items share."""

    code: int
    items: tuple[Value, ...] = ()
    descriptor: Value = None
    described: bool = False


@dataclass(frozen=True, slots=True)
class Map:
    """Pairs in their original order. Not a dict: AMQP keys need not be hashable, and 1 and true are two keys."""

    pairs: tuple[tuple[Value, Value], ...] = ()

    @classmethod
    def of(cls, entries: Mapping[str, Value]) -> Map:
        return cls(tuple(entries.items()))

    @classmethod
    def symbols(cls, entries: Mapping[str, Value]) -> Map:
        return cls(tuple((Symbol(key), value) for key, value in entries.items()))

    def get(self, name: str) -> Value:
        """The value under a string or symbol key, `None` if there is none."""
        for key, value in self.pairs:
            if isinstance(key, str) and key == name:
                return value
        return None

    def __contains__(self, name: str) -> bool:
        return any(isinstance(key, str) and key == name for key, _ in self.pairs)

    def __iter__(self) -> Iterator[tuple[Value, Value]]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


Value = Union[
    None,
    bool,
    UByte,
    UShort,
    UInt,
    ULong,
    Byte,
    Short,
    Int,
    Long,
    Float,
    float,
    Decimal32,
    Decimal64,
    Decimal128,
    Char,
    Timestamp,
    uuid.UUID,
    bytes,
    str,
    Symbol,
    "list[Value]",
    Map,
    Array,
    Described,
]
