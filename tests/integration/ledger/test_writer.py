"""The ledger writer: a job is on record before it begins, and no row is dropped unseen (D9, D17)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from syphon import time_budget
from syphon.ledger import writer as writer_module
from syphon.ledger.filesystems import LocalFiles
from syphon.ledger.ledger import Ledger, LedgerUnwritable
from syphon.ledger.merge import StoredFile
from syphon.ledger.rows import Attempt, OpenJob
from syphon.ledger.writer import LedgerWriter
from syphon.model import AttemptKey
from syphon.model.outcomes import Counters
from tests.support.ledger_rows import HOUR, NOON, attempt, outcome, packed_file
from tests.support.waiting import eventually

JOB = OpenJob("job-1", "contoso", ("orders",), 1, NOON)


class Faulty(LocalFiles):
    """Plain files on a disk that may be full, and that notes its changes."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.full = False
        self.changes: list[str] = []

    def put(self, place: str, content: bytes, durable: bool = True) -> None:
        if self.full:
            raise OSError(28, "No space left on device", place)
        super().put(place, content, durable)
        self.changes.append(f"put {place.partition('/')[0]}")

    def delete(self, folder: str, names: Sequence[str]) -> None:
        super().delete(folder, names)
        self.changes.append(f"delete {folder}")


@pytest.fixture
def files(tmp_path: Path) -> Faulty:
    return Faulty(tmp_path)


@pytest.fixture
def ledger(files: Faulty, tmp_path: Path) -> Ledger:
    found = Ledger(None, f"file:{tmp_path}")
    found.files = files
    return found


@pytest.fixture
def writer(ledger: Ledger) -> LedgerWriter:
    found = LedgerWriter(ledger)
    found.start()
    return found


def numbers(folder: Path) -> list[int]:
    files = (folder / "transfers").rglob("*.parquet")
    return sorted(number for file in files for number in pq.read_table(file)["sequence_number"].to_pylist())


def test_a_job_is_on_record_before_it_begins_and_until_its_rows_are(
    writer: LedgerWriter, files: Faulty, tmp_path: Path
) -> None:  # D17
    writer.open_job(JOB)
    on_record = json.loads((tmp_path / "open" / "job-1.json").read_bytes())
    assert (on_record["pair"], on_record["queues"], on_record["slots"]) == ("contoso", ["orders"], 1)
    writer.close_job("job-1", [packed_file([outcome(1)]), packed_file([outcome(2)])], [attempt(2)])
    assert writer.finish()
    assert files.changes == ["put open", "put attempts", "put transfers", "delete open"]
    assert (numbers(tmp_path), list((tmp_path / "open").iterdir())) == ([1, 2], [])


def test_rows_of_two_days_are_in_the_folders_of_their_days(writer: LedgerWriter, tmp_path: Path) -> None:
    late = NOON + 12 * HOUR
    writer.close_job("job-1", [packed_file([outcome(1, at=late - 1), outcome(2, at=late), outcome(3)])], [attempt(3)])
    assert writer.finish()
    days = {file.parent.name: pq.read_table(file).num_rows for file in (tmp_path / "transfers").rglob("*.parquet")}
    assert days == {"date=2026-10-05": 2, "date=2026-10-06": 1}


def test_what_a_job_has_counted_is_on_record_while_it_runs(
    writer: LedgerWriter, files: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "progress_every", 0.0)
    writer.open_job(JOB)
    writer.progress("job-1", {"orders": Counters(10, 7), "other": Counters(1)})
    progress = tmp_path / "open" / "job-1.progress"
    eventually(progress.exists, what="the progress is written")
    writer.progress("unknown", {"orders": Counters(1)})
    writer.close_job("job-1", [], [])
    assert writer.finish()
    assert not progress.exists()


def test_the_last_progress_of_jobs_that_never_end_is_on_record(writer: LedgerWriter, ledger: Ledger) -> None:
    writer.open_job(JOB)
    writer.progress("job-1", {"orders": Counters(10, 7), "other": Counters(1)})
    writer.finish()
    ((job,), broken) = ledger.open_jobs()
    assert (job.queues, broken) == ({"orders": Counters(10, 7), "other": Counters(1)}, [])


DRIVER = """
import sys
from pathlib import Path
from syphon.ledger.rows import OpenJob
from syphon.ledger.ledger import Ledger, LedgerUnwritable
from syphon.ledger.writer import LedgerWriter
from syphon.model.outcomes import Counters
writer = LedgerWriter(Ledger(None, "file:" + sys.argv[1]))
writer._ledger.files.progress_every = 0.0
writer.start()
writer.open_job(OpenJob("job-1", "contoso", ("orders",), 1, 0))
writer.progress("job-1", {"orders": Counters(10, 7)})
sys.stdin.readline()
"""


def test_a_job_stays_open_when_its_driver_is_killed(tmp_path: Path, ledger: Ledger) -> None:  # X7
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], stdin=subprocess.PIPE) as driver:
        try:
            eventually((tmp_path / "open" / "job-1.progress").exists, what="the driver has written the progress")
        finally:
            driver.send_signal(signal.SIGKILL)
    ((job,), _) = ledger.open_jobs()
    assert (job.job, job.pid, job.queues) == ("job-1", driver.pid, {"orders": Counters(10, 7)})


# --- a disk that is full ---------------------------------------------------------------------------------------------


def test_rows_that_could_not_be_written_are_retried(
    writer: LedgerWriter, files: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LEDGER_RETRY_AFTER", 0.05)
    files.full = True
    writer.open_job(JOB)
    assert "cannot be written: No space left on device" in writer.error
    writer.close_job("job-1", [packed_file([outcome(1)])], [attempt(1)])
    writer.catch_up()
    assert "cannot be written" in writer.error
    files.full = False
    eventually(lambda: not writer.error, what="the rows are written")
    assert writer.finish()
    assert numbers(tmp_path) == [1]


def test_a_ledger_that_cannot_be_written_does_not_keep_a_worker_from_ending(
    writer: LedgerWriter, files: Faulty, ledger: Ledger, tmp_path: Path
) -> None:
    writer.open_job(JOB)
    files.full = True
    writer.close_job("job-1", [packed_file([outcome(1)])], [attempt(1)])
    assert not writer.finish()
    assert "No space left" in writer.error
    assert [job.job for job in ledger.open_jobs()[0]] == ["job-1"]


def test_where_nothing_can_be_written_the_oldest_rows_make_room_and_their_job_stays_open(
    writer: LedgerWriter, files: Faulty, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = packed_file([outcome(1)]), packed_file([outcome(2)], AttemptKey("contoso", "job-2", 0, 0))
    monkeypatch.setattr(writer_module, "MOST_WAITING", len(first) + 10)
    monkeypatch.setattr(writer_module, "LEDGER_RETRY_AFTER", 0.05)
    for job in ("job-1", "job-2"):
        writer.open_job(JOB._replace(job=job))
    files.full = True
    writer.close_job("job-1", [first], [attempt(1)])
    writer.catch_up()
    writer.close_job("job-2", [second], [attempt(1, origin=AttemptKey("contoso", "job-2", 0, 0))])
    files.full = False
    assert not writer.finish()
    assert "rows of job job-1 were dropped" in writer.error
    assert numbers(tmp_path) == [2]
    assert [job.job for job in ledger.open_jobs()[0]] == ["job-1"]


def test_rows_that_are_no_file_keep_no_others_from_being_written(writer: LedgerWriter, tmp_path: Path) -> None:
    writer.close_job("job-1", [b"no file"], [attempt(1)])
    writer.close_job("job-2", [packed_file([outcome(2)])], [attempt(1)])
    assert not writer.finish()
    assert "job-1 were dropped" in writer.error
    assert numbers(tmp_path) == [2]


# --- a network drive that hangs --------------------------------------------------------------------------------------


class Hanging(Faulty):
    """A drive that takes no record of a job until it is let go."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.answers = threading.Event()
        self.hanging = 0

    def put(self, place: str, content: bytes, durable: bool = True) -> None:
        if place.endswith(".json"):
            self.hanging += 1
            assert self.answers.wait(60)
        super().put(place, content, durable)


@pytest.fixture
def hanging(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    monkeypatch.setattr(writer_module, "RECORD_WITHIN", 0.05)
    monkeypatch.setattr(writer_module, "LEDGER_RETRY_AFTER", 0.05)
    ledger.files = Hanging(tmp_path)
    return ledger.files


def test_a_job_begins_although_the_ledger_hangs_and_is_on_record_when_it_answers(
    writer: LedgerWriter, ledger: Ledger, hanging: Hanging, tmp_path: Path
) -> None:  # D9, D17
    writer.open_job(JOB)  # it returns
    assert "has not answered" in writer.error
    for number in range(2, 5):
        writer.open_job(JOB._replace(job=f"job-{number}"))
    assert hanging.hanging == 1  # no thread more for each job that begins meanwhile
    hanging.answers.set()
    jobs = [f"job-{number}" for number in range(1, 5)]
    eventually(lambda: [job.job for job in ledger.open_jobs()[0]] == jobs, what="all jobs are on record")
    eventually(lambda: not writer.error, what="the error is over")
    writer.close_job("job-1", [packed_file([outcome(1)])], [attempt(1)])
    assert writer.finish()
    assert [job.job for job in ledger.open_jobs()[0]] == jobs[1:]
    assert numbers(tmp_path) == [1]


def test_jobs_that_began_while_the_ledger_hung_are_on_record_before_more_rows_are(
    ledger: Ledger, hanging: Hanging
) -> None:  # D17, X7
    writer = LedgerWriter(ledger)  # its thread does not run
    for job in ("job-1", "job-2", "job-3"):
        writer.open_job(JOB._replace(job=job))
    writer.close_job("job-3", [packed_file([outcome(1)])], [attempt(1)])
    hanging.answers.set()
    eventually(lambda: not writer.error, what="the ledger answers")
    writer.start()
    assert writer.finish()
    assert hanging.changes[:4] == ["put open", "put attempts", "put open", "put transfers"]
    assert [job.job for job in ledger.open_jobs()[0]] == ["job-1", "job-2"]


def test_a_record_that_could_not_be_written_is_retried_while_its_job_runs(
    writer: LedgerWriter, files: Faulty, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:  # D17
    monkeypatch.setattr(writer_module, "LEDGER_RETRY_AFTER", 0.05)
    files.full = True
    writer.open_job(JOB)
    assert "cannot be written" in writer.error
    files.full = False
    eventually(lambda: [job.job for job in ledger.open_jobs()[0]] == ["job-1"], what="the job is on record")
    eventually(lambda: not writer.error, what="the error is over")
    assert writer.finish()


def test_a_job_that_has_ended_does_not_open_when_a_ledger_that_hung_answers(
    writer: LedgerWriter, ledger: Ledger, hanging: Hanging, tmp_path: Path
) -> None:  # X7
    writer.open_job(JOB)
    writer.close_job("job-1", [packed_file([outcome(1)])], [attempt(1)])
    eventually(lambda: numbers(tmp_path) == [1], what="the rows are written")
    hanging.answers.set()
    eventually(lambda: "put open" in hanging.changes, what="the record is written, late")
    eventually(lambda: not writer.error, what="the job is closed")
    assert writer.finish()
    assert ledger.open_jobs() == ([], [])


def test_a_record_that_hangs_does_not_block_the_rows_of_other_jobs(
    writer: LedgerWriter, ledger: Ledger, hanging: Hanging, tmp_path: Path
) -> None:  # D9
    for number in range(1, 4):
        job = f"job-{number}"
        writer.open_job(JOB._replace(job=job))
        origin = AttemptKey("contoso", job, 0, 0)
        writer.close_job(job, [packed_file([outcome(number)], origin)], [attempt(1, origin=origin)])
    eventually(lambda: numbers(tmp_path) == [1, 2, 3], what="the rows of all jobs are written")
    hanging.answers.set()
    eventually(lambda: hanging.changes.count("delete open") == 3, what="all jobs are closed")
    assert writer.finish()
    assert ledger.open_jobs() == ([], [])


def test_a_ledger_that_hangs_for_long_makes_room_for_new_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # D9
    monkeypatch.setattr(writer_module, "MOST_WAITING", 10)
    monkeypatch.setattr(writer_module, "LEDGER_STALLED_AFTER", 0.05)
    ledger = Slow(tmp_path)
    writer = LedgerWriter(ledger)
    writer.start()
    writer.close_job("job-1", [packed_file([outcome(1)])], [attempt(1)])  # it returns
    assert "rows of job job-1 were dropped" in writer.error
    ledger.free.release()
    assert not writer.finish()


# --- a disk that is slow ---------------------------------------------------------------------------------------------


class Refused:
    """A table that takes no file."""

    def __call__(self, name: str, attempts: Sequence[Attempt]) -> StoredFile:
        raise LedgerUnwritable("The ledger cannot be written.")


class Slow(Ledger):
    """A ledger whose disk lets one file of attempts through at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(None, f"file:{path}")
        self.free = threading.Semaphore(0)

    def put_attempts(self, name: str, attempts: Sequence[Attempt]) -> StoredFile:
        self.free.acquire()
        return super().put_attempts(name, attempts)


def test_a_writer_with_a_limit_ends_in_time_and_says_that_the_ledger_is_not_complete(tmp_path: Path) -> None:
    ledger = Slow(tmp_path)
    writer = LedgerWriter(ledger)
    writer.start()
    writer.open_job(JOB)
    writer.close_job("job-1", (), [attempt(1)])
    assert not writer.finish(0.2)
    assert "not written in time" in writer.error
    assert [job.job for job in ledger.open_jobs()[0]] == ["job-1"]
    ledger.free.release()


def test_a_writer_without_a_limit_waits_as_long_as_files_are_written_and_says_so(tmp_path: Path) -> None:
    ledger, now = Slow(tmp_path), [0.0]
    writer = LedgerWriter(ledger, lambda: now[0])
    writer.start()
    for number in range(3):
        writer.close_job(f"job-{number}", (), [attempt(1)])
    lines: list[str] = []

    def said(line: str) -> None:
        """Each job takes almost as long as the writer waits for one."""
        lines.append(line)
        now[0] += time_budget.LEDGER_STALLED_AFTER - 1
        ledger.free.release()

    assert writer.finish(say=said)
    assert now[0] > time_budget.LEDGER_STALLED_AFTER
    assert lines[0] == "Writing the ledger: 3 jobs to go, 0 files written"


def test_a_writer_without_a_limit_gives_up_when_nothing_is_written_any_more(tmp_path: Path) -> None:
    ledger, now = Slow(tmp_path), [0.0]
    writer = LedgerWriter(ledger, lambda: now[0])
    writer.start()
    writer.close_job("job-1", (), [attempt(1)])

    def said(_: str) -> None:
        now[0] += time_budget.LEDGER_STALLED_AFTER

    assert not writer.finish(say=said)
    assert "not written in time" in writer.error
    ledger.free.release()


def test_what_all_jobs_have_counted_is_on_record_before_the_rows_of_any(tmp_path: Path, files: Faulty) -> None:
    ledger = Slow(tmp_path)
    ledger.files = files
    writer = LedgerWriter(ledger)
    writer.start()
    for number in range(2):
        writer.close_job(f"job-{number}", [packed_file([outcome(number)])], [attempt(1)])
    ledger.free.release(2)
    assert writer.finish()
    assert files.changes[:3] == ["put attempts", "put attempts", "put transfers"]


def test_what_a_job_has_counted_that_ends_meanwhile_is_on_record_before_the_next_rows(
    writer: LedgerWriter, ledger: Ledger, files: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:  # X7
    put_transfers = ledger.put_transfers

    def job_ends_meanwhile(day: str, name: str, file: bytes) -> StoredFile:
        if name == "job-1-0":
            writer.close_job("job-2", (), [attempt(1)])
        return put_transfers(day, name, file)

    monkeypatch.setattr(ledger, "put_transfers", job_ends_meanwhile)
    writer.close_job("job-1", [packed_file([outcome(1), outcome(2, at=NOON + 12 * HOUR)])], [attempt(2)])
    assert writer.finish()
    assert files.changes[:4] == ["put attempts", "put transfers", "put attempts", "put transfers"]


def test_jobs_that_wait_for_a_long_time_are_heard_of(
    files: Faulty, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "LEDGER_RETRY_AFTER", 0.05)
    now = [0.0]
    writer = LedgerWriter(ledger, lambda: now[0])
    writer.start()
    writer.open_job(JOB)
    monkeypatch.setattr(ledger, "put_attempts", Refused())
    writer.close_job("job-1", (), [attempt(7, 5)])
    writer.catch_up()
    now[0] += time_budget.LEDGER_KEEP_ALIVE_EVERY
    eventually(lambda: "job-1.progress" in files.names("open"), what="the job is heard of")
    ((job,), _) = ledger.open_jobs()
    assert job.queues[outcome().queue] == Counters(7, 5)
    assert not writer.finish()


def test_thousands_of_jobs_that_wait_do_not_keep_the_writer_from_writing(ledger: Ledger, files: Faulty) -> None:
    now = [0.0]
    writer = LedgerWriter(ledger, lambda: now[0])  # its thread does not run
    for number in range(1000):
        writer.close_job(f"job-{number}", (), [attempt(1)])
    now[0] += time_budget.LEDGER_KEEP_ALIVE_EVERY
    for times in (1, 2):
        writer._keep_alive()
        assert len(files.names("open")) == times * writer_module.KEPT_ALIVE


def test_a_job_waits_while_too_many_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MOST_WAITING", 10)
    ledger = Slow(tmp_path)
    writer = LedgerWriter(ledger)
    writer.start()
    closed = threading.Event()

    def close() -> None:
        writer.close_job("job-1", [packed_file([outcome(1)])], [attempt(1)])
        closed.set()

    threading.Thread(target=close, daemon=True).start()
    assert not closed.wait(0.2)
    ledger.free.release()
    assert closed.wait(60)
    assert writer.finish()
    assert numbers(tmp_path) == [1]
