"""AMQP values for people and for JSON, with the name of their exact type."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from syphon.amqp import Array, Described, Map, Timestamp, Value

_NAMES: dict[type, str] = {
    bool: "boolean",
    str: "string",
    bytes: "binary",
    float: "double",
    list: "list",
    uuid.UUID: "uuid",
}


def type_of(value: Value) -> str:
    """The name of the value's exact AMQP type."""
    if value is None:
        return "null"
    if isinstance(value, Described):
        return str(plain(value.descriptor))
    return _NAMES.get(type(value)) or type(value).__name__.lower()


def plain(value: Value) -> Any:
    """The value as JSON can hold it. Bytes and decimals become hexadecimal, times ISO-8601."""
    match value:
        case Timestamp():
            try:
                return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
            except (ValueError, OverflowError, OSError):
                return int(value)
        case bytes():
            return value.hex()
        case Described():
            return plain(value.value)
        case Map():
            return [{"key": plain(key), "type": type_of(item), "value": plain(item)} for key, item in value]
        case list():
            return [plain(item) for item in value]
        case Array():
            return [plain(item) for item in value.items]
        case uuid.UUID():
            return str(value)
    return value
