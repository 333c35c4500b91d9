"""Edits of a dead letter before it is replayed: its destination, its properties, its application properties.

A dead letter often lacks one thing: a path, or an alias whose value makes sense. The operator writes the edit as text,
`NAME=VALUE` or `NAME:TYPE=VALUE`. Everything that is not edited keeps its bytes. The operator cannot choose a message
id: duplicate detection depends on it. A message gets a new one where its own might be taken for a duplicate.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from syphon.amqp import Int, Long, Malformed, Section, Symbol, Timestamp, UInt, ULong, Value, encode
from syphon.amqp.section_edit import NULL, field, outline, value_at, with_fields
from syphon.model import SyphonError

from .aliases import PATH
from .dotnet_times import InvalidValue, moment, timespan, timespan_bytes, whole_millis

OF_PROPERTIES = "properties."
"""How the name of a property of the properties section begins; every other name is an application property."""
_FIELDS: dict[str, tuple[int, type[str]]] = {
    "to": (2, str),
    "subject": (3, str),
    "reply-to": (4, str),
    "correlation-id": (5, str),
    "content-type": (6, Symbol),
    "content-encoding": (7, Symbol),
    "reply-to-group-id": (12, str),
}
"""The fields that can be edited: their place in the section, and their type."""


class BadEdit(SyphonError):
    """An edit that cannot be carried out, as the operator wrote it."""


@dataclass(frozen=True, slots=True)
class LetterEdit:
    """What changes in a replayed message. Values are encoded; None removes."""

    application: tuple[tuple[str, bytes | None], ...] = ()
    fields: tuple[tuple[int, bytes], ...] = ()
    path: str | None = None
    """The destination that it gets, if it gets another one: it must be allowed (D13)."""

    @staticmethod
    def of(texts: Iterable[str] = (), unset: Iterable[str] = (), path: str | None = None) -> LetterEdit:
        """The edits `NAME=VALUE` or `NAME:TYPE=VALUE`, the names to remove, and the path. Raises BadEdit."""
        application: dict[str, bytes | None] = {}
        fields: dict[int, bytes] = {}
        for text in texts:
            name, kind, value = _parts(text)
            if name == PATH:
                if kind not in (None, "string"):
                    raise BadEdit(f"{text!r}: {PATH} is a string.")
                path = value
            elif name.startswith(OF_PROPERTIES):
                place, type_ = _field(name, text)
                if kind not in (None, "string"):
                    raise BadEdit(f"{text!r}: {name} is a string.")
                fields[place] = encode(type_(value))
            else:
                application[name] = _encoded(text, kind or "string", value)
        for name in unset:
            if name == PATH:
                raise BadEdit(f"{PATH} cannot be removed: the message would have no destination.")
            if name.startswith(OF_PROPERTIES):
                fields[_field(name, name)[0]] = NULL
            else:
                application[name] = None
        if path is not None:
            application[PATH] = encode(path)
        return LetterEdit(tuple(application.items()), tuple(fields.items()), path)


NO_EDIT = LetterEdit()
_MESSAGE_ID = 0
"""The place of the message id in the properties section."""


def message_id_of(payload: bytes) -> Value:
    """The message id; None if the message has none, and its bytes if they are no value. Raises Malformed."""
    properties = outline(payload).properties
    raw = None if properties is None else field(payload, properties, _MESSAGE_ID)
    try:
        return None if raw is None else value_at(raw, 0, len(raw))
    except Malformed:
        return raw


def with_message_id(payload: bytes, message_id: str) -> bytes:
    """The message with another id; all its other bytes stay. Raises Malformed."""
    properties = outline(payload).properties
    assert properties is not None  # only a message that has an id gets another one
    changed = with_fields(payload, properties, Section.PROPERTIES, {_MESSAGE_ID: encode(message_id)})
    return payload[: properties.start] + changed + payload[properties.end :]


def _parts(text: str) -> tuple[str, str | None, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadEdit(f"{text!r} is not an edit: write NAME=VALUE or NAME:TYPE=VALUE.")
    front, colon, kind = name.rpartition(":")
    if not colon:
        return name, None, value
    if kind not in TYPES or not front:
        raise BadEdit(f"{text!r}: {kind!r} is not a type. Types are {', '.join(TYPES)}.")
    return front, kind, value


def _field(name: str, text: str) -> tuple[int, type[str]]:
    found = _FIELDS.get(name.removeprefix(OF_PROPERTIES))
    if found is None:
        raise BadEdit(f"{text!r}: this property cannot be edited. These can: {', '.join(_FIELDS)}.")
    return found


def _encoded(text: str, kind: str, value: str) -> bytes:
    try:
        return TYPES[kind](value)
    except (ValueError, OverflowError) as error:
        reason = f", which {error}" if isinstance(error, InvalidValue) else ""
        raise BadEdit(f"{text!r}: {value!r} is not a value of the type {kind}{reason}.") from None


def _number(kind: type[int], least: int, most: int) -> Callable[[str], bytes]:
    def encoded(text: str) -> bytes:
        if not least <= (value := int(text)) <= most:
            raise ValueError
        return encode(kind(value))

    return encoded


def _boolean(text: str) -> bytes:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return encode(text.lower() == "true")


def _encode(make: Callable[[str], Value]) -> Callable[[str], bytes]:
    return lambda text: encode(make(text))


TYPES: dict[str, Callable[[str], bytes]] = {
    "string": encode,
    "boolean": _boolean,
    "int": _number(Int, -(2**31), 2**31 - 1),
    "uint": _number(UInt, 0, 2**32 - 1),
    "long": _number(Long, -(2**63), 2**63 - 1),
    "ulong": _number(ULong, 0, 2**64 - 1),
    "double": _encode(float),
    "timestamp": lambda text: encode(Timestamp(moment(text))),
    "timespan": lambda text: timespan_bytes(whole_millis(timespan(text))),
    "uuid": _encode(uuid.UUID),
    "binary": _encode(bytes.fromhex),
}
"""The types of values, by the names that `dead-letters show` prints, and how each is read and encoded."""
