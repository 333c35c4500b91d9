"""The report reconciles an incident from the ledger: nothing lost, what was late, what was repeated (X3)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click.testing
import pyarrow.parquet as pq
import pytest

from syphon.cli.report import report as report_command
from syphon.ledger.ledger import Ledger, LedgerUnreadable
from syphon.ledger.merge import merge
from syphon.ledger.reader import LocalReader, Reader, SparkReader
from syphon.ledger.report_query import BANDS, query_report
from syphon.ledger.report_values import OrderViolation, Renamed, Report, Sessions
from syphon.ledger.rows import OpenJob, Period
from syphon.model import AttemptKey, ExitCode
from syphon.model.outcomes import Counters, Outcome, Result
from tests.support import ledger_incident
from tests.support.ledger_incident import FULL
from tests.support.ledger_rows import HOUR, MINUTE, NOON, attempt, moment, note, outcome, record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ReaderOf = Callable[[Ledger], Reader]


def _here(ledger: Ledger) -> LocalReader:
    return LocalReader(ledger.path)


@pytest.fixture(scope="module")
def ledger(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    ledger = Ledger(spark, str(tmp_path_factory.mktemp("ledger_incident") / "ledger"))
    ledger_incident.put_on_record(ledger)
    return ledger


@pytest.fixture(scope="module", params=[_here, SparkReader], ids=["in this process", "on Spark"])
def reader(request: pytest.FixtureRequest) -> ReaderOf:
    """Both ways to read a ledger: they must agree in everything."""
    chosen: ReaderOf = request.param
    return chosen


@pytest.fixture(scope="module")
def told(reader: ReaderOf, ledger: Ledger) -> Report:
    return query_report(reader(ledger), pair="contoso")


def test_the_account_balances(told: Report) -> None:  # D9, X3
    transfers = told.transfers
    assert (transfers.forwarded, transfers.dead_lettered, transfers.left, transfers.unaccounted) == (74, 3, 13, 5)
    assert transfers.received == 95


def test_a_message_that_came_several_times_is_one_message_and_the_best_of_its_ends_counts(told: Report) -> None:
    messages = told.messages
    assert (messages.total, messages.forwarded, messages.dead_lettered, messages.left) == (78, 72, 3, 3)


def test_possible_duplicates_are_told_apart_from_real_ones(told: Report) -> None:  # S6
    assert told.transfers.possible_duplicates == 4
    assert (told.messages.repeated, told.messages.copies) == (2, 2)
    assert [(each.sequence_number, each.message_id, each.times) for each in told.repeats] == [
        (77, "message-77", 2),
        (78, "message-78", 2),
    ]


def test_what_a_killed_task_took_with_it_is_reported_with_its_attempt(told: Report) -> None:  # D9, X7
    (lost,) = told.shortfalls
    assert (lost.job, lost.slot, lost.attempt, lost.error) == ("job-3", 0, 0, "the Python worker exited")
    assert (lost.received, lost.unaccounted, lost.forwarded) == (5, 5, 3)


def test_time_in_the_backlog_is_that_of_the_first_arrival(told: Report) -> None:
    spread = told.in_backlog
    assert spread is not None
    assert spread.longest == (70 * MINUTE + HOUR) / 1000
    assert spread.p50 == 16 * 60
    assert spread.p95 == (67 * MINUTE + HOUR) / 1000
    bands = {band.below: band.messages for band in told.waits}
    assert list(bands) == [*BANDS, None]
    assert bands == {1: 0, 10: 0, 60: 20, 300: 4, 900: 10, 3600: 26, 14400: 12, 86400: 0, None: 0}


def test_destinations_are_named_as_service_bus_knows_them(told: Report) -> None:
    lines = {each.name: (each.messages, each.forwarded, each.dead_lettered, each.left) for each in told.destinations}
    assert lines == {"orders": (55, 52, 0, 3), "billing": (20, 20, 0, 0), "invoices": (2, 0, 2, 0), "": (1, 0, 1, 0)}
    orders = told.destinations[0]
    assert (orders.possible_duplicates, orders.repeated, orders.bytes) == (2, 2, 55 * 1024)
    assert orders.in_flight is not None
    assert orders.in_flight.p95 == 0.5
    assert {each.name for each in told.slowest} == {"orders", "billing"}


def test_messages_that_went_to_another_destination_are_reported_with_both_names(told: Report) -> None:  # D13
    assert told.renames == [Renamed("orders", "orders-v2", 10, 10)]


def test_each_hour_says_what_ended_in_it_by_destination(told: Report) -> None:
    noon, one = moment(NOON), moment(NOON + HOUR)
    lines = [(each.start, each.destination, each.forwarded, each.dead_lettered, each.left) for each in told.hours]
    assert lines == [
        (noon, "", 0, 1, 0),
        (noon, "billing", 20, 0, 0),
        (noon, "invoices", 0, 2, 0),
        (noon, "orders", 40, 0, 13),
        (one, "orders", 14, 0, 0),
    ]


def test_the_timeline_has_no_gaps(told: Report) -> None:
    steps = told.timeline.steps
    assert told.timeline.seconds == 60
    assert [step.start for step in steps] == [moment(NOON) + timedelta(minutes=n) for n in range(62)]
    assert (steps[0].forwarded, steps[0].left, steps[30].forwarded, steps[60].forwarded) == (59, 13, 0, 12)
    assert sum(step.forwarded for step in steps) == told.transfers.forwarded


def test_dead_letters_are_grouped_by_what_differs_and_not_by_what_always_does(told: Report) -> None:
    lines = [(each.reason, each.destination, each.messages) for each in told.dead_letters]
    assert lines == [("MessageTooLarge", "invoices", 2), ("NoDestination", "", 1)]
    assert told.dead_letters[1].example == ledger_incident.NO_PATH


def test_what_is_left_says_why_and_since_when(told: Report) -> None:
    (line,) = told.left
    assert (line.reason, line.destination, line.messages) == ("amqp:resource-limit-exceeded", "orders", 3)
    assert (line.oldest, line.last_attempt) == (moment(NOON - 73 * MINUTE), moment(NOON))


def test_the_verdict_is_one_line(told: Report) -> None:
    assert told.verdict == (
        "72 of 78 messages on record arrived. 3 dead-lettered. 3 left in the backlog. "
        "2 arrived more than once. 5 receipts cannot be accounted for."
    )
    assert not told.complete


def test_machines_get_the_same(told: Report) -> None:
    values = json.loads(json.dumps(told.as_json()))
    assert (values["verdict"], values["complete"]) == (told.verdict, False)
    assert (values["transfers"]["received"], values["messages"]["total"]) == (95, 78)
    assert values["first"] == "2026-10-05T12:00:00Z"
    assert values["period"] == {"since": None, "until": None}
    assert values["in_backlog"]["p50"] == 960.0


def test_a_period_ends_before_its_end_and_its_messages_are_judged_by_it(
    spark: SparkSession, reader: ReaderOf, ledger: Ledger
) -> None:
    told = query_report(reader(ledger), Period(moment(NOON), moment(NOON + HOUR)), "contoso")
    assert (told.transfers.forwarded, told.transfers.left) == (60, 13)
    assert told.messages.left == 13
    assert told.transfers.unaccounted == 0


def test_an_attempt_that_crosses_the_border_of_a_period_is_not_short_of_rows(
    spark: SparkSession, reader: ReaderOf, ledger: Ledger
) -> None:
    told = query_report(reader(ledger), Period(since=moment(NOON + 1)), "contoso")
    assert told.transfers.forwarded == 74
    assert told.transfers.left == 0
    assert [each.job for each in told.shortfalls] == ["job-3"]


def test_all_pairs_are_reported_unless_one_is_named(spark: SparkSession, reader: ReaderOf, ledger: Ledger) -> None:
    told = query_report(reader(ledger))
    assert told.pairs == ["contoso", "fabrikam"]
    assert (told.messages.total, told.transfers.received) == (79, 96)


def test_a_clean_run_is_complete(spark: SparkSession, reader: ReaderOf, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1, result=Result.LEFT, reason="The pump was told to stop."), outcome(2)])
    again = AttemptKey("contoso", "job-2", 0, 0)
    record(ledger, [outcome(1, at=NOON + MINUTE, waited=HOUR + MINUTE)], again)
    note(ledger, [attempt(2), attempt(1, origin=again)])
    told = query_report(reader(ledger))
    assert told.complete
    assert told.verdict == "All 2 messages arrived. Every delivery is accounted for."
    assert told.transfers.left == 1
    assert told.left == []


def of_session(number: int, session: str | None, at: int, *, ordered: bool = True) -> Outcome:
    """Message `number` of a backlog queue, accepted so many seconds after noon."""
    at = NOON + at * 1000
    return outcome(number, at=at, waited=at - NOON + HOUR - number, session=session, ordered=ordered)


def test_sessions_whose_messages_overtook_each_other_are_listed(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:  # D21, X3
    """Later copies do not count, and neither do sessions whose order nobody asked for."""
    ledger = Ledger(spark, str(tmp_path))
    kept = [of_session(1, "kept", 1), of_session(4, "kept", 2), of_session(1, "kept", 9), of_session(5, None, 0)]
    record(ledger, [*kept, of_session(2, "late", 3), of_session(6, "late", 8)])
    again = AttemptKey("contoso", "job-2", 0, 0)
    unasked = [of_session(number, "unasked", -number, ordered=False) for number in (8, 9)]
    record(ledger, [of_session(3, "late", 4), of_session(7, "late", 2), *unasked], again)
    note(ledger, [attempt(6), attempt(4, origin=again)])
    told = query_report(reader(ledger))
    assert told.sessions == Sessions(total=2, violated=1)
    assert told.order_violations == [OrderViolation("contoso", "orders", "late", messages=4, late=3)]
    assert "Order not kept in 1 of 2 sessions." in told.sentences
    of_the_start = query_report(reader(ledger), Period(until=moment(NOON + 2000)))
    assert "Order kept in the session." in of_the_start.sentences


def test_a_queue_that_was_made_again_has_other_messages_under_the_same_numbers(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1), outcome(1, at=NOON + HOUR)])
    told = query_report(reader(ledger))
    assert (told.messages.total, told.messages.repeated) == (2, 0)


def test_a_long_time_is_reported_in_longer_steps(spark: SparkSession, reader: ReaderOf, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1), outcome(2, at=NOON + 30 * 24 * HOUR)])
    timeline = query_report(reader(ledger)).timeline
    assert (timeline.seconds, len(timeline.steps)) == (86_400, 31)
    assert [step.forwarded for step in timeline.steps] == [1, *[0] * 29, 1]


def test_a_ledger_whose_rows_are_lost_is_all_unaccounted_for(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    note(ledger, [attempt(7)])
    told = query_report(reader(ledger))
    assert (told.transfers.received, told.transfers.unaccounted, told.empty) == (7, 7, False)
    assert told.verdict == "7 receipts cannot be accounted for."


def test_a_file_of_the_ledger_that_is_broken_is_named(spark: SparkSession, reader: ReaderOf, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1)])
    (tmp_path / "transfers" / "date=2026-10-05" / "part-broken.parquet").write_bytes(b"PAR1")
    told = query_report(reader(ledger))
    assert [Path(file).name for file in told.unreadable_files] == ["part-broken.parquet"]
    assert told.messages.total == 1


def test_a_ledger_that_is_none_is_refused(spark: SparkSession, reader: ReaderOf, tmp_path: Path) -> None:
    for table in ("a=1", "b=2/c=3"):
        folder = tmp_path / "transfers" / table
        folder.mkdir(parents=True)
        (folder / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(LedgerUnreadable, match=str(tmp_path)):
        query_report(reader(Ledger(spark, str(tmp_path))))


# --- jobs that are open -----------------------------------------------------------------------------------------------

QUEUE = outcome().queue
LATER = moment(NOON + HOUR)


def open_job(ledger: Ledger, job: str, at: int = NOON, pair: str = "contoso") -> None:
    """A job that has counted ten messages, and whose driver then ended."""
    ledger.open_job(OpenJob(job, pair, (QUEUE, "idle"), 2, at))
    ledger.put_progress(job, at + 5000, {QUEUE: Counters(10, 8, 1)})


def test_a_job_that_was_never_closed_is_reported_with_what_it_had_counted(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:  # D17, X7
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1)])
    note(ledger, [attempt(1)])
    open_job(ledger, "job-2")
    told = query_report(reader(ledger), now=LATER)
    (job,) = told.open_jobs
    assert (job.job, job.pair, job.slots, job.pid, job.may_be_running) == ("job-2", "contoso", 2, os.getpid(), False)
    assert (job.opened_at, job.heard_at) == (moment(NOON), moment(NOON + 5000))
    assert job.queues == {QUEUE: Counters(10, 8, 1, 0), "idle": Counters()}
    assert (told.transfers.received, told.transfers.unaccounted, told.complete) == (11, 10, False)
    assert told.verdict == (
        "The message on record arrived. 10 receipts cannot be accounted for. "
        "1 job was opened and never closed: what it did after the last report is not known."
    )


def test_a_job_that_is_open_and_has_counted_nothing_is_reported_as_well(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    ledger.open_job(OpenJob("job-1", "contoso", (QUEUE,), 1, NOON))
    told = query_report(reader(ledger), now=LATER)
    assert (told.empty, told.complete, told.pairs) == (False, False, ["contoso"])
    assert told.verdict == "1 job was opened and never closed: what it did after the last report is not known."
    soon = query_report(reader(ledger), now=moment(NOON + 1_000))
    assert soon.verdict == "1 job may still be running: what it has received is not on record yet."


def test_a_job_that_was_just_heard_of_may_be_running(spark: SparkSession, reader: ReaderOf, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    open_job(ledger, "job-1")
    told = query_report(reader(ledger), now=moment(NOON + 64_000))
    assert (told.transfers.received, told.complete) == (0, False)
    assert told.verdict == (
        "1 job may still be running: what it has received (10 messages at the last report) is not on record yet."
    )
    assert query_report(reader(ledger), now=moment(NOON + 66_000)).running_jobs == []


def test_a_job_whose_rows_are_on_record_counts_once_although_it_was_not_closed(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    open_job(ledger, "job-1")
    record(ledger, [outcome(number) for number in range(10)])
    note(ledger, [attempt(10)])
    told = query_report(reader(ledger), now=LATER)
    assert (told.open_jobs, told.shortfalls, told.transfers.received) == ([], [], 10)
    assert told.verdict == "All 10 messages arrived. Every delivery is accounted for."


def test_a_job_that_was_cut_off_while_it_was_written_is_short_of_rows_and_counts_once(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    open_job(ledger, "job-1")
    note(ledger, [attempt(12)])
    record(ledger, [outcome(number) for number in range(4)])
    told = query_report(reader(ledger), now=LATER)
    assert (told.open_jobs, [each.unaccounted for each in told.shortfalls]) == ([], [8])
    assert (told.transfers.received, told.transfers.unaccounted) == (12, 8)
    # As long as its driver may be writing, nothing is said to be missing.
    told = query_report(reader(ledger), now=moment(NOON + 6000))
    assert ([each.job for each in told.running_jobs], told.shortfalls, told.transfers.received) == (["job-1"], [], 4)


def test_a_task_counts_each_of_its_queues(spark: SparkSession, reader: ReaderOf, tmp_path: Path) -> None:  # D15
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1), outcome(2)._replace(queue="other")])
    note(ledger, [attempt(1), attempt(5)._replace(queue="other")])
    told = query_report(reader(ledger))
    assert [(each.queue, each.unaccounted) for each in told.shortfalls] == [("other", 4)]


def test_an_open_job_concerns_its_pair_and_the_time_in_which_it_may_have_worked(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    open_job(ledger, "job-1")

    def told_of(period: Period, pair: str | None = None) -> bool:
        return bool(query_report(reader(ledger), period, pair, now=LATER).open_jobs)

    assert told_of(Period(moment(NOON + HOUR)), "contoso")
    assert not told_of(Period(), "fabrikam")
    assert not told_of(Period(moment(NOON + 2 * HOUR)))
    assert not told_of(Period(until=moment(NOON)))


def test_a_ledger_with_a_file_that_cannot_be_read_proves_nothing(
    spark: SparkSession, reader: ReaderOf, tmp_path: Path
) -> None:  # X7
    ledger = Ledger(spark, str(tmp_path))
    record(ledger, [outcome(1)])
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "job-1.json").write_bytes(b"{")
    told = query_report(reader(ledger))
    assert told.unreadable_files == [f"{tmp_path}/open/job-1.json"]
    assert not told.complete
    assert told.verdict == (
        "The message on record arrived. 1 file of the ledger cannot be read: what is in it is missing here."
    )


def test_files_that_are_merged_while_the_report_reads_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    class Merging(Ledger):
        """Its files are merged right after Spark has listed them, once."""

        merged = False

        def transfers(self) -> DataFrame:
            rows = super().transfers()
            if not self.merged:
                self.merged = True
                merge_all(self)
            return rows

    ledger = Merging(spark, str(tmp_path))
    record(ledger, [outcome(1)])
    record(ledger, [outcome(2)])
    told = query_report(SparkReader(ledger))
    assert (told.messages.total, told.unreadable_files) == (2, [])


def test_files_that_are_merged_while_this_process_reads_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(None, f"file:{tmp_path}")
    record(ledger, [outcome(1)])
    record(ledger, [outcome(2)])
    opened = pq.ParquetFile
    merged: list[Path] = []

    def open_late(file: Path) -> pq.ParquetFile:
        if not merged:
            merged.append(file)
            merge_all(ledger)
        return opened(file)

    monkeypatch.setattr(pq, "ParquetFile", open_late)
    told = query_report(LocalReader(ledger.path))
    assert (told.messages.total, told.unreadable_files, len(merged)) == (2, [], 1)


def merge_all(ledger: Ledger) -> None:
    folder = "transfers/date=2026-10-05"
    merge(ledger.files, folder, ledger.files.names(folder))


def test_both_ways_to_read_a_ledger_count_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A ledger with everything that may differ, at random. The seed is in the message of a failure."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    ledger = Ledger(spark, str(tmp_path))
    reasons = [
        FULL,
        "MessageTooLarge: 300 bytes",
        "127.0.0.1:5671: Connection refused",
        "",
        "The pump was told to stop.",
    ]
    for job in range(12):
        origin = AttemptKey(chance.choice(["contoso", "fabrikam"]), f"job-{job}", chance.randrange(2), 0)
        rows = [
            outcome(
                chance.randrange(60),
                at=NOON + chance.randrange(40 * HOUR),
                waited=chance.randrange(-1000, 10 ** chance.randrange(1, 10)),
                result=chance.choice(list(Result)),
                destination=chance.choice(["orders", "Orders/", "billing", "a/b", ""]),
                reason=chance.choice(reasons),
                possible_duplicate=chance.random() < 0.1,
            )
            for _ in range(chance.randrange(1, 200))
        ]
        # The same messages again and again, as destinations that back off make them.
        record(ledger, [row._replace(enqueued_at=NOON - row.sequence_number % 7 * HOUR) for row in rows], origin)
        counted = len(rows) + chance.choice([0, 0, 3])
        note(ledger, [attempt(counted, origin=origin, at=NOON + chance.randrange(40 * HOUR))])
    open_job(ledger, "job-3")
    open_job(ledger, "job-77")
    periods = (Period(), Period(since=moment(NOON + 9 * HOUR)), Period(moment(NOON), moment(NOON + 20 * HOUR + 1)))
    for period in periods:
        for pair in (None, "fabrikam"):
            here, on_spark = (
                query_report(way, period, pair, now=LATER) for way in (LocalReader(ledger.path), SparkReader(ledger))
            )
            assert here == on_spark, f"seed {seed}, {period}, {pair}"
            assert here.messages.repeated, f"seed {seed}"


def test_a_host_is_no_reason(reader: ReaderOf, spark: SparkSession, tmp_path: Path) -> None:
    ledger = Ledger(spark, str(tmp_path))
    texts = [
        "127.0.0.1:5671: Connection refused",
        "contoso.servicebus.windows.net: Connection refused",
        "[::1]:5671: Connection refused",
        "com.microsoft:server-busy: contoso.servicebus.windows.net: wait",
    ]
    record(ledger, [outcome(n, result=Result.LEFT, reason=text) for n, text in enumerate(texts)])
    told = query_report(reader(ledger))
    assert [(each.reason, each.messages) for each in told.left] == [
        ("Connection refused", 3),
        ("com.microsoft:server-busy", 1),
    ]
    assert told.left[0].example.endswith(": Connection refused")


# --- the command, in this process and on its Spark -------------------------------------------------------------------


def syphon_report(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(report_command, arguments)


def test_the_command_shows_tables_and_its_exit_code_says_that_something_was_left(ledger: Ledger) -> None:  # D12
    done = syphon_report("--ledger", ledger.path, "--to", "2026-10-05T12:00:00.001Z", "--pair", "contoso")
    assert done.exit_code == ExitCode.LEFT
    assert done.stdout.splitlines()[:3] == [
        "0 of 16 messages arrived. 3 dead-lettered. 13 left in the backlog. Every delivery is accounted for.",
        "2026-10-05 12:00:00 UTC to 2026-10-05 12:00:00 UTC, 16.0 KB",
        "Transfers: 16 received = 0 forwarded + 3 dead-lettered + 13 left in the backlog + 0 unaccounted",
    ]
    assert done.stderr == ""


def test_a_period_in_which_nothing_happened_is_reported_and_is_no_failure(ledger: Ledger) -> None:
    done = syphon_report("--ledger", ledger.path, "--from", "2026-10-06")
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "Nothing is recorded.\n")
    assert done.stderr == (
        f"The ledger at {ledger.path} has transfers of contoso, fabrikam, but none that match the options.\n"
    )


def test_an_empty_folder_is_an_empty_ledger(tmp_path: Path) -> None:
    done = syphon_report("--ledger", str(tmp_path))
    assert (done.exit_code, done.stdout) == (ExitCode.OK, "Nothing is recorded.\n")
    assert done.stderr.startswith(f"The ledger at {tmp_path} is empty, or does not exist yet. ")


def test_a_ledger_that_cannot_be_reached_is_reported(spark: SparkSession) -> None:
    done = syphon_report("--ledger", "nowhere://host/ledger")
    assert (done.exit_code, done.stdout) == (ExitCode.UNAVAILABLE, "")
    assert done.stderr.startswith("The ledger at nowhere://host/ledger cannot be read: ")
