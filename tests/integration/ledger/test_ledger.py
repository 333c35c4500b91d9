"""The ledger: rows that were written can be read again, with several writers and after failures (D9, X3)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syphon.ledger.ledger import Ledger, LedgerUnreadable, LedgerUnwritable
from syphon.ledger.reader import LocalReader
from syphon.ledger.report_query import query_report
from syphon.ledger.rows import ATTEMPTS, TRANSFERS
from syphon.model import AttemptKey
from syphon.model.outcomes import Result
from tests.support.ledger_rows import HOUR, NOON, attempt, note, outcome, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def ledger(spark: SparkSession, tmp_path: Path) -> Ledger:
    return Ledger(spark, str(tmp_path / "ledger"))


def numbers(ledger: Ledger) -> list[int]:
    return sorted(row.sequence_number for row in ledger.transfers().collect())


def names(schema: str) -> list[str]:
    return [column.split()[0] for column in schema.split(", ")]


def left_behind(ledger: Ledger) -> list[Path]:
    """Files outside the tables: nothing in them is on record."""
    return [file for file in Path(ledger.path).rglob("*") if file.is_file() and "_writing" in file.parts]


def test_a_transfer_is_on_record_as_it_was_reported(ledger: Ledger, spark: SparkSession) -> None:  # X3
    told = outcome(
        7, result=Result.DEAD_LETTERED, reason="MessageTooLarge: 'orders'", possible_duplicate=True, renamed_to="new"
    )
    record(ledger, [told], AttemptKey("contoso", "job-9", 3, 1))
    row = ledger.transfers().selectExpr("*", "unix_millis(settled_at) as settled").first()
    assert row is not None
    assert (row.pair, row.job, row.slot, row.attempt) == ("contoso", "job-9", 3, 1)
    assert (row.queue, row.sequence_number, row.message_id) == (told.queue, 7, "message-7")
    assert (row.outcome, row.reason, row.possible_duplicate) == ("dead_lettered", told.reason, True)
    assert (row.settled, str(row.date), row.forwarded_at) == (NOON, "2026-10-05", None)
    assert (row.destination, row.renamed_to) == ("orders", "new")


def test_an_attempt_is_on_record_as_it_was_counted(ledger: Ledger) -> None:
    told = attempt(10, 6, dead_lettered=1, left=1, possible_duplicates=2, finished=False, error="killed")
    note(ledger, [told])
    row = ledger.attempts().selectExpr("*", "unix_millis(ended_at) as ended").first()
    assert row is not None
    assert (row.job, row.slot, row.attempt, row.ended) == ("job-1", 0, 0, NOON)
    assert (row.received, row.forwarded, row.dead_lettered, row.left, row.possible_duplicates) == (10, 6, 1, 1, 2)
    assert (row.finished, row.error) == (False, "killed")


def test_a_ledger_that_is_not_there_yet_is_empty_and_has_all_columns(ledger: Ledger) -> None:
    assert (ledger.transfers().count(), ledger.attempts().count(), ledger.unreadable_files()) == (0, 0, [])
    assert ledger.transfers().columns == [*names(TRANSFERS), "date"]
    assert ledger.attempts().columns == [*names(ATTEMPTS), "date"]


def test_a_day_is_one_of_utc_whatever_the_session_thinks(ledger: Ledger, spark: SparkSession) -> None:  # D9
    before, after = NOON + 12 * HOUR - 1, NOON + 12 * HOUR
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        record(ledger, [outcome(1, at=before), outcome(2, at=after)])
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    days = {row.sequence_number: str(row.date) for row in ledger.transfers().collect()}
    assert days == {1: "2026-10-05", 2: "2026-10-06"}
    assert sorted(folder.name for folder in (Path(ledger.path) / "transfers").iterdir()) == [
        "date=2026-10-05",
        "date=2026-10-06",
    ]


def test_a_path_may_have_characters_that_mean_something_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, f"{tmp_path}/a [1] {{b,c}} *?%20 ü/")
    record(ledger, [outcome(1)])
    note(ledger, [attempt(1)])
    assert (numbers(ledger), ledger.attempts().count()) == ([1], 1)


def test_files_that_spark_wrote_are_read_with_those_of_today(ledger: Ledger, spark: SparkSession) -> None:
    """Versions before wrote with Spark: other codecs, other timestamps, a column less."""
    record(ledger, [outcome(1)])
    note(ledger, [attempt(1)])
    for table, rows in (("transfers", ledger.transfers()), ("attempts", ledger.attempts())):
        moved = f"{ledger.path}/moved-{table}"
        rows.drop("date", "renamed_to", "ordered").write.option("compression", "snappy").parquet(moved)
        (written,) = Path(moved).glob("*.parquet")
        written.rename(Path(ledger.path) / table / "date=2026-10-05" / written.name)
    assert numbers(ledger) == [1, 1]
    assert {str(row.settled_at) for row in ledger.transfers().collect()} == {
        str(row.ended_at) for row in ledger.attempts().collect()
    }
    assert (ledger.attempts().count(), ledger.unreadable_files()) == (2, [])
    assert query_report(LocalReader(ledger.path)).transfers.forwarded == 2


# --- many writers ----------------------------------------------------------------------------------------------------


def test_jobs_of_one_driver_that_write_at_once_lose_no_row(ledger: Ledger, spark: SparkSession) -> None:  # X1
    def job(number: int) -> None:
        for turn in range(2):
            at = number * 100 + turn * 10
            record(ledger, [outcome(at + each) for each in range(10)], AttemptKey("contoso", f"job-{at}", 0, 0))
            note(ledger, [attempt(10, origin=AttemptKey("contoso", f"job-{at}", 0, 0))])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(job, range(6)))
    assert numbers(ledger) == sorted(job * 100 + each for job in range(6) for each in range(20))
    assert ledger.attempts().count() == 12
    assert left_behind(ledger) == []


WORKER = """
import sys
from syphon.config import PipelineSettings
from syphon.ledger.ledger import Ledger
from syphon.spark.session import spark_session
from tests.support.ledger_rows import outcome, record

path, first = sys.argv[1], int(sys.argv[2])
with spark_session(PipelineSettings(master="local[1]")) as spark:
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(first, first + 50, 10):
        record(Ledger(spark, path), [outcome(turn + each) for each in range(10)])
"""


def test_two_workers_that_write_at_once_lose_no_row(ledger: Ledger, spark: SparkSession) -> None:  # X1
    command = [sys.executable, "-c", WORKER, ledger.path]
    with subprocess.Popen([*command, "100000"], stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        try:
            assert other.stdout.readline() == "ready\n"
            print(file=other.stdin, flush=True)
            written = 0
            while other.poll() is None:
                record(ledger, [outcome(written + each) for each in range(10)])
                written += 10
        finally:
            other.kill()
    assert other.returncode == 0
    assert numbers(ledger) == sorted([*range(written), *range(100_000, 100_050)])


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_ledger_that_cannot_be_written_stops_no_transfer(spark: SparkSession, tmp_path: Path) -> None:  # D9
    (tmp_path / "file").touch()
    ledger = Ledger(spark, f"{tmp_path}/file/ledger")
    with pytest.raises(LedgerUnwritable) as raised:
        record(ledger, [outcome(1)])
    text = str(raised.value)
    assert ledger.path in text
    assert "Not a directory" in text
    assert "transfer itself continued" in text
    with pytest.raises(LedgerUnwritable, match="Not a directory"):
        note(ledger, [attempt(1)])


@contextmanager
def full_disk() -> Iterator[None]:
    """Limits the size of files that this process can write to a few bytes. That needs no right to mount anything."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_reported_and_leaves_nothing_that_breaks_the_ledger(ledger: Ledger) -> None:
    record(ledger, [outcome(1)])
    with full_disk():
        with pytest.raises(LedgerUnwritable, match="File too large"):
            record(ledger, [outcome(2)])
        with pytest.raises(LedgerUnwritable, match="File too large"):
            note(ledger, [attempt(1)])
    assert (numbers(ledger), ledger.unreadable_files(), left_behind(ledger)) == ([1], [], [])
    record(ledger, [outcome(2)])
    assert numbers(ledger) == [1, 2]


def test_a_file_that_cannot_be_put_in_its_place_is_reported(ledger: Ledger) -> None:
    Path(ledger.path).mkdir()
    (Path(ledger.path) / "transfers").touch()
    with pytest.raises(LedgerUnwritable, match=r"(?i)not a directory|file exists"):
        record(ledger, [outcome(1)])
    assert left_behind(ledger) == []


def test_what_a_killed_driver_was_writing_is_not_seen(ledger: Ledger, spark: SparkSession) -> None:
    record(ledger, [outcome(1)])
    half = Path(ledger.path) / "_writing" / "killed" / "_temporary" / "0" / "date=2026-10-05"
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"PAR1 and no more")
    assert (numbers(ledger), ledger.unreadable_files()) == ([1], [])


@pytest.mark.parametrize("what", [b"", b"PAR1 and no more"])
def test_a_broken_file_is_passed_over_and_named(ledger: Ledger, spark: SparkSession, what: bytes) -> None:
    record(ledger, [outcome(1)])
    broken = Path(ledger.path) / "transfers" / "date=2026-10-05" / "part-broken.parquet"
    broken.write_bytes(what)
    assert numbers(ledger) == [1]
    assert [os.path.basename(file) for file in ledger.unreadable_files()] == ["part-broken.parquet"]


def test_a_place_that_cannot_be_reached_is_reported(spark: SparkSession) -> None:
    ledger = Ledger(spark, "nowhere://host/ledger")
    with pytest.raises(LedgerUnreadable, match=r"nowhere://host/ledger cannot be read: .*No FileSystem for scheme"):
        ledger.transfers()
    with pytest.raises(LedgerUnwritable, match="No FileSystem for scheme"):
        note(ledger, [attempt(1)])
