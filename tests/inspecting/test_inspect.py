"""What is in the backlog, on real Spark: the rows, the summary, and that looking changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from syphon.amqp import Timestamp
from syphon.config import PipelineSettings, TimeToLive
from syphon.emulator import Action, Fault, Kind, Operation
from syphon.pipeline.inspect import BacklogUnseen, BadQuery, asking, backlog_frame, looking, objections, summary
from syphon.pipeline.session import spark_session

from .conftest import FIRST, KEY, SECOND, Bench, aliased

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(PipelineSettings(master="local[2]")) as session:
        yield session


def test_every_message_of_every_queue_is_a_row(bench: Bench, spark: SparkSession) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    bench.put(
        aliased("hello", "orders", "m1", x_ms_sessionid="alice", x_ms_timetolive="PT2H",
                x_ms_scheduledenqueuetimeutc=Timestamp(int(due.timestamp() * 1000))),
        aliased("lost", None, "m2"),
    )  # fmt: skip
    bench.put(aliased("other", "billing", "m3"), queue=SECOND)
    first, second, third = backlog_frame(spark, bench.assignments()).orderBy("queue", "sequence_number").collect()
    assert (first.pair, first.queue, first.sequence_number, first.message_id) == ("contoso", FIRST, 1, "m1")
    assert (first.destination, first.session_id, first.state) == ("orders", "alice", "active")
    assert first.scheduled_for.astimezone(UTC) == due
    assert first.expires_at - first.scheduled_for == timedelta(hours=2)
    assert first.size > len(aliased("hello", "orders"))
    assert (first.delivery_count, first.dead_letter_reason, first.dead_letter_description) == (0, None, None)
    assert abs(first.enqueued_at.astimezone(UTC) - datetime.now(UTC)) < timedelta(minutes=5)
    assert (second.message_id, second.destination, second.dead_letter_reason) == ("m2", None, "NoDestination")
    assert "x-ms-path is missing" in second.dead_letter_description
    assert (third.queue, third.destination) == (SECOND, "billing")


def test_the_summary_counts_by_destination_what_waits_and_what_would_be_refused(
    bench: Bench, spark: SparkSession
) -> None:
    old = Timestamp(1_600_000_000_000)
    bench.put(*(aliased("x" * 100, "orders") for _ in range(3)))
    bench.put(aliased("x", "orders", x_ms_timetolive="PT0.001S"), aliased("x", "orders", x_ms_timetolive="soon"))
    bench.put(aliased("x", "billing", x_ms_scheduledenqueuetimeutc=Timestamp(4_000_000_000_000)), queue=SECOND)
    bench.put(aliased("x", "billing", x_ms_scheduledenqueuetimeutc=old), aliased("x", "secret"), queue=SECOND)
    options = {"allow": ("orders", "billing"), "time_to_live": TimeToLive.REMAINING}
    frame = backlog_frame(spark, bench.assignments(**options)).persist()
    try:
        orders, billing, secret = summary(frame)
        assert (orders.destination, orders.messages, orders.scheduled, orders.expired) == ("orders", 5, 0, 1)
        assert (billing.destination, billing.messages, billing.scheduled, billing.expired) == ("billing", 2, 1, 0)
        assert (orders.dead_letters, billing.dead_letters, secret.dead_letters) == (2, 0, 1)
        assert orders.bytes > 300
        assert orders.oldest is not None
        assert abs(orders.oldest - datetime.now(UTC)) < timedelta(minutes=5)
        assert {(found.destination, found.reason, found.messages) for found in objections(frame)} == {
            ("orders", "Expired", 1), ("orders", "BadAlias", 1), ("secret", "DestinationNotAllowed", 1),
        }  # fmt: skip
        assert any("'soon'" in found.example for found in objections(frame))
    finally:
        frame.unpersist()


def test_an_empty_backlog_has_no_rows(bench: Bench, spark: SparkSession) -> None:
    frame = backlog_frame(spark, bench.assignments())
    assert (summary(frame), objections(frame)) == ([], [])


def test_looking_costs_peeks_and_nothing_else(bench: Bench, spark: SparkSession) -> None:
    bench.put(*(aliased("x", "orders") for _ in range(40)))
    assert backlog_frame(spark, bench.assignments()).count() == 40
    kinds = bench.emulator.call(lambda: bench.secondary.counters.totals())
    assert {kind for kind, count in kinds.items() if count} == {Kind.PEEK}
    assert bench.emulator.call(lambda: bench.primary.counters.totals())[Kind.SEND] == 0
    assert [message.delivery_count for message in bench.take(FIRST, 40, "contoso-dr")] == [0] * 40


def test_no_key_is_in_a_row_or_a_plan(bench: Bench, spark: SparkSession) -> None:
    bench.put(aliased("x", "orders"))
    frame = backlog_frame(spark, bench.assignments())
    (row,) = frame.collect()
    assert KEY not in str(row)
    assert KEY not in frame._jdf.queryExecution().toString()
    assert KEY not in repr(bench.assignments())


def test_what_a_task_met_is_told_in_one_sentence(bench: Bench, spark: SparkSession) -> None:
    fault = Fault(Action.ERROR, Operation.MANAGE, FIRST, condition="amqp:not-allowed", description="No looking.")
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    with pytest.raises(BacklogUnseen) as caught, looking():
        backlog_frame(spark, bench.assignments()).count()
    assert str(caught.value) == f"amqp:not-allowed: '{FIRST}' cannot be peeked at: No looking. (status 400)"


@pytest.mark.parametrize(
    ("query", "words"),
    [("selec 1", "Syntax error"), ("select nothing from backlog", "`nothing`"), ("select 1/0 from backlog", "zero")],
)
def test_a_bad_query_is_told_in_one_line_and_only_there(
    bench: Bench, spark: SparkSession, capfd: pytest.CaptureFixture[str], query: str, words: str
) -> None:
    backlog_frame(spark, bench.assignments()).createOrReplaceTempView("backlog")
    with pytest.raises(BadQuery, match=words) as caught, asking():
        spark.sql(query).collect()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")
