"""Turns peeked messages into Arrow batches: one row for each message, and only the selected columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from syphon.amqp import Timestamp, Value
from syphon.servicebus import MessageState, Peeked

from .columns import BODY, COLUMNS, TEXTS, arrow_schema, arrow_types
from .message_fields import MessageFields, read_fields
from .property_text import STRING, plain_text, text_of

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, BYTES = 1000, 4 * 1024 * 1024
"""About how many rows or bytes a batch has."""
_NO_LIMIT = 2**32 - 1
"""The time to live of a header that means "no limit"."""
_ENQUEUED, _SCHEDULED, _PARTITION = "x-opt-enqueued-time", "x-opt-scheduled-enqueue-time", "x-opt-partition-key"
_IN_COLUMNS = frozenset((_ENQUEUED, _SCHEDULED, _PARTITION, "x-opt-sequence-number", "x-opt-message-state"))
"""Annotations that have columns of their own."""
_TTL, _DELIVERY_COUNT = 2, 4
_FIELDS = {
    "message_id": 0,
    "to": 2,
    "subject": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "session_id": 10,
}
"""The columns that are fields of the properties, by their place there."""
_EXPIRY = 8

STATES = {state: state.name.lower() for state in MessageState}

Keep = Callable[[int | None], bool]
"""Whether a message is wanted, by the time it was enqueued at, in microseconds since 1970."""


def in_batches(pages: Iterable[list[Any]]) -> Iterator[list[Any]]:
    """Pages of peeked messages, joined until they make a batch."""
    some: list[Any] = []
    size = 0
    for page in pages:
        some += page
        size += sum(len(message.payload) for message in page)
        if len(some) >= ROWS or size >= BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


class MessageBatches:
    """Makes Arrow batches with some columns of a message."""

    def __init__(self, names: Sequence[str], nullable: Sequence[bool] | None = None, keep: Keep | None = None) -> None:
        self._names = list(names)
        self._keep = keep
        self._schema = arrow_schema(self._names, nullable)
        self._types = arrow_types()
        self._with_body = BODY in names
        self._with_application = "properties" in names or "property_types" in names
        self._needs_fields = keep is not None or bool(set(names) - {"entity", "sequence_number", "state", "size"})

    def batch(self, entity: str, messages: Sequence[Peeked]) -> pa.RecordBatch:
        """The rows of these messages. Messages that are not wanted have none."""
        import pyarrow as pa

        fields: list[MessageFields] = []
        if self._needs_fields:
            fields = [
                read_fields(message.payload, with_body=self._with_body, with_application=self._with_application)
                for message in messages
            ]
        if self._keep is not None:
            kept = [
                (message, field)
                for message, field in zip(messages, fields, strict=True)
                if self._keep(_micros(field.annotations.get(_ENQUEUED)))
            ]
            messages, fields = [message for message, _ in kept], [field for _, field in kept]
        maps: dict[str, pa.Array] = {}
        if self._with_application:
            maps["properties"], maps["property_types"] = self._maps(
                found.application if found.is_readable else None for found in fields
            )
        if "annotations" in self._names:
            maps["annotations"], _ = self._maps(_rest(found.annotations) for found in fields)
        columns = [
            maps[name]
            if name in maps
            else pa.array(_VALUES[name](entity, messages, fields), self._types[COLUMNS[name]])
            for name in self._names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _maps(self, found: Iterable[Mapping[str, Value] | None]) -> tuple[pa.Array, pa.Array]:
        """A column of maps with the texts of values, and one with their types."""
        import pyarrow as pa

        offsets: list[int | None] = []
        keys: list[str] = []
        texts: list[str | None] = []
        kinds: list[str] = []
        for pairs in found:
            offsets.append(None if pairs is None else len(keys))
            if pairs:
                for key, value in pairs.items():
                    text, kind = (value, STRING) if type(value) is str else text_of(value)
                    keys.append(key)
                    texts.append(text)
                    kinds.append(kind)
        offsets.append(len(keys))
        starts, names, of_maps = pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), self._types[TEXTS]
        first, second = (
            pa.MapArray.from_arrays(starts, names, pa.array(values, pa.string()), of_maps) for values in (texts, kinds)
        )
        return first, second


def _rest(annotations: Mapping[str, Value]) -> Mapping[str, Value]:
    """The annotations that have no column of their own."""
    if annotations.keys() <= _IN_COLUMNS:
        return {}
    return {key: value for key, value in annotations.items() if key not in _IN_COLUMNS}


def _micros(value: Value) -> int | None:
    """A time in microseconds. A time that Spark cannot have counts as none: .NET's "never" is the year 10000."""
    if type(value) is not Timestamp or not -_MOST_MILLIS < value < _MOST_MILLIS:
        return None
    return int(value) * 1000


_MOST_MILLIS = 2**63 // 1000


def _field(place: int) -> Callable[..., list[str | None]]:
    def values(entity: str, messages: Sequence[Peeked], fields: list[MessageFields]) -> list[str | None]:  # noqa: ARG001
        return [
            None if len(found.properties) <= place or (value := found.properties[place]) is None else plain_text(value)
            for found in fields
        ]

    return values


def _time(annotation: str) -> Callable[..., list[int | None]]:
    def values(entity: str, messages: Sequence[Peeked], fields: list[MessageFields]) -> list[int | None]:  # noqa: ARG001
        return [_micros(found.annotations.get(annotation)) for found in fields]

    return values


def _expires_at(found: MessageFields) -> int | None:
    """When the message's time to live ends: it begins when the message is enqueued, or due."""
    ttl = found.header[_TTL] if len(found.header) > _TTL else None
    if isinstance(ttl, int) and ttl < _NO_LIMIT:
        times = found.annotations.get(_ENQUEUED), found.annotations.get(_SCHEDULED)
        born = max((micros for time in times if (micros := _micros(time)) is not None), default=None)
        return None if born is None else born + int(ttl) * 1000
    return _micros(found.properties[_EXPIRY]) if len(found.properties) > _EXPIRY else None


def _partition_key(found: MessageFields) -> str | None:
    value = found.annotations.get(_PARTITION)
    # The SDK writes it as binary when it sends a message again that it has received.
    return value.decode(errors="backslashreplace") if type(value) is bytes else plain_text(value)


def _delivery_count(found: MessageFields) -> int:
    count = found.header[_DELIVERY_COUNT] if len(found.header) > _DELIVERY_COUNT else None
    return min(int(count), 2**31 - 1) if isinstance(count, int) else 0


_VALUES: dict[str, Callable[[str, Sequence[Peeked], list[MessageFields]], list[Any]]] = {
    "entity": lambda entity, messages, fields: [entity] * len(messages),  # noqa: ARG005
    "sequence_number": lambda entity, messages, fields: [message.sequence_number for message in messages],  # noqa: ARG005
    "state": lambda entity, messages, fields: [STATES[message.state] for message in messages],  # noqa: ARG005
    "size": lambda entity, messages, fields: [len(message.payload) for message in messages],  # noqa: ARG005
    **{name: _field(place) for name, place in _FIELDS.items()},
    "partition_key": lambda entity, messages, fields: [_partition_key(found) for found in fields],  # noqa: ARG005
    "enqueued_at": _time(_ENQUEUED),
    "scheduled_for": _time(_SCHEDULED),
    "expires_at": lambda entity, messages, fields: [_expires_at(found) for found in fields],  # noqa: ARG005
    "delivery_count": lambda entity, messages, fields: [_delivery_count(found) for found in fields],  # noqa: ARG005
    "body": lambda entity, messages, fields: [found.body for found in fields],  # noqa: ARG005
}
"""The values of each column that is no map."""
