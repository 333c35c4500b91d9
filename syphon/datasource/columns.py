"""The columns of a message: their names and types in Spark and Arrow. Nothing here needs Spark at import."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from syphon.model import SyphonError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TEXTS = "map<string,string>"
COLUMNS: dict[str, str] = {
    "entity": "string",
    "sequence_number": "bigint",
    "message_id": "string",
    "session_id": "string",
    "partition_key": "string",
    "subject": "string",
    "to": "string",
    "reply_to": "string",
    "correlation_id": "string",
    "content_type": "string",
    "enqueued_at": "timestamp",
    "scheduled_for": "timestamp",
    "expires_at": "timestamp",
    "delivery_count": "int",
    "state": "string",
    "size": "bigint",
    "properties": TEXTS,
    "property_types": TEXTS,
    "annotations": TEXTS,
    "body": "binary",
}
"""Every column of a message that is read, with its Spark type."""
BODY = "body"
BY_THE_BROKER = ("entity", "sequence_number", "enqueued_at", "delivery_count", "state", "size")
"""Columns that only a read fills. A write passes over them, so that rows that were read can be written elsewhere."""
WRITTEN = tuple(name for name in COLUMNS if name not in BY_THE_BROKER)
"""The columns that a write uses. Each may be missing."""


class WrongColumns(SyphonError):
    """The columns are not those of a message."""


def ddl(names: Iterable[str]) -> str:
    """The Spark schema of these columns."""
    return ", ".join(f"`{name}` {COLUMNS[name]}" for name in names)


def read_names(schema: StructType) -> list[str]:
    """The selected columns of a read. Raises WrongColumns if one is unknown or has another type."""
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in schema.fields
        if COLUMNS.get(field.name) != field.dataType.simpleString()
    ]
    if wrong:
        known = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        raise WrongColumns(f"A message has no such column: {', '.join(wrong)}. The columns are {known}.")
    return schema.fieldNames()


def check_written(schema: StructType) -> None:
    """Raises WrongColumns if rows with these columns cannot be messages."""
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    unknown = [name for name in found if name not in COLUMNS]
    wrong = [
        f"{name} is {kind} and must be {' or '.join(_taken(name))}"
        for name, kind in found.items()
        if name in WRITTEN and kind not in _taken(name)
    ]
    if unknown:
        wrong.append(f"{', '.join(unknown)}: no column of a message; a write uses {', '.join(WRITTEN)}")
    if not any(name in WRITTEN for name in found):
        wrong.append(f"none of the columns says what to send: {', '.join(WRITTEN)}")
    if wrong:
        raise WrongColumns(f"These rows cannot be written as messages: {'; '.join(wrong)}.")


def _taken(name: str) -> tuple[str, ...]:
    """The types that a write takes for a column: text may be a body, as UTF-8."""
    return (COLUMNS[name], "string") if name == BODY else (COLUMNS[name],)


def arrow_schema(names: Sequence[str], nullable: Sequence[bool] | None = None) -> pa.Schema:
    """The Arrow schema that Spark expects of these columns."""
    import pyarrow as pa

    flags = nullable or [True] * len(names)
    kinds = arrow_types()
    return pa.schema([pa.field(name, kinds[COLUMNS[name]], flag) for name, flag in zip(names, flags, strict=True)])


def arrow_types() -> dict[str, Any]:
    """The Arrow type of each Spark type that a message's columns have."""
    import pyarrow as pa

    key, value = pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())
    return {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "binary": pa.binary(),
        TEXTS: pa.map_(key, value),
    }
