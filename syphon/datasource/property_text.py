"""AMQP values as text and back, with the name of their type: how properties travel in a column of strings.

Every value has a text and a type, and both together give exactly the same value again. A value of a type that has no
text of its own (a list, a map, an array) is its AMQP encoding in base64, and its type is `amqp`.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from syphon.amqp import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Malformed,
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

STRING: Final = "string"
ENCODED: Final = "amqp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in milliseconds since 1970. A timestamp outside of them is written as a number."""
_DESCRIBED = re.compile(r"(.+)\((\w+)\)", re.DOTALL)
_CODE_POINT = re.compile(r"U\+([0-9A-F]+)")
_SURROGATES = range(0xD800, 0xE000)


class UnreadableText(ValueError):
    """A text that is no value of the type that is named beside it."""


def text_of(value: Value) -> tuple[str | None, str]:
    """The text of a value, and the name of its type. Only null has no text."""
    kind = type(value)
    if kind is str:
        return value, STRING  # type: ignore[return-value]  # mypy does not see that it is a str
    found = _TO_TEXT.get(kind)
    if found is not None:
        return found[1](value), found[0]
    if isinstance(value, Described) and type(value.descriptor) is Symbol and value.descriptor:
        text, inner = text_of(value.value)
        if text is not None and inner in _FROM_TEXT:
            return text, f"{value.descriptor}({inner})"
    return base64.b64encode(encode(value)).decode(), ENCODED


def value_of(text: str | None, kind: str | None) -> Value:
    """The value that a text means. Without a type it is a string, or null. Raises UnreadableText."""
    if kind is None or kind == STRING:
        return text
    if kind == "null":
        if text is not None:
            raise UnreadableText(f"{_shown(text)} is given as null")
        return None
    if text is None:
        raise UnreadableText(f"it has the type {_shown(kind)} and no value")
    read = _FROM_TEXT.get(kind)
    if read is None and (parts := _DESCRIBED.fullmatch(kind)) is not None and parts[2] in _FROM_TEXT:
        return Described(_symbol(parts[1]), value_of(text, parts[2]))
    if read is None:
        raise UnreadableText(f"{_shown(kind)} is not the name of an AMQP type")
    try:
        value: Value = read(text)
        encode(value)  # numbers have bounds
    except (ValueError, Malformed, OverflowError):
        raise UnreadableText(f"{_shown(text)} is not a valid {kind}") from None
    return value


def plain_text(value: Value) -> str | None:
    """The text of a value whose type is not kept beside it: a message id may be a string, a number, a uuid or bytes."""
    return value if type(value) is str else text_of(value)[0]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:59]}…")


def _timestamp_text(value: int) -> str:
    if not _FIRST <= value <= _LAST:
        return str(int(value))
    return (_EPOCH + timedelta(milliseconds=value)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _timestamp(text: str) -> Timestamp:
    if re.fullmatch(r"-?\d+", text):
        return Timestamp(text)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Timestamp((moment - _EPOCH) // timedelta(milliseconds=1))


def _char_text(value: int) -> str:
    return f"U+{int(value):04X}" if value in _SURROGATES or value > 0x10FFFF else chr(value)


def _char(text: str) -> Char:
    if len(text) == 1:
        return Char(ord(text))
    found = _CODE_POINT.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return Char(int(found[1], 16))


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _symbol(text: str) -> Symbol:
    if not text.isascii():
        raise UnreadableText(f"{_shown(text)} is not a symbol: symbols are ASCII")
    return Symbol(text)


def _whole(kind: type[int]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not re.fullmatch(r"[+-]?\d+", text):
            raise ValueError(text)
        return kind(text)

    return read


def _decoded(text: str) -> Value:
    raw = base64.b64decode(text, validate=True)
    value, end = decode(raw)
    if end != len(raw):
        raise ValueError(text)
    return value


_NAMES: dict[type, str] = {
    UByte: "ubyte",
    UShort: "ushort",
    UInt: "uint",
    ULong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int",
    Long: "long",
}
_DECIMALS: dict[type, str] = {Decimal32: "decimal32", Decimal64: "decimal64", Decimal128: "decimal128"}
_TO_TEXT: dict[type, tuple[str, Callable[[Any], str | None]]] = {
    type(None): ("null", lambda value: None),  # noqa: ARG005
    bool: ("boolean", lambda value: "true" if value else "false"),
    **{kind: (name, lambda value: str(int(value))) for kind, name in _NAMES.items()},
    Float: ("float", lambda value: repr(float(value))),
    float: ("double", repr),
    # IEEE 754 decimals are passed on and never computed with: their bytes are the safest text.
    **{kind: (name, lambda value: bytes(value).hex()) for kind, name in _DECIMALS.items()},
    Char: ("char", _char_text),
    Timestamp: ("timestamp", _timestamp_text),
    uuid.UUID: ("uuid", str),
    bytes: ("binary", lambda value: base64.b64encode(value).decode()),
    Symbol: ("symbol", str),
}
_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    STRING: str,
    "boolean": _boolean,
    **{name: _whole(kind) for kind, name in _NAMES.items()},
    "float": lambda text: Float(float(text)),
    "double": float,
    "decimal32": lambda text: Decimal32(bytes.fromhex(text)),
    "decimal64": lambda text: Decimal64(bytes.fromhex(text)),
    "decimal128": lambda text: Decimal128(bytes.fromhex(text)),
    "char": _char,
    "timestamp": _timestamp,
    "uuid": uuid.UUID,
    "binary": lambda text: base64.b64decode(text, validate=True),
    "symbol": _symbol,
    ENCODED: _decoded,
}
