"""What a backlog message carries beside its aliases: what the broker wrote onto it, and the trace of its sender."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, TypeGuard

from syphon.amqp import Described, Malformed, Section, Span, Symbol, Value, split
from syphon.amqp.section_edit import ByteRange, extract, fields, keys, outline, value_at

SEQUENCE_NUMBER: Final = "x-opt-sequence-number"
ENQUEUED_TIME: Final = "x-opt-enqueued-time"
LOCKED_UNTIL: Final = "x-opt-locked-until"
SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
LOCK_TOKEN: Final = "x-opt-lock-token"  # noqa: S105  the key of a delivery annotation
NOT_CARRIED = keys(
    (
        SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        "x-opt-enqueue-sequence-number",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        # Not the broker's, but its time has passed in the backlog: the sender's own value is in its alias.
        SCHEDULED,
    )
)
"""Annotations that belong to the queue and are not sent to the destination."""

# Fields of the header, and of the properties.
DURABLE, PRIORITY, TTL = 0, 1, 2
EXPIRY, CREATION, GROUP_ID = 8, 9, 10


def is_string(value: Value) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Symbol)


def shown(value: Value) -> str:
    """A value for people: its type, and its first characters."""
    text = _typed(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _typed(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, Described):
        name = value.descriptor
        # The name only if it is printable: the text goes into logs and terminals.
        return f"{name if isinstance(name, str) and name.isprintable() else repr(name)} {_typed(value.value)}"
    return f"{_KINDS.get(type(value)) or type(value).__name__.lower()} {value!r}"


_SHOWN = 120
_KINDS: dict[type, str] = {str: "string", bytes: "binary", float: "double", bool: "boolean"}


# --- what the broker wrote -------------------------------------------------------------------------------------------

_STAMPS = keys((SEQUENCE_NUMBER, ENQUEUED_TIME, LOCKED_UNTIL))
_DELIVERY_COUNT = 4
_HEADER, _ANNOTATIONS = int(Section.HEADER), int(Section.MESSAGE_ANNOTATIONS)
_LONG = struct.Struct(">q").unpack_from


Stamps: TypeAlias = tuple[int, int, int]
"""Sequence number, enqueued at, locked until."""


class BrokerStamps(NamedTuple):
    """What the broker wrote. Times are milliseconds since 1970. 0 means that the broker wrote nothing."""

    sequence_number: int = 0
    enqueued_at: int = 0
    locked_until: int = 0
    delivery_count: int = 0


def stamps_of(payload: bytes) -> BrokerStamps:
    """The stamps of a message. Never raises: a message that cannot be read has none, and restoring it gives the error.

    The broker's sections come first. The sender's sections after them may be malformed.
    """
    try:
        spans = {span.section: span for span in split(payload, until=_ANNOTATIONS)}
        stamps = extract(payload, spans.get(_ANNOTATIONS), _STAMPS).found
        return BrokerStamps(*stamps_at(payload, stamps), deliveries(payload, spans.get(_HEADER)))
    except Malformed:
        return BrokerStamps()


def stamps_at(data: bytes, found: Mapping[str, ByteRange]) -> Stamps:
    """The stamps in the ranges that `extract` has found."""
    if not found:
        return 0, 0, 0
    sequence, enqueued, locked = found.get(SEQUENCE_NUMBER), found.get(ENQUEUED_TIME), found.get(LOCKED_UNTIL)
    return _number(data, sequence), _number(data, enqueued), _number(data, locked)


def deliveries(data: bytes, header: Span | None) -> int:
    """How often the message was delivered before, according to its header."""
    if header is None or len(starts := fields(data, header)) < _DELIVERY_COUNT + 2:
        return 0
    return _number(data, (starts[_DELIVERY_COUNT], starts[_DELIVERY_COUNT + 1]))


def _number(data: bytes, where: ByteRange | None) -> int:
    if where is None:
        return 0
    start, end = where
    code = data[start]
    if code == 0x81 or code == 0x83:  # a long or a timestamp, as brokers write them
        number: int = _LONG(data, start + 1)[0]
        return number
    value = value_at(data, start, end)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


# --- the trace of the sender -----------------------------------------------------------------------------------------

# Senders write it as `traceparent` (W3C), Azure's SDKs also as `Diagnostic-Id`: into the application properties or the
# annotations. Only a context that the sender has recorded counts, because a link to another one leads nowhere.
_RECORDED = re.compile(
    rb"[\xa0\xa1\xa3](?:\x0btraceparent|\x0dDiagnostic-Id)[\xa0\xa1\xa3]."
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f][13579bdf]",
    re.DOTALL,
).search
"""Matches an encoded key and its value. It searches and does not parse, because some SDKs write the same key twice."""


class TraceContext(NamedTuple):
    """A span of another trace, by its ids in hexadecimal."""

    trace_id: str
    span_id: str


def trace_context(payload: bytes) -> TraceContext | None:
    """The span that sent a message, if it is recorded. Never raises."""
    try:
        found = _RECORDED(payload, 0, outline(payload).body)  # a body may hold anything
    except Malformed:
        return None
    return TraceContext(found[1].decode(), found[2].decode()) if found is not None else None
