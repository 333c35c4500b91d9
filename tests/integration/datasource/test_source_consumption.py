"""A consuming stream: each message is in one batch of its checkpoint, and is completed after that, whatever dies."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from syphon.datasource import consumption
from syphon.datasource.consumption import (
    BATCH,
    Consumed,
    ConsumedOffset,
    Consumption,
    numbers_in,
    ranges_of,
    read_consumed,
)
from syphon.datasource.peek_read import PartitionedEntity
from syphon.datasource.source import ServiceBusDataSource
from syphon.datasource.source_options import BadSourceOptions, parse_options
from syphon.datasource.stream_offsets import NewMessages
from syphon.emulator import Action, Fault, Operation
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.refusals import NotAllowed
from syphon.model import SyphonError
from syphon.servicebus import MessageState, connected, peek_pages
from syphon.time_budget import DEFERRED_RETRY_AFTER, LONGEST_LOCK
from tests.support.processes import Running
from tests.support.quick_java import quick_java
from tests.support.spark_source import SourceBus, message
from tests.support.waiting import eventually

pytestmark = [pytest.mark.spark4, pytest.mark.timeout(600)]
NOTHING: ConsumedOffset = {BATCH: 0}


class Stream:
    """A consuming stream as Spark runs it, without Spark: it can be killed between any two steps."""

    def __init__(self, bus: SourceBus, entity: str, **options: Any) -> None:
        self.options = parse_options(bus.options(entity, consume=True, **options))
        self.consumption = Consumption(self.options)
        self.delivered: list[int] = []

    def killed(self) -> None:
        """Dies, and is started again."""
        self.consumption.close()
        self.consumption = Consumption(self.options)

    def read(self, end: ConsumedOffset) -> list[int]:
        """Reads a batch, as the executors do."""
        parts = self.consumption.parts(end)
        return [number for part in parts for number in rows(self.options, part)]


def rows(options: Any, part: Consumed) -> Iterator[int]:
    for batch in read_consumed(options.side, part, ["sequence_number"], [True]):
        yield from batch.column(0).to_pylist()


@pytest.fixture
def stream(bus: SourceBus, request: pytest.FixtureRequest) -> Iterator[Stream]:
    name = request.node.name.removeprefix("test_")[:40]
    found = Stream(bus, bus.queue(name), max_rows=50)
    yield found
    found.consumption.close()


def put(bus: SourceBus, stream: Stream, first: int, last: int) -> None:
    payloads = [message(b"%d" % number, message_id=str(number)) for number in range(first, last + 1)]
    bus.put(stream.options.entity, *payloads)


def states(bus: SourceBus, stream: Stream) -> Counter[str]:
    with connected(stream.options.side, stream.options.entity) as connection:
        pages = peek_pages(connection, stream.options.entity)
        return Counter(MessageState(each.state).name for page in pages for each in page)


def test_messages_are_deferred_then_read_and_completed_when_the_next_batch_begins(
    bus: SourceBus, stream: Stream
) -> None:
    put(bus, stream, 1, 80)
    first = stream.consumption.latest(NOTHING, 50)
    assert stream.read(first) == list(range(1, 51))
    assert states(bus, stream) == {"DEFERRED": 50, "ACTIVE": 30}
    second = stream.consumption.latest(first, 50)
    assert stream.read(second) == list(range(51, 81))
    assert states(bus, stream) == {"DEFERRED": 30}
    assert stream.consumption.latest(second, 50) == second
    assert states(bus, stream) == {}


def test_a_stream_that_is_killed_before_its_offset_is_written_finds_what_it_has_deferred(
    bus: SourceBus, stream: Stream
) -> None:
    put(bus, stream, 1, 30)
    lost = stream.consumption.latest(NOTHING, 20)
    stream.killed()
    again = stream.consumption.latest(NOTHING, 50)
    assert numbers_in(lost, stream.options.entity) == list(range(1, 21))
    assert stream.read(again) == list(range(1, 31))


def test_a_batch_that_is_repeated_has_the_same_messages_although_others_have_come(
    bus: SourceBus, stream: Stream
) -> None:
    put(bus, stream, 1, 20)
    end = stream.consumption.latest(NOTHING, 50)
    stream.killed()
    put(bus, stream, 21, 25)
    assert stream.read(end) == list(range(1, 21))
    after = stream.consumption.latest(end, 50)
    assert stream.read(after) == list(range(21, 26))


def test_a_stream_that_is_killed_after_a_commit_completes_first_and_delivers_nothing_twice(
    bus: SourceBus, stream: Stream
) -> None:
    put(bus, stream, 1, 20)
    end = stream.consumption.latest(NOTHING, 50)
    stream.killed()
    assert stream.consumption.latest(end, 50) == end
    assert states(bus, stream) == {}


def test_what_cannot_be_completed_yet_stays_in_the_offset_until_it_can(bus: SourceBus, stream: Stream) -> None:
    """As after a kill between the lock and the completion: nobody can have the message until the lock expires."""
    put(bus, stream, 1, 4)
    end = stream.consumption.latest(NOTHING, 50)
    queue = bus.broker.message_queue(stream.options.entity)
    (locked,) = bus.emulator.call(lambda: queue.receive_deferred([2], deletes=False))
    put(bus, stream, 5, 5)
    after = stream.consumption.latest(end, 50)
    assert (stream.read(after), after[f"{stream.options.entity}#unsettled"]) == ([5], [[2, 2]])
    stream.killed()
    bus.unlock(stream.options.entity, locked)
    assert stream.consumption.latest(after, 50) == after
    assert states(bus, stream) == {}


def hide(bus: SourceBus, stream: Stream, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Peeks do not show these messages, as the service may show one late."""
    queue = bus.broker.message_queue(stream.options.entity)
    shown = queue.peek
    monkeypatch.setattr(queue, "peek", lambda *asked: [each for each in shown(*asked) if each.sequence not in numbers])


def no_time_passes(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None] = lambda: None) -> list[float]:
    """Waits of a task take no time; instead, something happens. Returns how long they were."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        meanwhile()

    clock = SimpleNamespace(monotonic=lambda: sum(waited), sleep=sleep)
    monkeypatch.setattr(consumption, "time", clock)
    return waited


def test_a_message_that_the_service_shows_late_is_delivered_before_it_is_completed(
    bus: SourceBus, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:  # S11
    put(bus, stream, 1, 5)
    end = stream.consumption.latest(NOTHING, 50)
    hide(bus, stream, monkeypatch, 3, 5)
    assert sorted(stream.read(end)) == [1, 2, 3, 4, 5]
    assert sorted(stream.read(end)) == [1, 2, 3, 4, 5], "deferred again, for a task that is repeated"
    assert stream.consumption.latest(end, 50) == end
    monkeypatch.undo()
    assert states(bus, stream) == {}


def test_a_message_shown_late_that_a_dead_task_has_locked_is_delivered_when_its_lock_has_ended(
    bus: SourceBus, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:  # S11
    put(bus, stream, 1, 3)
    end = stream.consumption.latest(NOTHING, 50)
    hide(bus, stream, monkeypatch, 2)
    queue = bus.broker.message_queue(stream.options.entity)
    (locked,) = bus.emulator.call(lambda: queue.receive_deferred([2], deletes=False))
    waited = no_time_passes(monkeypatch, lambda: bus.unlock(stream.options.entity, locked))
    assert sorted(stream.read(end)) == [1, 2, 3]
    assert waited == [DEFERRED_RETRY_AFTER]


def test_a_connection_that_breaks_before_a_message_shown_late_is_deferred_again_loses_none(
    bus: SourceBus, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:  # S11
    put(bus, stream, 1, 3)
    end = stream.consumption.latest(NOTHING, 50)
    hide(bus, stream, monkeypatch, 2)
    queue = bus.broker.message_queue(stream.options.entity)
    receive, broken = queue.receive_deferred, Fault(Action.DROP, Operation.MANAGE, stream.options.entity, times=1)
    locked: list[BrokeredMessage] = []

    def received(*asked: Any) -> list[BrokeredMessage]:
        found = receive(*asked)
        if not broken.struck:
            locked.extend(found)
            bus.broker.faults.add(broken)  # for the next request, which defers the message
        return found

    monkeypatch.setattr(queue, "receive_deferred", received)
    waited = no_time_passes(monkeypatch, lambda: bus.unlock(stream.options.entity, locked[0]))
    assert sorted(stream.read(end)) == [1, 2, 3]
    assert (broken.struck, waited) == (1, [DEFERRED_RETRY_AFTER])


def test_only_a_message_that_is_not_found_for_as_long_as_a_lock_may_last_is_left_out(
    bus: SourceBus, stream: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(bus, stream, 1, 4)
    end = stream.consumption.latest(NOTHING, 50)
    bus.take(stream.options.entity, [2])
    waited = no_time_passes(monkeypatch)
    monkeypatch.setattr(consumption, "DEFERRED_RETRY_AFTER", LONGEST_LOCK / 3.5)  # few connections
    with caplog.at_level("WARNING", "syphon.datasource"):
        assert stream.read(end) == [1, 3, 4]
    assert sum(waited) > LONGEST_LOCK
    assert "1 of 4 messages" in caplog.text


def test_a_batch_fails_if_the_service_refuses_to_say_where_a_message_is(
    bus: SourceBus, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(bus, stream, 1, 4)
    end = stream.consumption.latest(NOTHING, 50)
    hide(bus, stream, monkeypatch, 2)
    queue = bus.broker.message_queue(stream.options.entity)

    def refuses(*_: object) -> None:
        raise NotAllowed("Not now.")

    monkeypatch.setattr(queue, "receive_deferred", refuses)
    with pytest.raises(SyphonError, match="Not now"):
        stream.read(end)
    monkeypatch.undo()
    assert sorted(stream.read(end)) == [1, 2, 3, 4]


def test_a_connection_that_breaks_while_messages_are_deferred_loses_none(bus: SourceBus) -> None:
    stream = Stream(bus, bus.queue("breaks", lock_duration=5_000))  # what is cut off, expires soon
    put(bus, stream, 1, 30)
    broken = Fault(Action.DROP, Operation.SETTLE, stream.options.entity, times=1)
    bus.emulator.call(lambda: bus.emulator["contoso"].namespace.faults.add(broken))
    seen: list[int] = []
    end = NOTHING
    while len(seen) < 30:
        end = stream.consumption.latest(end, 50)
        seen += stream.read(end)
    stream.consumption.close()
    assert broken.struck
    assert sorted(seen) == list(range(1, 31))


def test_a_stream_that_ends_with_what_exists_does_not_wait_for_what_comes(bus: SourceBus, stream: Stream) -> None:
    put(bus, stream, 1, 60)
    stream.consumption.stop_at_present()
    end, seen = NOTHING, list[int]()
    for _ in range(4):
        if (found := stream.consumption.latest(end, 50)) == end:
            break
        seen += stream.read(found)
        end = found
    assert seen == list(range(1, 61))
    put(bus, stream, 61, 70)
    assert stream.consumption.latest(end, 50) == end
    assert states(bus, stream) == {"ACTIVE": 10}


def test_partitioned_entities_and_checkpoints_of_the_other_kind_are_refused_in_words(bus: SourceBus) -> None:
    queue = bus.queue("wide-consumed", enable_partitioning=True)
    bus.spread(queue)
    wide = Stream(bus, queue)
    with pytest.raises(PartitionedEntity, match="'wide-consumed' is partitioned"):
        wide.consumption.latest(NOTHING)
    wide.consumption.close()
    with pytest.raises(BadSourceOptions, match="that of a stream that peeks"):
        wide.consumption.parts({queue: 7})
    peeking = NewMessages(parse_options(bus.options(queue)))
    with pytest.raises(BadSourceOptions, match="that of a consuming stream"):
        peeking.latest({BATCH: 1, queue: [[1, 2]]})  # type: ignore[dict-item]


def test_a_table_is_never_consumed(bus: SourceBus) -> None:
    table = ServiceBusDataSource(bus.options("orders", consume=True))
    with pytest.raises(BadSourceOptions, match="consume is for streams"):
        table.reader(table.schema())  # type: ignore[arg-type]


def test_numbers_are_kept_as_ranges() -> None:
    assert ranges_of([5, 1, 2, 3, 9, 9]) == [[1, 3], [5, 5], [9, 9]]
    assert numbers_in({"orders": [[1, 3], [5, 5]]}, "orders") == [1, 2, 3, 5]


QUERY = """
import json, sys
from pyspark.sql import SparkSession
from syphon.datasource import register_source

settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": "1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
register_source(spark, **json.load(open("options.json")))
query = (
    spark.readStream.format("servicebus").option("max_rows", 40).load().select("message_id")
    .writeStream.format("parquet").option("path", "seen").option("checkpointLocation", "checkpoint")
    .trigger(**json.loads(sys.argv[1])).start()
)
query.awaitTermination()
"""


@pytest.mark.nightly
def test_a_query_that_is_killed_again_and_again_has_every_message_once_in_its_files(
    bus: SourceBus, tmp_path: Path
) -> None:
    queue = bus.queue("killed-consumer")
    (tmp_path / "options.json").write_text(json.dumps(bus.options(queue, consume=True)))
    (tmp_path / "query.py").write_text(QUERY)

    def start(trigger: dict[str, Any]) -> Running:
        environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **quick_java()}
        return Running((json.dumps(trigger),), tmp_path, environment, module="query")

    def seen() -> list[str]:
        """The rows of the files that the sink has committed."""
        log = tmp_path / "seen" / "_spark_metadata"
        files = {
            json.loads(line)["path"]
            for entry in (log.iterdir() if log.exists() else ())
            if not entry.name.startswith(".")
            for line in entry.read_text().splitlines()[1:]
        }
        tables = [pq.read_table(file.removeprefix("file://")) for file in files]
        return [name for table in tables for name in table["message_id"].to_pylist()]

    total = 0
    for more in (100, 60):
        payloads = [message(message_id=str(number)) for number in range(total, total + more)]
        bus.put(queue, *payloads)
        with closing(start({"processingTime": "0 seconds"})) as running:
            eventually(lambda before=total: len(seen()) > before, within=150)  # type: ignore[misc]
            for pid in [pid for pid, _ in running.descendants()] + [running.process.pid]:
                os.kill(pid, signal.SIGKILL)
        total += more
    with closing(start({"availableNow": True})) as last:
        code, _ = last.end(200)
        assert code == 0, last.said
    assert Counter(seen()) == Counter(str(number) for number in range(total))
    assert bus.payloads(queue) == []
