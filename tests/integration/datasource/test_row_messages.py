"""Rows as messages: what is written is what a read shows again, every AMQP type included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from syphon.amqp import Long, Map, Message, Section, Symbol, Timestamp, UInt, Value, section_bytes
from syphon.datasource.columns import COLUMNS, WRITTEN, WrongColumns, arrow_schema, check_written, read_names
from syphon.datasource.message_batches import MessageBatches
from syphon.datasource.row_messages import BadRow, columns_of_batch, columns_of_rows, message_of, row_dicts
from syphon.servicebus.peek_reply import MessageState, Peeked
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import values
from tests.support.property_kinds import TYPES
from tests.support.spark_source import message

NOW = 1_700_000_000_000
STAMPS = {Symbol("x-opt-enqueued-time"): Timestamp(NOW), Symbol("x-opt-sequence-number"): Long(1)}
names = st.text(max_size=20)
texts = st.none() | st.text(max_size=20)
ascii_texts = st.none() | st.text(st.characters(max_codepoint=127), max_size=20)


def read_back(payload: bytes) -> pa.RecordBatch:
    """The row of a message that a broker has stamped, and left as it is otherwise."""
    found = Message(payload)
    stamps = Map((*found.annotations().pairs, *STAMPS.items()))
    stamped = found.replace(Section.MESSAGE_ANNOTATIONS, section_bytes(Section.MESSAGE_ANNOTATIONS, stamps))
    return MessageBatches(WRITTEN).batch("orders", [Peeked(stamped, 1, MessageState.ACTIVE)])


@given(
    st.fixed_dictionaries(
        {
            "message_id": texts,
            "session_id": texts,
            "subject": texts,
            "to": texts,
            "reply_to": texts,
            "correlation_id": texts,
            "content_type": ascii_texts,
            "scheduled_for": st.none() | st.integers(NOW, 4 * NOW).map(lambda millis: millis * 1000),
            "expires_at": st.none() | st.integers(5 * NOW, 6 * NOW).map(lambda millis: millis * 1000),
            "annotations": st.dictionaries(st.text(st.characters(max_codepoint=127)), texts, max_size=3).map(
                lambda found: [(name, text) for name, text in found.items() if not name.startswith("x-opt-")]
            ),
            "body": st.binary(max_size=300),
        }
    ),
    st.dictionaries(names, values, max_size=4),
)
def test_a_row_is_the_same_after_its_way_through_a_message(row: dict[str, Any], properties: dict[str, Value]) -> None:
    sent = message(b"", properties) if properties else message(b"")
    typed = MessageBatches(["properties", "property_types"]).batch("", [Peeked(sent, 1, MessageState.ACTIVE)])
    row = {**row, **{name: typed.column(name)[0].as_py() for name in ("properties", "property_types")}}
    row["partition_key"] = row["session_id"]
    made = message_of(row, NOW)
    assert_same(list(Message(made.payload).application_properties()), list(properties.items()))
    (again,) = row_dicts(columns_of_batch(read_back(made.payload)))
    assert {**again, "body": bytes(again["body"])} == row


def test_every_type_of_property_arrives_as_it_was() -> None:
    sent = Peeked(message(b"", dict(TYPES)), 1, MessageState.ACTIVE)
    batch = MessageBatches(WRITTEN).batch("orders", [sent])
    (row,) = row_dicts(columns_of_batch(batch))
    assert_same(list(Message(message_of(row, NOW).payload).application_properties()), list(TYPES.items()))


def test_single_rows_of_spark_are_the_same_as_arrow_batches() -> None:
    batch = MessageBatches(WRITTEN).batch(
        "orders", [Peeked(message(b"x", dict(TYPES), {"mine": "yes"}, message_id="m"), 1, MessageState.ACTIVE)]
    )
    (row,) = batch.to_pylist()
    single = Row(**{name: dict(value) if isinstance(value, list) else value for name, value in row.items()})
    assert columns_of_rows([single, single]) == {name: each * 2 for name, each in columns_of_batch(batch).items()}
    assert columns_of_rows([]) == {}


def test_times_of_single_rows_count_in_microseconds() -> None:
    moment = 1_700_000_000_123_456
    naive = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).astimezone().replace(tzinfo=None)
    assert columns_of_rows([Row(expires_at=naive)]) == {"expires_at": [moment]}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"properties": [("count", "five")], "property_types": [("count", "int")]},
            "property 'count': 'five' is not a valid int",
        ),
        ({"properties": [("a", "1")], "property_types": [("b", "int")]}, "property_types has 'b'"),
        ({"property_types": [("b", "int")]}, "properties has none"),
        ({"session_id": "a", "partition_key": "b"}, "partition_key 'b' is not the session_id 'a'"),
        ({"expires_at": NOW * 1000}, "expires_at is 0 ms before"),
        ({"content_type": "ü"}, "content_type is not ASCII"),
        ({"annotations": [("ü", "x")]}, "the name of an annotation is not ASCII"),
    ],
)
def test_a_row_that_can_be_no_message_says_why(row: dict[str, Any], words: str) -> None:
    with pytest.raises(BadRow, match=words):
        message_of(row, NOW)


def test_a_life_longer_than_49_days_is_written_as_a_time_too() -> None:
    made = Message(message_of({"expires_at": (NOW + 2**33) * 1000}, NOW).payload)
    assert made.header().ttl == UInt(2**32 - 1)
    assert made.properties().absolute_expiry_time == NOW + 2**33
    assert made.properties().creation_time == NOW
    short = Message(message_of({"expires_at": (NOW + 5) * 1000}, NOW).payload)
    assert (short.header().ttl, short.properties().absolute_expiry_time) == (5, None)


def test_text_may_be_a_body_and_nothing_an_empty_one() -> None:
    assert Message(message_of({"body": "ü"}, NOW).payload).read(Section.DATA) == b"\xc3\xbc"
    assert Message(message_of({}, NOW).payload).read(Section.DATA) == b""


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_columns_are_checked_before_anything_is_sent() -> None:
    text, number = StringType(), LongType()
    check_written(schema_of(body=text, message_id=text, sequence_number=number, state=number))
    with pytest.raises(WrongColumns, match=r"message_id is bigint and must be string; price: no column of a message"):
        check_written(schema_of(message_id=number, price=number))
    with pytest.raises(WrongColumns, match="none of the columns says what to send"):
        check_written(schema_of(sequence_number=number))


def test_the_arrow_schema_is_the_one_that_spark_makes() -> None:
    texts = MapType(StringType(), StringType())
    kinds = [StringType(), LongType(), IntegerType(), TimestampType(), texts, BinaryType()]
    by_name: dict[str, DataType] = {kind.simpleString(): kind for kind in kinds}
    schema = schema_of(**{name: by_name[kind] for name, kind in COLUMNS.items()})
    assert to_arrow_schema(schema, timezone="UTC").equals(arrow_schema(list(COLUMNS)))
    assert read_names(schema) == list(COLUMNS)
