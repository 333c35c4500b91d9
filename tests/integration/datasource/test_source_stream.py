"""Streams of new messages by sequence number, and streams into an entity, across restarts (X6)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StructType

from syphon.amqp import Timestamp
from syphon.datasource import peek_read as reading
from syphon.datasource.peek_read import ATTEMPTS, BROKEN, SequenceRange, Wanted, plan_ranges
from syphon.datasource.source import ServiceBusDataSource
from syphon.datasource.source_options import BadSourceOptions, parse_options
from syphon.datasource.stream_offsets import NewMessages, NumbersRestarted, Offsets, last_before, shared_rows
from syphon.emulator import Action, Fault, Operation
from syphon.servicebus import connected
from syphon.time_budget import CLOCK_TOLERANCE, STREAM_CHECK_EVERY, STREAM_LIST_EVERY, STREAM_POLL_EVERY
from tests.support.spark_source import SourceBus, message
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def stream(source: SparkSession, bus: SourceBus, entity: str, **options: Any) -> DataFrame:
    return source.readStream.format("servicebus").options(**bus.options(entity, **options)).load()


def numbered(first: int, last: int) -> list[bytes]:
    return [message(b"%d" % number, message_id=str(number)) for number in range(first, last + 1)]


def into_memory(frame: DataFrame, name: str, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    """A stream whose rows a test can see. Batches are kept by number: one that is repeated replaces itself."""
    writer = frame.select("entity", "sequence_number", "message_id", "body").writeStream
    writer = writer.option("checkpointLocation", str(checkpoint)).queryName(name).trigger(**trigger)

    def keep(batch: DataFrame, number: int) -> None:
        KEPT.setdefault(name, {})[number] = [
            (row.entity, row.sequence_number, row.message_id, bytes(row.body)) for row in batch.collect()
        ]

    return writer.foreachBatch(keep).start()


KEPT: dict[str, dict[int, list[tuple[str, int, str, bytes]]]] = {}


def seen(name: str) -> list[int]:
    return sorted(row[1] for batch in KEPT.get(name, {}).values() for row in batch)


TOO_SLOW = "worker failed to connect back"
"""How a stream fails whose Python process needs longer than Spark's fixed ten seconds to start, on a busy machine."""


@contextmanager
def expecting(start: Callable[[], StreamingQuery], name: str) -> Iterator[Callable[[list[int]], None]]:
    """A running stream, and how to wait for what it has seen. It starts again if its Python process was too slow."""
    query = start()

    def expect(numbers: list[int]) -> None:
        def arrived() -> bool:
            nonlocal query
            failure = query.exception()
            if failure is not None:
                assert TOO_SLOW in str(failure), failure
                query = start()
            return seen(name) == numbers

        eventually(arrived, what=lambda: f"{name} has seen {seen(name)}")

    try:
        yield expect
    finally:
        query.stop()


def run_to_its_end(start: Callable[[], StreamingQuery]) -> None:
    """Runs a stream to its end."""
    for tries_left in (2, 1, 0):
        try:
            assert start().awaitTermination(300)
            return
        except Exception as error:
            if not tries_left or TOO_SLOW not in str(error):
                raise


def test_a_stream_goes_on_after_a_restart_with_what_came_between(
    source: SparkSession, bus: SourceBus, tmp_path: Path
) -> None:
    queue = bus.queue("new-messages")
    bus.put(queue, *numbered(1, 5))
    frame = stream(source, bus, queue, bodies=True)

    def start() -> StreamingQuery:
        return into_memory(frame, "restarted", tmp_path, processingTime="0 seconds")

    with expecting(start, "restarted") as expect:
        expect([1, 2, 3, 4, 5])
        bus.put(queue, *numbered(6, 8))
        expect(list(range(1, 9)))
    bus.put(queue, *numbered(9, 12))
    bus.take(queue, [2, 10])
    with expecting(start, "restarted") as expect:
        expect([*range(1, 10), 11, 12])
        bus.put(queue, *numbered(13, 13))
        expect([*range(1, 10), 11, 12, 13])
    rows = [row for batch in KEPT["restarted"].values() for row in batch]
    assert sorted(rows, key=lambda row: row[1])[0] == (queue, 1, "1", b"1")
    assert all(row[2] == str(row[1]) for row in rows)


def test_available_now_reads_what_exists_in_batches_of_some_rows_and_ends(
    source: SparkSession, bus: SourceBus, tmp_path: Path
) -> None:
    queue, other = bus.queue("now"), bus.queue("now-too")
    bus.put(queue, *numbered(1, 25))
    bus.put(other, *numbered(1, 4))
    frame = stream(source, bus, f"{queue},{other}", bodies=True, max_rows=20)
    progress: list[Any] = []

    def start() -> StreamingQuery:
        query = into_memory(frame, "limited", tmp_path, availableNow=True)
        query.awaitTermination(300)
        progress[:] = query.recentProgress
        return query

    run_to_its_end(start)
    batches = [rows for _, rows in sorted(KEPT["limited"].items()) if rows]
    has_limits = find_spec("pyspark.sql.streaming.datasource") is not None  # Spark 4.2 or newer
    assert [len(rows) for rows in batches] == ([20, 9] if has_limits else [29])
    assert sorted(row[:2] for rows in batches for row in rows) == [
        *((queue, number) for number in range(1, 26)),
        *((other, number) for number in range(1, 5)),
    ]
    if has_limits:  # what is still to be read stands beside what was read
        (first,) = [found["sources"][0] for found in progress if found["batchId"] == 0]
        read, newest = json.loads(first["endOffset"]), json.loads(first["latestOffset"])
        assert (numbers(read), newest) == ({queue: 16, other: 4}, {queue: 25, other: 4})


@pytest.mark.parametrize(
    ("waiting", "most", "rows"),
    [
        ({"busy": 1000, "calm": 3}, 60, {"busy": 57, "calm": 3}),
        ({"busy": 1000}, 60, {"busy": 60}),
        ({"a": 50, "b": 50, "c": 1}, 21, {"a": 10, "b": 10, "c": 1}),
        ({"a": 5, "b": 5, "c": 5}, 2, {"a": 1, "b": 1, "c": 1}),
        ({"a": 2, "b": 3}, 100, {"a": 2, "b": 3}),
        ({}, 10, {}),
    ],
)
def test_the_rows_of_a_batch_go_to_the_entities_that_have_them(
    waiting: dict[str, int], most: int, rows: dict[str, int]
) -> None:
    """Of 60 queues, one busy one has nearly all rows of a batch, and not a sixtieth."""
    assert shared_rows(waiting, most) == rows


def test_rows_stream_into_an_entity_once_for_each_epoch(source: SparkSession, bus: SourceBus, tmp_path: Path) -> None:
    queue, target = bus.queue("stream-from"), bus.queue("stream-to")
    frame = stream(source, bus, queue, bodies=True)

    writer = frame.writeStream.format("servicebus").options(**bus.options(target))
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    bus.put(queue, *numbered(1, 30))
    run_to_its_end(writer.start)
    bus.put(queue, *numbered(31, 40))
    run_to_its_end(writer.start)
    run_to_its_end(writer.start)
    assert [str(found.properties().message_id) for found in bus.messages(target)] == [str(n) for n in range(1, 41)]


def test_a_stream_over_a_partitioned_entity_is_refused_in_words(
    source: SparkSession, bus: SourceBus, tmp_path: Path
) -> None:
    queue = bus.queue("wide-stream", enable_partitioning=True)
    bus.spread(queue)
    frame = stream(source, bus, queue, bodies=True)
    with pytest.raises(Exception, match="'wide-stream' is partitioned"):
        run_to_its_end(lambda: into_memory(frame, "wide", tmp_path, availableNow=True))


# --- the offsets, without Spark --------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def numbers(offsets: Offsets) -> Offsets:
    """The offsets without the times at which they were seen."""
    return {entity: number for entity, number in offsets.items() if "#" not in entity}


def new_messages(bus: SourceBus, entity: str, clock: Clock, **options: Any) -> NewMessages:
    return NewMessages(parse_options(bus.options(entity, **options)), clock)


def test_an_idle_stream_peeks_once_per_second_however_often_spark_asks(bus: SourceBus) -> None:
    queue, clock = bus.queue("idle"), Clock()
    found = new_messages(bus, queue, clock)
    for _ in range(100):
        assert numbers(found.latest({queue: 0})) == {queue: 0}
    assert bus.peeks(queue) == 1
    bus.put(queue, *numbered(1, 3))
    clock.time += STREAM_POLL_EVERY
    assert numbers(found.latest({queue: 0})) == {queue: 3}
    found.close()


def test_a_connection_that_was_not_used_for_long_is_reopened(bus: SourceBus) -> None:
    queue, clock = bus.queue("seldom"), Clock()
    found = new_messages(bus, queue, clock)
    for last in (1, 2, 3):
        bus.put(queue, *numbered(last, last))
        assert numbers(found.latest({queue: last - 1})) == {queue: last}
        clock.time += 3600
    found.close()


def test_a_stream_may_begin_with_what_comes_after_its_start(bus: SourceBus) -> None:
    queue, empty, clock = bus.queue("later"), bus.queue("later-empty"), Clock()
    bus.put(queue, *numbered(1, 7))
    late = new_messages(bus, f"{queue},{empty}", clock, start="latest")
    assert numbers(late.first_offsets()) == {queue: 7, empty: 0}
    early = new_messages(bus, queue, clock)
    assert early.first_offsets() == {queue: 0}
    late.close()
    early.close()


def test_a_stream_begins_at_the_numbers_or_the_time_that_are_given(bus: SourceBus) -> None:
    queue, other = bus.queue("begins"), bus.queue("begins-too")
    bus.put(queue, *numbered(1, 50))
    passed = (int(time.time() * 1000) + 10) / 1000  # the broker counts in whole milliseconds
    eventually(lambda: time.time() > passed)
    bus.put(queue, *numbered(51, 60))

    def begins(**options: Any) -> Offsets:
        found = new_messages(bus, f"{queue},{other}", Clock(), **options)
        try:
            return numbers(found.first_offsets())
        finally:
            found.close()

    assert begins(startingOffsets='{"BEGINS": 7}') == {queue: 6, other: 0}
    assert begins(startingOffsets="12") == {queue: 11, other: 11}
    assert begins(startingOffsets="latest") == {queue: 60, other: 0}
    assert begins(first=5) == {queue: 4, other: 4}
    with connected(parse_options(bus.options(queue)).side, queue) as connection:
        assert last_before(connection, queue, passed) == 50
        assert last_before(connection, queue, passed + 3600) == 60
        assert last_before(connection, queue, 0) == 0
        assert last_before(connection, other, passed) == 0
    later = datetime.fromtimestamp(passed + CLOCK_TOLERANCE, UTC)
    assert begins(startingTimestamp=later.isoformat()) == {queue: 50, other: 0}


def test_a_pattern_stands_for_the_queues_that_it_fits_also_for_those_that_are_made_later(bus: SourceBus) -> None:
    first, clock = bus.queue("tier-1/orders"), Clock()
    bus.queue("tiers")
    bus.put(first, *numbered(1, 3))
    found = new_messages(bus, "TIER-*/orders", clock)
    assert numbers(found.latest({})) == {first: 3}
    second = bus.queue("tier-2/orders")
    bus.put(second, *numbered(1, 2))
    clock.time += STREAM_POLL_EVERY
    assert numbers(found.latest({first: 3})) == {first: 3}
    clock.time += STREAM_LIST_EVERY
    end = found.latest({first: 3})
    assert (numbers(end), found.ranges({first: 3}, end)) == ({first: 3, second: 2}, [SequenceRange(second, 1, 2)])
    found.close()
    dead = parse_options(bus.options(f"{first}, tier-*/$DeadLetterQueue"))
    assert [part.entity for part in plan_ranges(dead, Wanted())] == [
        first,
        *(f"{each}/$DeadLetterQueue" for each in (first, second)),
    ]
    with pytest.raises(BadSourceOptions, match=r"no queue fits nothing-\*"):
        plan_ranges(parse_options(bus.options("nothing-*")), Wanted())


@pytest.mark.parametrize("options", [{"last": 9}, {"endingOffsets": "9"}])
def test_a_stream_has_no_end_and_says_so(bus: SourceBus, options: dict[str, Any]) -> None:
    found = ServiceBusDataSource(bus.options("orders", **options))
    with pytest.raises(BadSourceOptions, match="a stream has no end"):
        found.streamReader(StructType())


def test_limits_count_messages_at_most_and_gaps_cost_no_round(bus: SourceBus) -> None:
    queue, clock = bus.queue("limits"), Clock()
    bus.put(queue, *numbered(1, 100))
    bus.take(queue, list(range(1, 90)))
    found = new_messages(bus, queue, clock)
    assert numbers(found.latest({queue: 0}, 5)) == {queue: 94}
    assert numbers(found.latest({queue: 94}, 5)) == {queue: 99}
    assert numbers(found.latest({queue: 99}, 5)) == {queue: 100}
    assert found.ranges({queue: 89}, {queue: 94}) == [SequenceRange(queue, 90, 94)]
    assert found.ranges({}, {queue: 3, "gone": 9}) == [SequenceRange(queue, 1, 3)]
    assert found.ranges({queue: 3}, {queue: 3}) == []
    found.close()


def test_at_present_means_that_later_messages_do_not_count(bus: SourceBus) -> None:
    queue, clock = bus.queue("present"), Clock()
    bus.put(queue, *numbered(1, 5))
    found = new_messages(bus, queue, clock)
    found.stop_at_present()
    bus.put(queue, *numbered(6, 9))
    assert numbers(found.latest({queue: 0}, 3)) == {queue: 3}
    assert numbers(found.latest({queue: 3})) == {queue: 5}
    assert numbers(found.latest({queue: 5})) == {queue: 5}
    bus.take(queue, [4, 5])
    assert numbers(found.latest({queue: 3})) == {queue: 3}
    found.close()


def test_an_entity_keeps_its_offset_however_it_is_spelt_and_when_it_was_not_read_for_a_while(bus: SourceBus) -> None:
    queue, other = bus.queue("spelt"), bus.queue("spelt-too")
    bus.put(queue, *numbered(1, 5))
    bus.put(other, *numbered(1, 5))

    def after(start: Offsets, entity: str) -> tuple[Offsets, list[SequenceRange]]:
        found = new_messages(bus, entity, Clock())
        try:
            return (end := found.latest(start)), found.ranges(start, end)
        finally:
            found.close()

    both, ranges = after({}, "spelt,spelt-too")
    assert [part.last for part in ranges] == [5, 5]
    assert after(both, "SPELT, /Spelt-Too/")[1] == []
    assert after({"SPELT": 4, "spelt-too": 5}, "spelt,spelt-too")[1] == [SequenceRange(queue, 5, 5)]
    bus.put(queue, *numbered(6, 7))
    without, ranges = after(both, "spelt")
    assert ranges == [SequenceRange(queue, 6, 7)]
    bus.put(other, *numbered(6, 6))
    assert after(without, "spelt,spelt-too")[1] == [SequenceRange(other, 6, 6)]


def made_again(bus: SourceBus, queue: str) -> None:
    bus.emulator.call(lambda: bus.broker.delete(queue))
    bus.queue(queue)


def hours_ago(bus: SourceBus, queue: str, hours: float) -> Offsets:
    """The offset of a stream that has seen all messages so many hours ago."""
    found = NewMessages(parse_options(bus.options(queue)), date=lambda: time.time() - hours * 3600)
    try:
        return found.latest({})
    finally:
        found.close()


def test_an_entity_that_was_deleted_and_made_again_is_an_error_and_not_a_silence(bus: SourceBus) -> None:
    queue, clock = bus.queue("reborn"), Clock()
    bus.put(queue, *numbered(1, 5))
    start = hours_ago(bus, queue, 2)
    made_again(bus, queue)
    found = new_messages(bus, queue, clock)
    assert found.latest(start) == start  # nothing is there yet
    bus.put(queue, *numbered(1, 3))
    assert found.latest(start) == start  # it is looked for from time to time
    clock.time += STREAM_CHECK_EVERY
    with pytest.raises(NumbersRestarted, match=r"'reborn' was deleted and created again: its message 1 .* number 5"):
        found.latest(start)
    found.close()
    bus.put(queue, *numbered(4, 9))
    available_now = new_messages(bus, queue, clock)
    available_now.stop_at_present()
    with pytest.raises(NumbersRestarted):
        available_now.latest(start)
    available_now.close()


def test_a_stream_may_continue_with_an_entity_that_was_made_again(
    bus: SourceBus, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bus.queue("reborn-and-read")
    bus.put(queue, *numbered(1, 5))
    start = hours_ago(bus, queue, 2)
    made_again(bus, queue)
    bus.put(queue, *numbered(1, 9))
    found = new_messages(bus, queue, Clock(), failOnDataLoss="false")
    end = found.latest(start)
    assert found.ranges(start, end) == [SequenceRange(queue, 1, 9)]
    assert "the stream continues with the first message" in caplog.text
    bus.put(queue, *numbered(10, 11))
    assert found.ranges(end, found.latest(end)) == [SequenceRange(queue, 10, 11)]
    found.close()


def test_the_newest_message_tells_that_numbers_have_begun_again_if_the_first_is_not_ours_to_judge(
    bus: SourceBus,
) -> None:
    queue = bus.queue("reborn-with-a-schedule")
    bus.put(queue, *numbered(1, 9))
    start = hours_ago(bus, queue, 2)
    made_again(bus, queue)
    due = Timestamp(int(time.time() + 3600) * 1000)
    bus.put(queue, message(annotations={"x-opt-scheduled-enqueue-time": due}), *numbered(2, 4))
    found = new_messages(bus, queue, Clock())
    with pytest.raises(NumbersRestarted, match="its message 4 "):
        found.latest(start)
    found.close()


def test_an_entity_that_is_the_same_is_never_taken_for_another(bus: SourceBus) -> None:
    queue, clock = bus.queue("same"), Clock()
    bus.put(queue, *numbered(1, 9))
    start = hours_ago(bus, queue, 0.2)  # the clocks of driver and service differ
    found = new_messages(bus, queue, clock)
    assert found.latest(start) == start
    bus.take(queue, [9])
    clock.time += STREAM_CHECK_EVERY
    assert found.latest(start) == start
    assert found.latest({queue: 9}) == {queue: 9}  # a checkpoint without times
    found.close()


def refuse_connections(bus: SourceBus, times: int) -> None:
    bus.emulator.call(lambda: bus.broker.faults.add(Fault(Action.REFUSE, Operation.CONNECT, times=times)))


def test_a_refused_connection_does_not_end_a_stream_or_a_plan(bus: SourceBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PEEK_RETRY_AFTER", 0.01)
    queue = bus.queue("refused-once")
    bus.put(queue, *numbered(1, 3))
    found = new_messages(bus, queue, Clock())
    refuse_connections(bus, ATTEMPTS - 1)
    assert numbers(found.latest({})) == {queue: 3}
    found.close()
    refuse_connections(bus, ATTEMPTS - 1)
    assert plan_ranges(parse_options(bus.options(queue)), Wanted()) == [SequenceRange(queue, 1, 3, is_open=True)]


def test_an_unreachable_namespace_ends_a_plan_after_some_tries(bus: SourceBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PEEK_RETRY_AFTER", 0.01)
    queue = bus.queue("refused-always")
    refuse_connections(bus, ATTEMPTS)
    with pytest.raises(BROKEN):
        plan_ranges(parse_options(bus.options(queue)), Wanted())
    assert plan_ranges(parse_options(bus.options(queue)), Wanted()) == [SequenceRange(queue, 1, 1, is_open=True)]
