"""Makes messages of rows. Every column may be missing or null; what only a broker can write is passed over.

Rows come by column, as lists of plain values: times in microseconds since 1970, maps as pairs. No clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from syphon.amqp import (
    Header,
    Map,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UInt,
    Value,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
)

from .columns import COLUMNS, WRITTEN
from .property_text import STRING, UnreadableText, value_of

if TYPE_CHECKING:
    import pyarrow as pa

BROKERS = "x-opt-"
"""Annotations of this prefix are the broker's, or have a column of their own."""
_UINT_MAX = 2**32 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Columns = dict[str, list[Any]]


class BadRow(ValueError):
    """A row that cannot be a message, and why."""


class RowMessage(NamedTuple):
    """A message made of a row, and what decides about its batch."""

    payload: bytes
    message_id: str | None
    session_id: str | None
    partition_key: str | None


def columns_of_batch(batch: pa.RecordBatch) -> Columns:
    """The columns of an Arrow batch that a write uses."""
    import pyarrow as pa

    columns: Columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in WRITTEN:
            columns[name] = (column.cast(pa.int64()) if COLUMNS[name] == "timestamp" else column).to_pylist()
    return columns


def columns_of_rows(rows: Sequence[Any]) -> Columns:
    """The same of Spark's rows, as Spark 4.0 gives them to a writer of streams."""
    names = [name for name in rows[0].__fields__ if name in WRITTEN] if rows else []
    return {name: [_plain(row[name]) for row in rows] for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, datetime):  # without a zone it is the machine's: `astimezone` knows it
        return (value.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
    return bytes(value) if isinstance(value, bytearray) else value


def row_dicts(columns: Columns) -> Iterable[Mapping[str, Any]]:
    names = list(columns)
    return (dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True))


def message_of(row: Mapping[str, Any], now: int) -> RowMessage:
    """The message of a row. `now` is milliseconds since 1970. Raises BadRow."""
    get = row.get
    session_id, partition_key = get("session_id"), get("partition_key")
    if session_id is not None and partition_key is not None and session_id != partition_key:
        raise BadRow(f"partition_key {partition_key!r:.60} is not the session_id {session_id!r:.60}")
    message_id = get("message_id")
    life, expiry = _life(get("expires_at"), get("scheduled_for"), now)
    properties = Properties(
        message_id=message_id,
        to=get("to"),
        subject=get("subject"),
        reply_to=get("reply_to"),
        correlation_id=get("correlation_id"),
        content_type=_symbol("content_type", get("content_type")),
        absolute_expiry_time=expiry,
        creation_time=None if expiry is None else Timestamp(now),
        group_id=session_id,
    )
    parts = [b"" if life is None else header_bytes(Header(ttl=life))]
    if annotations := _annotations(partition_key, get("scheduled_for"), get("annotations")):
        parts.append(section_bytes(Section.MESSAGE_ANNOTATIONS, Map(tuple(annotations))))
    parts.append(properties_bytes(properties))
    if pairs := get("properties"):
        parts.append(section_bytes(Section.APPLICATION_PROPERTIES, _application(pairs, get("property_types"))))
    elif get("property_types"):
        raise BadRow("property_types has names, and properties has none")
    body = get("body")
    parts.append(data_section(b"" if body is None else body.encode() if isinstance(body, str) else body))
    return RowMessage(b"".join(parts), message_id, session_id, partition_key)


def _life(expires_at: int | None, scheduled_for: int | None, now: int) -> tuple[UInt | None, Timestamp | None]:
    """The time to live of a header, and for one that is longer than its 49 days the time at which it ends."""
    if expires_at is None:
        return None, None
    born = now if scheduled_for is None else max(now, scheduled_for // 1000)
    life = expires_at // 1000 - born
    if life <= 0:
        raise BadRow(f"expires_at is {-life} ms before the message would be there")
    return UInt(min(life, _UINT_MAX)), None if life <= _UINT_MAX else Timestamp(born + life)


def _annotations(
    partition_key: str | None, scheduled_for: int | None, others: Sequence[tuple[str, str | None]] | None
) -> list[tuple[Value, Value]]:
    found: list[tuple[Value, Value]] = []
    if partition_key is not None:
        found.append((Symbol("x-opt-partition-key"), partition_key))
    if scheduled_for is not None:
        found.append((Symbol("x-opt-scheduled-enqueue-time"), Timestamp(scheduled_for // 1000)))
    for name, value in others or ():
        if not name.startswith(BROKERS):
            found.append((_symbol("the name of an annotation", name), value))
    return found


def _application(pairs: Sequence[tuple[str, str | None]], types: Sequence[tuple[str, str | None]] | None) -> Map:
    if not types:
        return Map(tuple(pairs))
    kinds = dict(types)
    found: list[tuple[Value, Value]] = []
    for name, text in pairs:
        kind = kinds.pop(name, None)
        try:
            found.append(
                (name, text if kind is None or (kind == STRING and text is not None) else value_of(text, kind))
            )
        except UnreadableText as error:
            raise BadRow(f"property {name!r:.60}: {error}") from None
    if kinds:
        raise BadRow(f"property_types has {next(iter(kinds))!r:.60}, and properties has not")
    return Map(tuple(found))


def _symbol(what: str, text: str | None) -> Symbol | None:
    if text is None:
        return None
    if not text.isascii():
        raise BadRow(f"{what} is not ASCII: {text!r:.60}")
    return Symbol(text)
