"""`df.write.format("servicebus")`: rows become messages, at least once, and a bad row is named (X6)."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from syphon.amqp import Map, Section
from syphon.config import SideSettings
from syphon.datasource.row_messages import Columns
from syphon.datasource.source_options import SourceOptions, parse_options
from syphon.datasource.write import RowRefused, WriteCounts, log_result, report_failure, send_rows
from syphon.emulator import Action, Fault, Operation
from tests.support.amqp_equality import assert_same
from tests.support.property_kinds import TYPES
from tests.support.spark_source import SourceBus, message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: DataFrame, bus: SourceBus, entity: str, **options: Any) -> None:
    frame.write.format("servicebus").options(**bus.options(entity, **options)).mode("append").save()


def ids(bus: SourceBus, path: str) -> list[str]:
    return sorted(str(found.properties().message_id) for found in bus.messages(path))


def options(bus: SourceBus, entity: str, **more: Any) -> SourceOptions:
    return parse_options(bus.options(entity, **more))


def column(count: int) -> list[str]:
    return [f"m{number:05}" for number in range(count)]


def test_every_row_arrives_with_what_its_columns_say(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("orders", requires_session=True)
    frame = source.range(2000).selectExpr(
        "cast(id as string) as message_id",
        "concat('s', id % 7) as session_id",
        "map('number', cast(id as string), 'kind', 'x') as properties",
        "map('number', 'long') as property_types",
        "concat('body ', id) as body",
        "'test' as subject",
    )
    write(frame.repartition(3), bus, queue)
    found = {str(each.properties().message_id): each for each in bus.messages(queue)}
    assert sorted(found) == sorted(str(number) for number in range(2000))
    for number in (0, 999, 1999):
        each = found[str(number)]
        assert each.read(Section.DATA) == f"body {number}".encode()
        assert (each.properties().group_id, each.properties().subject) == (f"s{number % 7}", "test")
        assert_same(each.application_properties().get("kind"), "x")
        assert type(each.application_properties().get("number")).__name__ == "Long"


def test_what_was_read_can_be_written_elsewhere(source: SparkSession, bus: SourceBus) -> None:
    queue, other, topic = bus.queue("here"), bus.queue("there"), bus.subscription("topic", "all")
    bus.put(
        queue, *(message(b"%d" % number, dict(TYPES), message_id=f"m{number}", subject="s") for number in range(20))
    )
    frame = source.read.format("servicebus").options(**bus.options(queue, bodies=True)).load()
    write(frame, bus, other)
    write(frame, bus, "topic")
    for path in (other, topic):
        assert len(bus.messages(path)) == 20
        for sent, arrived in zip(bus.messages(queue), bus.messages(path), strict=True):
            assert arrived.bare() == sent.bare()


def test_a_bad_row_fails_the_job_and_is_named_with_its_reason(source: SparkSession, bus: SourceBus) -> None:
    queue = bus.queue("strict")
    frame = (
        source.range(10)
        .coalesce(1)
        .selectExpr(
            "cast(id as string) as message_id",
            "map('n', if(id = 6, 'six', '1')) as properties",
            "map('n', 'int') as property_types",
        )
    )
    with pytest.raises(
        Exception, match=r"row 7 of partition 0 \(message_id '6'\): property 'n': 'six' is not a valid int"
    ):
        write(frame, bus, queue)
    write(frame, bus, queue, bad_rows="skip")
    assert set(ids(bus, queue)) == {"0", "1", "2", "3", "4", "5", "7", "8", "9"}


def test_columns_that_cannot_be_written_are_refused_before_anything_is_sent(
    source: SparkSession, bus: SourceBus
) -> None:
    queue = bus.queue("untouched")
    with pytest.raises(Exception, match="price: no column of a message"):
        write(source.range(3).selectExpr("'x' as body", "1 as price"), bus, queue)
    with pytest.raises(Exception, match="can only be read"):
        write(source.range(3).selectExpr("'x' as body"), bus, f"{queue}/$DeadLetterQueue")
    replacing = source.range(3).selectExpr("'x' as body").write.format("servicebus").options(**bus.options(queue))
    with pytest.raises(Exception, match="cannot be overwritten"):
        replacing.mode("overwrite").save()
    assert bus.payloads(queue) == []


# --- the sending itself, without Spark -------------------------------------------------------------------------------


def test_the_counts_of_a_task_are_in_its_commit(bus: SourceBus) -> None:
    queue = bus.queue("counted")
    rows: Columns = {
        "message_id": column(500),
        "session_id": [None] * 499 + ["a"],
        "partition_key": [None] * 499 + ["b"],
    }
    counts = send_rows(options(bus, queue, bad_rows="skip"), 3, [rows])
    assert counts == WriteCounts(
        3, 499, 1, 0, ("row 500 of partition 3 (message_id 'm00499'): partition_key 'b' is not the session_id 'a'",)
    )
    assert ids(bus, queue) == column(499)


def test_a_row_that_only_the_entity_refuses_is_found_among_its_batch(bus: SourceBus) -> None:
    queue = bus.queue("picky")
    rows = {"message_id": [*column(150), "x" * 200, *column(300)[150:]]}
    with pytest.raises(RowRefused, match=r"row 151 of partition 0 .*'picky' refuses it: .*MessageId"):
        send_rows(options(bus, queue), 0, [rows])
    other = bus.queue("picky-too")
    counts = send_rows(options(bus, other, bad_rows="skip"), 0, [rows])
    assert (counts.sent, counts.skipped) == (300, 1)
    assert ids(bus, other) == column(300)


def test_a_row_that_is_too_large_is_named(bus: SourceBus) -> None:
    queue = bus.queue("small")
    with pytest.raises(RowRefused, match=r"row 2 of partition 0: 'small' refuses it: .*bytes"):
        send_rows(options(bus, queue), 0, [{"body": [b"x", b"x" * 2_000_000]}])


def test_a_throttled_entity_gets_its_quiet_and_then_every_row_once(bus: SourceBus) -> None:
    queue = bus.queue("busy")
    fault = Fault(Action.ERROR, Operation.SEND, queue, condition="amqp:internal-error", description="later", times=2)
    bus.emulator.call(lambda: bus.broker.faults.add(fault))
    counts = send_rows(options(bus, queue), 0, [{"message_id": column(300)}])
    assert counts.sent == 300
    assert ids(bus, queue) == column(300)


def test_a_connection_that_breaks_costs_no_row_and_repeats_are_counted(bus: SourceBus) -> None:
    queue = bus.queue("shaky")
    fault = Fault(Action.LOSE_REPLY_AND_DROP, Operation.SEND, queue, times=1, message_id="m00500")
    bus.emulator.call(lambda: bus.broker.faults.add(fault))
    counts = send_rows(options(bus, queue), 0, [{"message_id": column(1000)}])
    assert counts.sent == 1000
    arrived = ids(bus, queue)
    assert set(arrived) == set(column(1000))
    assert counts.possible_duplicates >= len(arrived) - 1000 > 0


def test_a_missing_entity_fails_at_once_even_if_bad_rows_are_skipped(bus: SourceBus) -> None:
    with pytest.raises(Exception, match="no-such-entity"):
        send_rows(options(bus, "no-such-entity", bad_rows="skip"), 0, [{"body": [b"x"] * 10}])


def test_an_entity_that_accepts_nothing_ends_the_write_after_its_patience(bus: SourceBus) -> None:
    queue = bus.queue("full")
    fault = Fault(Action.ERROR, Operation.SEND, queue, condition="amqp:resource-limit-exceeded", description="full")
    bus.emulator.call(lambda: bus.broker.faults.add(fault))
    with pytest.raises(Exception, match="full"):
        send_rows(options(bus, queue, patience=1), 0, [{"body": [b"x"] * 10}])


def test_partition_keys_are_kept_apart_for_a_partitioned_entity(bus: SourceBus) -> None:
    queue = bus.queue("wide", enable_partitioning=True)
    keys = [f"k{number % 5}" for number in range(500)]
    counts = send_rows(options(bus, queue), 0, [{"message_id": column(500), "partition_key": keys}])
    assert counts.sent == 500
    assert ids(bus, queue) == column(500)
    assert {str(each.annotations().get("x-opt-partition-key")) for each in bus.messages(queue)} == set(keys)


def test_a_summary_has_the_counts_of_every_partition_and_the_first_reasons(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "syphon.datasource"):
        log_result("orders", [WriteCounts(1, 5), WriteCounts(0, 3, 7, 1, ("row 4 of partition 0: why",))])
        log_result("orders", [WriteCounts(0, 3)], epoch=4)
    first, second = caplog.records
    assert first.getMessage() == (
        "8 messages sent to 'orders' from 2 partitions (0: 3, 1: 5); 1 of them may have arrived twice; "
        "7 rows were skipped: row 4 of partition 0: why …."
    )
    assert (first.levelno, second.levelno) == (logging.WARNING, logging.INFO)
    assert second.getMessage() == "epoch 4: 3 messages sent to 'orders' from 1 partition (0: 3)."


def test_possible_repeats_are_a_warning_because_nothing_else_is_seen_in_the_driver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "syphon.datasource"):
        log_result("orders", [WriteCounts(0, 3, possible_duplicates=1)])
        log_result("orders", [WriteCounts(1, 5, attempts=3), WriteCounts(0, 3)])
    lost_reply, tried_again = caplog.records
    assert (lost_reply.levelno, tried_again.levelno) == (logging.WARNING, logging.WARNING)
    assert "partition 1 took 3 attempts: its rows may have arrived twice" in tried_again.getMessage()
    assert "partition 0 took" not in tried_again.getMessage()


def test_a_failed_write_says_that_its_count_leaves_out_the_tasks_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    report_failure("orders", [], epoch=2)
    report_failure("orders", [WriteCounts(0, 3)])
    nothing, some = (record.getMessage() for record in caplog.records)
    for text in (nothing, some):
        assert "at least: " in text
        assert "Tasks that failed may have sent others" in text
    assert nothing.startswith("epoch 2: the write to 'orders' failed.")
    assert "3 messages sent" in some


def test_the_error_of_a_task_says_how_many_rows_it_had_sent(bus: SourceBus, caplog: pytest.LogCaptureFixture) -> None:
    queue = bus.queue("half-sent")
    last = {"message_id": ["bad"], "session_id": ["a"], "partition_key": ["b"]}

    def batches() -> Iterator[Columns]:
        yield {"message_id": column(5000)}  # no more than 4,000 are in flight: 1,000 must have been accepted
        yield last

    with pytest.raises(RowRefused, match=r"row 5001 of partition 2 .* At least [\d,]+ rows of partition 2") as caught:
        send_rows(options(bus, queue), 2, batches())
    said = int(re.search(r"At least ([\d,]+) rows", str(caught.value))[1].replace(",", ""))  # type: ignore[index]
    assert 1000 <= said <= len(bus.payloads(queue))
    assert "a repetition sends them again" in caplog.text  # where the task ran: Spark may drop its error


def test_an_error_that_is_not_ours_has_the_number_too(bus: SourceBus) -> None:
    queue = bus.queue("broken-rows")

    def batches() -> Iterator[Columns]:
        yield {"message_id": column(10)}
        raise ValueError("Spark's own")

    with pytest.raises(ValueError, match="Spark's own") as caught:
        send_rows(options(bus, queue), 2, batches())
    assert "rows of partition 2 had been sent" in caught.value.__notes__[0]


def test_nothing_of_a_write_shows_a_secret(bus: SourceBus) -> None:
    found = options(bus, "q")
    assert isinstance(found.side, SideSettings)
    assert "a-key-that" not in repr(found) + str(found.side) + repr(Map())
