"""The content of the backlog, on real Spark: its rows and its summary. A look changes nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syphon.amqp import Header, Timestamp, UInt, header_bytes
from syphon.cli import main
from syphon.datasource.backlog_frames import BacklogUnseen, backlog_frame, dead_letter_previews, looking, summary
from syphon.datasource.backlog_sql import BadQuery, answer_query, asking
from syphon.emulator import Action, Fault, Kind, Operation
from syphon.model import TimeToLive
from syphon.sql import Where
from tests.integration.operations.conftest import FIRST, KEY, SECOND, Bench, aliased

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_every_message_of_every_queue_is_a_row(bench: Bench, spark: SparkSession) -> None:
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    bench.put(
        aliased(
            "hello",
            "orders",
            "m1",
            x_ms_sessionid="alice",
            x_ms_timetolive="PT2H",
            x_ms_scheduledenqueuetimeutc=Timestamp(int(due.timestamp() * 1000)),
        ),
        aliased("lost", None, "m2"),
    )
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


def test_a_frame_has_only_messages_that_an_expression_selects(bench: Bench, spark: SparkSession) -> None:  # D23
    bench.put(aliased("small", "orders", "m1"), aliased("small", "orders", "m2"))
    rows = backlog_frame(spark, bench.assignments(), Where("sys.MessageId = 'm2'")).orderBy("message_id").collect()
    assert [(row.message_id, row.selected) for row in rows] == [("m1", False), ("m2", True)]


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
        assert {(found.destination, found.reason, found.messages) for found in dead_letter_previews(frame)} == {
            ("orders", "Expired", 1),
            ("orders", "BadAlias", 1),
            ("secret", "DestinationNotAllowed", 1),
        }
        assert any("'soon'" in found.example for found in dead_letter_previews(frame))
    finally:
        frame.unpersist()


def test_an_empty_backlog_has_no_rows(bench: Bench, spark: SparkSession) -> None:
    frame = backlog_frame(spark, bench.assignments())
    assert (summary(frame), dead_letter_previews(frame)) == ([], [])


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


def test_an_error_of_a_task_is_reported_in_one_sentence(bench: Bench, spark: SparkSession) -> None:
    fault = Fault(Action.ERROR, Operation.MANAGE, FIRST, condition="amqp:not-allowed", description="No looking.")
    bench.emulator.call(lambda: bench.secondary.faults.add(fault))
    with pytest.raises(BacklogUnseen) as caught, looking(spark):
        backlog_frame(spark, bench.assignments()).count()
    assert str(caught.value) == f"amqp:not-allowed: '{FIRST}' cannot be peeked at: No looking. (status 400)"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("selec 1", "Syntax error"),
        ("select nothing from backlog", "`nothing`"),
        pytest.param("select 1/0 from backlog", "zero", marks=pytest.mark.spark4),  # null in an older Spark
    ],
)
def test_a_bad_query_is_reported_in_one_line_only(
    bench: Bench, spark: SparkSession, capfd: pytest.CaptureFixture[str], query: str, words: str
) -> None:
    backlog_frame(spark, bench.assignments()).createOrReplaceTempView("backlog")
    with pytest.raises(BadQuery, match=words) as caught, asking():
        answer_query(spark, query).collect()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def inspect(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Runs the command on the existing session."""
    with pytest.raises(SystemExit) as end:
        main(["inspect", *map(str, arguments)], prog_name="syphon")
    return int(end.value.code or 0), *capsys.readouterr()


def test_any_sql_query_is_answered_as_json(
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.put(*(aliased("x", "orders", f"m{i}", x_ms_sessionid=f"s{i % 2}") for i in range(5)))
    query = "select session_id, count(*) as n, max(enqueued_at) as last, null as x from backlog group by 1 order by 2"
    code, out, err = inspect(capsys, "-c", bench.config(tmp_path), "--json", "--sql", query)
    assert (code, err) == (0, "")
    first, second = json.loads(out)
    assert (first["session_id"], first["n"], first["x"], second["n"]) == ("s1", 2, None, 3)
    assert first["last"].endswith("Z")


def test_any_sql_query_is_answered_as_a_table(
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # X6
    bench.put(aliased("x", "line\nbreak"), aliased("x", "orders"))
    query = "select destination, size as `a.b`, array(1, 2), state, state from backlog order by 1"
    code, out, err = inspect(capsys, "-c", bench.config(tmp_path), "--limit", "1", "--sql", query)
    assert code == 0
    title, row = out.splitlines()
    assert title.split()[:2] == ["destination", "a.b"]
    assert row.startswith("line\N{REPLACEMENT CHARACTER}break")
    assert row.endswith("active  active")
    assert "--limit" in err  # there was more


def test_a_bad_query_is_an_error_of_usage(
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = inspect(capsys, "-c", bench.config(tmp_path), "--sql", "select colour from backlog")
    assert (code, out) == (2, "")
    assert "`colour`" in err.strip().splitlines()[-1]


def test_a_query_that_would_change_something_changes_nothing(  # T8
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").touch()
    query = f"insert overwrite directory '{tmp_path}/folder' using csv select * from backlog"
    code, out, err = inspect(capsys, "-c", bench.config(tmp_path), "--sql", query)
    assert (code, out) == (2, "")
    assert err.strip().endswith("Write one query that reads the view backlog and nothing else")
    assert (tmp_path / "folder" / "precious").exists()


def test_the_overview_as_json_is_what_the_documents_promise(
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.put(aliased("x", "orders"), aliased("x", None))
    code, out, _ = inspect(capsys, "-c", bench.config(tmp_path), "--json")
    assert code == 0
    result = json.loads(out)
    assert set(result) == {"destinations", "dead_letters", "unseen"}
    assert {frozenset(one) for one in result["destinations"]} == {
        frozenset(
            (
                "pair",
                "destination",
                "renamed_to",
                "messages",
                "bytes",
                "oldest",
                "scheduled",
                "expired",
                "dead_letters",
                "expiring_in_backlog",
                "first_backlog_expiry",
            )
        )
    }
    (refused,) = result["dead_letters"]
    assert set(refused) == {"pair", "destination", "reason", "messages", "example"}


def test_messages_that_expire_in_the_backlog_are_warned_about(  # M9
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left_by_the_retired_sdk = header_bytes(Header(ttl=UInt(1_566_804_069))) + aliased(
        "x", "orders", x_ms_timetolive="PT1H"
    )
    bench.put(left_by_the_retired_sdk, aliased("x", "orders", x_ms_timetolive="PT1H"))
    code, out, _ = inspect(capsys, "-c", bench.config(tmp_path))
    assert code == 0
    first = datetime.now(UTC) + timedelta(milliseconds=1_566_804_069)
    assert f"1 message expires in the backlog and goes to its dead letters, the first at {first:%Y-%m-%d}" in out


def test_an_empty_backlog_is_reported_as_empty(
    bench: Bench, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(capsys, "-c", bench.config(tmp_path))[:2] == (0, "The backlog is empty.\n")
