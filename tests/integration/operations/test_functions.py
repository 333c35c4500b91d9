"""`syphon.drain`, `dry_run`, `inspect` and `report` on a session that exists already, as in a notebook."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import syphon
from syphon.ledger import LocalReader
from syphon.model import DestinationUnreachable, ExitCode, SyphonError
from syphon.worker.drain.result import DrainProgress
from tests.support.processes import DESTINATIONS, EmulatedPair, aliased, emulated_pair
from tests.support.scripts import run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(600)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[EmulatedPair]:
    with emulated_pair(tmp_path) as pair:
        yield pair


def settings(emulated: EmulatedPair, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(emulated.config(**more).read_text())
    return found


def key_of(connection_string: str) -> str:
    return connection_string.partition("SharedAccessKey=")[2].partition(";")[0]


def test_a_drain_on_an_existing_session_returns_everything_and_keeps_the_session_running(
    pair: EmulatedPair, spark: SparkSession
) -> None:  # X2, X6
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(60)])
    pair.put([aliased(60, "$nowhere")], index=1)
    config, seen = settings(pair), list[DrainProgress]()

    overview = syphon.inspect(config, spark)
    assert (overview.messages, overview.exit_code) == (61, ExitCode.OK)
    assert {found.destination: found.messages for found in overview.destinations} == {
        **dict.fromkeys(DESTINATIONS, 20),
        "$nowhere": 1,
    }
    foreseen = syphon.dry_run(config, spark)
    assert (foreseen.exit_code, foreseen.messages) == (ExitCode.LEFT, 61)

    summary = syphon.drain(config, spark, progress=seen.append)
    assert pair.arrived(*DESTINATIONS) == Counter(f"m{number}" for number in range(60))
    assert summary.verdict == "The backlog is empty: 60 forwarded; 1 dead-lettered."
    assert summary.exit_code is ExitCode.LEFT is foreseen.exit_code
    account = summary.account
    assert (account.received, account.forwarded, account.dead_lettered, account.unaccounted) == (61, 60, 1, 0)
    assert {found.destination: found.forwarded for found in summary.destinations if found.forwarded} == dict.fromkeys(
        DESTINATIONS, 20
    )
    assert [(queue.forwarded, queue.dead_lettered, queue.remaining) for queue in summary.queues] == [
        (60, 0, 0),
        (0, 1, 0),
    ]
    assert seen[-1].moved == 61
    assert summary.ledger_error == ""
    for shown in (repr(summary), summary._repr_html_(), json.dumps(summary.as_json())):
        assert key_of(pair.primary) not in shown
        assert key_of(pair.secondary) not in shown

    report = syphon.report(config, spark)
    assert (report.messages.forwarded, report.messages.dead_lettered, report.complete) == (60, 1, False)
    assert "60 of 61 messages arrived." in report._repr_html_()
    ((run,), broken) = LocalReader(summary.ledger).runs()
    assert (run.command, run.options, run.pairs, broken) == ("drain", "", ["contoso"], [])
    assert (run.forwarded, run.dead_lettered, run.remaining, run.exit_code) == (60, 1, 0, ExitCode.LEFT)
    assert run.verdict == summary.verdict
    assert spark.range(3).count() == 3  # it has not been stopped


def test_partitioned_backlog_queues_are_counted_exactly(tmp_path: Path, spark: SparkSession) -> None:  # X7
    with emulated_pair(tmp_path, queues=1, is_partitioned=True) as pair:
        config = pair.config()
        pair.put([aliased(number, "orders") for number in range(400)], batch=4)
        overview = syphon.inspect(config, spark)
        assert [(found.destination, found.messages) for found in overview.destinations] == [("orders", 400)]
        assert syphon.dry_run(config, spark).messages == 400
        summary = syphon.drain(config, spark, limit=150)
        assert (summary.account.forwarded, summary.remaining) == (150, 250)
        assert sum(pair.in_backlog().values()) == 250


def test_an_error_of_the_callback_ends_the_drain_in_order_and_is_raised(
    pair: EmulatedPair, spark: SparkSession
) -> None:
    pair.put([aliased(number, "orders") for number in range(200)])

    def fail(progress: DrainProgress) -> None:
        if progress.moved:
            raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        syphon.drain(settings(pair), spark, rate=20, progress=fail)
    moved = pair.arrived("orders")
    left = pair.in_backlog(0)
    assert 0 < len(moved) < 200
    assert moved + left == Counter(f"m{number}" for number in range(200))  # nothing twice, nothing lost
    report = syphon.report(settings(pair))
    assert report.transfers.unaccounted == 0
    assert report.messages.forwarded == len(moved)


def test_a_query_reads_the_backlog_and_leaves_the_views_of_the_session(pair: EmulatedPair, spark: SparkSession) -> None:
    pair.put([aliased(number, DESTINATIONS[number % 3]) for number in range(9)])
    spark.range(7).createOrReplaceTempView("backlog")
    try:
        found = syphon.inspect(
            settings(pair),
            spark,
            sql="select destination as d, count(*) as d from backlog group by 1 order by 1",
            limit=2,
        )
        assert found.columns == ("d", "d")
        assert found.rows == (("billing/invoices", 3), ("news", 3))
        assert not found.is_complete
        with pytest.raises(SyphonError, match="is not allowed here"):
            syphon.inspect(settings(pair), spark, sql="drop view backlog")
        assert spark.table("backlog").count() == 7
    finally:
        spark.catalog.dropTempView("backlog")


def test_an_unreachable_namespace_is_an_error_or_a_verdict(pair: EmulatedPair, spark: SparkSession) -> None:
    away = "Endpoint=sb://localhost:1;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    config = settings(pair, pair={"secondary": {"connection_string": away, "name": "contoso-dr"}})
    with pytest.raises(DestinationUnreachable):
        syphon.inspect(config, spark)
    summary = syphon.drain(config, spark, patience=0.5)
    assert summary.exit_code is ExitCode.UNAVAILABLE
    assert summary.remaining is None
    assert "could not be peeked, so more messages may be left" in summary.verdict


INTERRUPTED = """
import json, sys
import syphon
from syphon.operations import DrainInterrupted
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
handler = __import__("signal").getsignal(2)
try:
    syphon.drain(sys.argv[1], spark, rate=10, progress=lambda at: at.moved and print("some moved", file=sys.stderr))
except DrainInterrupted as stopped:
    first = stopped.summary
assert __import__("signal").getsignal(2) is handler
second = syphon.drain(sys.argv[1], spark)
print(json.dumps([first.as_json(), second.as_json(), spark.range(3).count()]))
"""


def test_an_interrupt_finishes_what_is_in_flight_and_the_session_goes_on(pair: EmulatedPair) -> None:
    """Spark's own handler of Ctrl-C cancels all jobs, and so kills the slots with their messages in flight."""
    pair.put([aliased(number, "orders") for number in range(100)])
    process = run_script(pair, "interrupted", INTERRUPTED, str(pair.config()))
    process.until("some moved")
    code, out = process.stop(signal.SIGINT)
    assert code == 0, process.said
    first, second, rows = json.loads(out)
    assert 0 < first["account"]["forwarded"] < 100
    assert (first["account"]["killed"], first["account"]["unaccounted"]) == (0, 0)
    assert {queue["state"] for queue in first["queues"]} == {"stopped"} | {
        queue["state"] for queue in first["queues"] if queue["queue"] == pair.backlog(1)
    }
    assert second["verdict"] == f"The backlog is empty: {100 - first['account']['forwarded']} forwarded."
    assert pair.arrived("orders") == Counter(f"m{number}" for number in range(100))
    assert rows == 3


def test_a_report_reads_the_ledger_where_a_drain_on_the_same_session_writes_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """On a cluster a path without a scheme may be on another file system. A folder of that name here is not it."""
    assert syphon.report(ledger=str(tmp_path), spark=spark).complete
    hadoop = spark._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "nowhere://host/")
    try:
        with pytest.raises(SyphonError, match="cannot be read"):
            syphon.report(ledger=str(tmp_path), spark=spark)
    finally:
        hadoop.set("fs.defaultFS", before)


def test_a_ledger_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SyphonError, match="There is no ledger at"):
        syphon.report(ledger=str(tmp_path / "mistyped"))
