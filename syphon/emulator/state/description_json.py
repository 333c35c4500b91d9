"""Descriptions as JSON. Pickle is not used: a state directory from elsewhere must not run code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from syphon.amqp import Array, Described, Map, decode, encode

from ..broker import (
    AuthorizationRule,
    Claim,
    CorrelationFilter,
    EntityStatus,
    FalseFilter,
    QueueDescription,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        QueueDescription,
        TopicDescription,
        SubscriptionDescription,
        RuleDescription,
        AuthorizationRule,
        TrueFilter,
        FalseFilter,
        CorrelationFilter,
        SqlFilter,
        SqlAction,
        EntityStatus,
        Claim,
    )
}


def to_json(record: object) -> str:
    return json.dumps(_plain(record))


def from_json(text: str) -> object:
    return _revived(json.loads(text))


def _plain(value: object) -> object:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value).__name__ in _KINDS and dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.init}
        return {"kind": type(value).__name__, "fields": fields}
    if isinstance(value, Enum):
        return {"kind": type(value).__name__, "fields": {"value": value.value}}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {"map": [[key, _plain(item)] for key, item in value.items()]}
    if isinstance(value, datetime):
        return {"datetime": value.isoformat()}
    if isinstance(value, timedelta):
        return {"microseconds": value // timedelta(microseconds=1)}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    if type(value) is bytes:
        return {"binary": value.hex()}
    if isinstance(value, int | float | str | bytes | Map | Array | Described):
        return {"amqp": encode(value).hex()}  # a rule value from AMQP: its exact type decides what it equals
    raise TypeError(f"{value!r:.200} cannot be written as JSON")


def _revived(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_revived(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "map" in value:
        return {key: _revived(item) for key, item in value["map"]}
    if "datetime" in value:
        return datetime.fromisoformat(value["datetime"])
    if "microseconds" in value:
        return timedelta(microseconds=value["microseconds"])
    if "uuid" in value:
        return UUID(value["uuid"])
    if "binary" in value:
        return bytes.fromhex(value["binary"])
    if "amqp" in value:
        return decode(bytes.fromhex(value["amqp"]))[0]
    return _KINDS[value["kind"]](**{name: _revived(item) for name, item in value["fields"].items()})
