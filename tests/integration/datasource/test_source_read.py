"""`spark.read.format("servicebus")`: rows of messages by peeking, and nothing is changed (X6)."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from syphon.amqp import Header, Int, Long, Symbol, Timestamp, UInt
from syphon.datasource.columns import COLUMNS
from syphon.datasource.peek_read import Wanted, pages_of, plan_ranges
from syphon.datasource.source_options import parse_options
from tests.support.property_kinds import TYPES
from tests.support.spark_source import SourceBus, message
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
CAN_PUSH = not pyspark.__version__.startswith("4.0")
"""Spark 4.0 pushes no filters down to Python."""


def read(source: SparkSession, bus: SourceBus, entity: str, **options: Any) -> DataFrame:
    return source.read.format("servicebus").options(**bus.options(entity, **options)).load()


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def test_a_message_is_a_row_with_everything_it_says(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("columns")
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    bus.put(
        queue,
        message(
            b"\x00body\xff",
            {"color": "red", "count": Long(3), "none": None},
            {
                "x-opt-partition-key": "alice",
                "x-opt-scheduled-enqueue-time": Timestamp(due.timestamp() * 1000),
                "mine": Int(1),
            },
            Header(ttl=UInt(60_000)),
            message_id="m1",
            to="there",
            subject="s",
            reply_to="back",
            correlation_id=Symbol("c"),
            content_type=Symbol("text/plain"),
            group_id="alice",
        ),
    )
    frame = read(source, bus, queue, bodies=True)
    assert frame.dtypes == list(COLUMNS.items())
    (row,) = frame.selectExpr("*", "unix_micros(scheduled_for) due", "unix_micros(expires_at) expiry").collect()
    assert (row.entity, row.sequence_number, row.message_id, row.session_id) == (queue, 1, "m1", "alice")
    assert (row.partition_key, row.subject, row.to, row.reply_to) == ("alice", "s", "there", "back")
    assert (row.correlation_id, row.content_type, row.delivery_count, row.state) == ("c", "text/plain", 0, "scheduled")
    assert row.properties == {"color": "red", "count": "3", "none": None}
    assert row.property_types == {"color": "string", "count": "long", "none": "null"}
    assert row.annotations == {"mine": "1"}
    assert bytes(row.body) == b"\x00body\xff"
    assert row.size == len(bus.payloads(queue)[0])
    assert (row.due, row.expiry) == (micros(due), micros(due) + 60_000_000)
    assert row.enqueued_at is not None


def test_a_bare_message_has_nulls_and_empty_maps(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("bare")
    bus.put(queue, message(b""))
    (row,) = read(source, bus, queue, bodies=True).collect()
    empty = ("session_id", "partition_key", "subject", "to", "reply_to", "correlation_id", "content_type")
    assert [row[name] for name in (*empty, "scheduled_for", "expires_at")] == [None] * 9
    assert (row.properties, row.property_types, row.annotations, bytes(row.body)) == ({}, {}, {}, b"")


def test_bytes_that_are_no_message_are_a_row_with_what_the_broker_wrote(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("broken")
    bus.put(queue, message(b"before"), b"\x00\x53\x73\xffnot AMQP", message(b"after"))
    rows = read(source, bus, queue, bodies=True).orderBy("sequence_number").collect()
    assert [row.sequence_number for row in rows] == [1, 2, 3]
    assert (rows[1].properties, rows[1].body, rows[1].state) == (None, None, "active")
    assert rows[1].enqueued_at is not None
    assert [bytes(rows[place].body) for place in (0, 2)] == [b"before", b"after"]


def test_bodies_come_only_on_request_and_a_schema_chooses_columns(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("chosen")
    bus.put(queue, message(b"one", message_id="m1"))
    assert "body" not in read(source, bus, queue).columns
    some = (
        source.read.format("servicebus").options(**bus.options(queue)).schema("body binary, message_id string").load()
    )
    assert [(bytes(row.body), row.message_id) for row in some.collect()] == [(b"one", "m1")]
    with pytest.raises(Exception, match="A message has no such column: sequence_number string, price int"):
        source.read.format("servicebus").options(**bus.options(queue)).schema(
            "sequence_number string, price int"
        ).load().collect()


def test_queues_subscriptions_and_dead_letters_are_read_together(source: SparkSession, bus: SourceBus) -> None:
    queue, subscription = bus.queue("orders"), bus.subscription("news", "all")
    dead = f"{queue}/$DeadLetterQueue"
    for path, count in ((queue, 3), (subscription, 2), (dead, 1)):
        bus.put(path, *(message(message_id=f"{path} {number}") for number in range(count)))
    frame = read(source, bus, f"{queue}, {subscription},{dead}, {bus.queue('empty')}, /{queue.upper()}/")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted((row.entity, row.sequence_number, row.message_id) for row in frame.collect()) == sorted(
        (path, number + 1, f"{path} {number}")
        for path, count in ((queue, 3), (subscription, 2), (dead, 1))
        for number in range(count)
    )


def test_an_empty_entity_has_no_rows(source: SparkSession, bus: SourceBus) -> None:
    assert read(source, bus, bus.queue("nothing"), bodies=True).collect() == []


def test_a_long_queue_is_read_in_ranges_whatever_gaps_it_has(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("long")
    bus.put(queue, *(message(message_id=str(number)) for number in range(1, 1001)))
    gone = [*range(1, 40), *range(300, 700), 1000]
    bus.take(queue, gone)
    frame = read(source, bus, queue, partition_size=100)
    assert frame.rdd.getNumPartitions() == 10
    rows = frame.collect()
    left = sorted(set(range(1, 1001)) - set(gone))
    assert sorted(row.sequence_number for row in rows) == left
    assert all(row.message_id == str(row.sequence_number) for row in rows)


@pytest.mark.parametrize("pushes", [False, True])
def test_filters_choose_the_same_rows_pushed_down_or_not(source: SparkSession, bus: SourceBus, pushes: bool) -> None:
    queue = bus.queue(f"filtered-{pushes}")
    bus.put(queue, *(message(subject=str(number % 3)) for number in range(500)))
    source.conf.set(PUSHDOWN, "true")
    try:

        def numbers(condition: str) -> list[int]:
            frame = read(source, bus, queue, pushdown=pushes)
            rows = frame.where(condition).select("sequence_number").collect()
            return sorted(row.sequence_number for row in rows)

        assert numbers("sequence_number > 490") == list(range(491, 501))
        cost = bus.peeks(queue)
        assert cost < 60 if pushes and CAN_PUSH else cost >= 500
        assert numbers("sequence_number >= 3 and sequence_number < 5 and subject = '0'") == [4]
        assert numbers("sequence_number = 7") == [7]
        assert numbers("sequence_number in (7, 9)") == [7, 9]
        assert numbers("sequence_number <> 7 and sequence_number <= 8") == [1, 2, 3, 4, 5, 6, 8]
        assert numbers("sequence_number > 500 or sequence_number = 1") == [1]
        assert numbers("sequence_number > 9 and sequence_number < 9") == []
        assert numbers("sequence_number < 0") == []
        assert numbers("sequence_number > 9223372036854775806") == []
        assert numbers("enqueued_at < now() - interval 1 hour") == []
        assert numbers("enqueued_at >= now() - interval 1 hour") == list(range(1, 501))
        assert numbers("enqueued_at is null") == []
        assert numbers("enqueued_at > timestamp'2020-01-01 00:00:00+05:00' and sequence_number <= 2") == [1, 2]
    finally:
        source.conf.unset(PUSHDOWN)


def test_without_pushdown_a_filter_counts_for_its_own_query_alone(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("filtered-twice")
    bus.put(queue, *(message() for _ in range(50)))
    source.conf.set(PUSHDOWN, "true")  # users switch it on for other sources
    try:
        frame = read(source, bus, queue)
        assert frame.where("sequence_number > 49").count() == 1
        assert frame.count() == 50
        assert frame.where("sequence_number = 5").union(frame.where("sequence_number >= 49")).union(frame).count() == 53
    finally:
        source.conf.unset(PUSHDOWN)


def test_options_bound_the_numbers_of_a_read(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("bounded")
    bus.put(queue, *(message() for _ in range(200)))
    frame = read(source, bus, queue, first=191, last=195)
    assert sorted(row.sequence_number for row in frame.collect()) == [191, 192, 193, 194, 195]
    assert bus.peeks(queue) < 60
    assert read(source, bus, queue, first=198).count() == 3
    assert read(source, bus, queue, first=5, last=4).count() == 0


def test_options_of_other_connectors_bound_a_read_for_each_entity(source: SparkSession, bus: SourceBus) -> None:
    queue, other = bus.queue("from-here"), bus.queue("from-there")
    bus.put(queue, *(message() for _ in range(9)))
    bus.put(other, *(message() for _ in range(9)))
    begins, ends = {queue.upper(): 3, other: 8}, {queue: 6}
    frame = read(source, bus, f"{queue},{other}", startingOffsets=json.dumps(begins), endingOffsets=json.dumps(ends))
    bus.put(queue, message())  # beyond the end
    bus.put(other, message())
    found = sorted((row.entity, row.sequence_number) for row in frame.select("entity", "sequence_number").collect())
    assert found == [(queue, 3), (queue, 4), (queue, 5), (other, 8), (other, 9), (other, 10)]
    passed = (int(time.time() * 1000) + 10) / 1000  # the broker counts in whole milliseconds
    eventually(lambda: time.time() > passed)
    bus.put(queue, message())
    late = read(source, bus, queue, startingTimestamp=datetime.fromtimestamp(passed, UTC).isoformat())
    assert [row.sequence_number for row in late.collect()] == [11]
    assert read(source, bus, queue, startingTimestamp=int(passed * 1000)).count() == 1
    with pytest.raises(Exception, match="a table has no messages after the latest"):
        read(source, bus, queue, startingOffsets="latest").count()


def test_each_evaluation_looks_again(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("growing")
    bus.put(queue, message())
    frame = read(source, bus, queue)
    assert frame.count() == 1
    bus.put(queue, message())
    assert frame.count() == 2


def test_a_read_locks_and_changes_nothing(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("unchanged")
    bus.put(queue, *(message(properties=dict(TYPES)) for _ in range(5)))
    before = bus.payloads(queue)
    frame = read(source, bus, queue, bodies=True)
    assert frame.count() == 5
    assert {frozenset(row.properties) for row in frame.collect()} == {frozenset(TYPES)}
    assert bus.payloads(queue) == before
    assert bus.emulator.call(lambda: bus.broker.runtime(queue).active) == 5


def test_a_partitioned_entity_is_read_as_a_whole(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("wide", enable_partitioning=True)
    bus.spread(queue)
    numbers = sorted(row.sequence_number for row in read(source, bus, queue, partition_size=10).collect())
    assert len(set(numbers)) == len(numbers) == 60
    some = parse_options(bus.options(queue, first=numbers[20], last=numbers[39]))
    (part,) = plan_ranges(some, Wanted())
    found = [number for page in pages_of(some.side, part) for number in (each.sequence_number for each in page)]
    assert sorted(found) == numbers[20:40], "the numbers of a query count here, too"


def test_an_entity_that_is_missing_is_an_error_with_its_name(source: SparkSession, bus: SourceBus) -> None:
    with pytest.raises(Exception, match="no-such-queue") as caught:
        read(source, bus, "no-such-queue").count()
    assert "a-key-that" not in str(caught.value)
