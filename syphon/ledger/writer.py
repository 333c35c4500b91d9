"""The ledger writer: it writes the ledger in a thread of its own, so that no transfer waits for the ledger (D9, D17).

A job is on record before it begins (`open_job`), while it runs (`progress`) and when it has ended (`close_job`): first
its attempts, then its transfers, and last the note that it is open is deleted. The attempts of all jobs that wait go
before the transfers of any: whatever cuts the writer off, the report then knows exactly what is missing.

Rows that cannot be written are retried. Rows that are given up, or that a killed driver takes with it, are missing in
the report, and the report says so: the job's attempts have counted them, or the job is still open.

There is one exception, because no transfer waits for a ledger that hangs: a job then begins without its record. The
record is written before further rows when the ledger answers. A job whose driver is killed before its record or its
attempts are written is in no report.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from syphon.model import Counters, plural
from syphon.time_budget import (
    LEDGER_KEEP_ALIVE_EVERY,
    LEDGER_RETRY_AFTER,
    LEDGER_STALLED_AFTER,
    LEDGER_TICK,
    MERGE_NEEDS,
    RECORD_WITHIN,
)

from .ledger import Ledger, LedgerUnwritable
from .merge import Merger, StoredFile
from .rows import Attempt, OpenJob


@dataclass
class RunningJob:
    """An open job: its record, its unwritten progress, and when it was last written."""

    job: OpenJob
    written_at: float
    opened: threading.Event = field(default_factory=threading.Event)
    """Set when the first attempt to write its record is over."""
    on_record: bool = False
    heard_at: int = 0
    queues: dict[str, Counters] = field(default_factory=dict)
    changed: bool = False


@dataclass
class ClosingJob:
    """A job that has ended, and what of it is not on record yet."""

    job: str
    files: list[bytes]
    attempts: Sequence[Attempt]
    heard_at: float
    """When the ledger last heard that it waits."""
    opened: threading.Event | None
    """Set while no write of its record is running; None if there never was one."""
    by_day: deque[tuple[str, str, bytes]] | None = None
    """The rows as they are written: day, name, file."""
    failed: bool = False
    """The last attempt to write it failed."""
    given_up: bool = False
    """Its rows were dropped."""
    counted: dict[str, Counters] = field(init=False)
    """What its attempts had counted, by queue."""

    def __post_init__(self) -> None:
        self.counted = {}
        for attempt in self.attempts:
            known = self.counted.get(attempt.queue, Counters())
            self.counted[attempt.queue] = known + attempt.counters.counters()

    @property
    def size(self) -> int:
        return sum(map(len, self.files)) + sum(len(file) for _, _, file in self.by_day or ())

    @property
    def is_being_opened(self) -> bool:
        """Whether its record is still being written: deleted now, it would reappear afterwards."""
        return self.opened is not None and not self.opened.is_set()


log = logging.getLogger(__name__)

MOST_WAITING = 256 * 1024 * 1024
"""Bytes of rows that wait to be written, about eight million transfers. With more, the next job waits."""
KEPT_ALIVE = 5
"""Records refreshed at a time: with thousands of them, nothing else would be written."""


class LedgerWriter:
    """Records jobs one after the other, in a thread of its own. An error is kept and logged; it stops no transfer."""

    def __init__(self, ledger: Ledger, now: Callable[[], float] = time.monotonic) -> None:
        self._ledger, self._now = ledger, now
        self._error = ""
        self._lost = ""
        self._running: dict[str, RunningJob] = {}
        self._late: set[str] = set()
        """Jobs whose record is being written and that did not wait for it any longer."""
        self._records_from: float | None = None
        """When missing records are retried after an error; None after a success."""
        self._waiting: deque[ClosingJob] = deque()
        self._unwritable: list[ClosingJob] = []
        """Jobs that could not be written when the writer ended."""
        self._steps = 0
        """Files written: the progress that `finish` waits for."""
        self._ending = False
        self._deadline: float | None = None
        self._changed = threading.Condition()
        self._merger: Merger | None = None
        self._thread = threading.Thread(target=self._run, name="ledger writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def error(self) -> str:
        """Why the ledger is not complete: rows were given up, or the last ones are not written. Empty if it is."""
        return self._lost or self._error

    # --- for jobs ------------------------------------------------------------------------------------------------

    def open_job(self, job: OpenJob) -> None:
        """Puts a job on record. When it returns, the record is on disk, or `error` says why not.

        The record is written in a thread that may hang. While one hangs no other is started: the ledger writer's own
        thread writes the records of further jobs when the ledger answers, or with their progress.
        """
        running = RunningJob(job, self._now())
        with self._changed:
            self._running[job.job] = running
            if self._late:
                running.opened.set()
                return
        threading.Thread(target=self._open, args=(running,), name="open a job", daemon=True).start()
        if running.opened.wait(RECORD_WITHIN):
            return
        with self._changed:
            if not running.opened.is_set():
                self._late.add(job.job)
                self._set_error(self._no_answer(RECORD_WITHIN))
                self._changed.notify_all()

    def _open(self, running: RunningJob) -> None:
        done = self._try(partial(self._ledger.open_job, running.job))
        with self._changed:
            was_late = running.job.job in self._late
            self._late.discard(running.job.job)
            running.on_record = done
            running.opened.set()
        if done and was_late:
            self._recover()

    def _no_answer(self, seconds: float) -> str:
        return (
            f"The ledger at {self._ledger.path} has not answered for {seconds:.0f} seconds. "
            f"Transfers continue, and are recorded when it answers."
        )

    def progress(self, job: str, queues: Mapping[str, Counters]) -> None:
        """Record what an open job has counted so far. It never waits; the thread writes it every few seconds."""
        with self._changed:
            running = self._running.get(job)
            if running is not None:
                running.queues = {queue: counters.counters() for queue, counters in queues.items()}
                running.heard_at, running.changed = _wall_clock(), True

    def close_job(self, job: str, files: Sequence[bytes], attempts: Sequence[Attempt]) -> None:
        """Queues the rows of a job that has ended. It waits while too many rows are waiting."""
        with self._changed:
            running = self._running.pop(job, None)
            opened = running.opened if running is not None else None
            self._waiting.append(ClosingJob(job, list(files), attempts, self._now(), opened))
            self._changed.notify_all()
            steps = self._steps
            while not self._changed.wait_for(self._has_room, LEDGER_STALLED_AFTER):
                if self._steps == steps:
                    self._set_error(self._no_answer(LEDGER_STALLED_AFTER))
                steps = self._steps

    @property
    def needs_spark(self) -> bool:
        """Whether rows wait that cannot be written when Spark has stopped."""
        with self._changed:
            return bool(self._waiting) and not self._ledger.is_local

    def catch_up(self) -> None:
        """Waits until every job that was queued so far is written, or cannot be written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or bool(self.error))

    def finish(self, within: float | None = None, say: Callable[[str], None] | None = None) -> bool:
        """Writes what waits, ends the thread, and returns whether everything is on record.

        With `within`, it ends after that many seconds. Without, it waits as long as files are being written. `say` is
        called with a line for a progress display while it waits. Jobs that it gives up stay open if they have a record.
        """
        started = moved_at = self._now()
        steps, said = self._steps, ""
        with self._changed:
            self._ending, self._deadline = True, None if within is None else started + within
            self._changed.notify_all()
        while self._thread.is_alive():
            now = self._now()
            if self._steps != steps:
                steps, moved_at = self._steps, now
            left = moved_at + LEDGER_STALLED_AFTER - now if within is None else started + within - now
            if left <= 0:
                break
            if say is not None and (line := self._waiting_line()) != said:
                say(line)
                said = line
            self._thread.join(min(LEDGER_TICK, left))
        return self._is_complete()

    def _waiting_line(self) -> str:
        written = f"{plural(self._steps, 'file')} written"
        return f"Writing the ledger: {plural(len(self._waiting), 'job')} to go, {written}"

    def _is_complete(self) -> bool:
        with self._changed:
            unwritten = len(self._waiting) + len(self._unwritable)
            if unwritten and not self._error:
                self._set_error(
                    f"The ledger at {self._ledger.path} was not written in time: it is not complete. "
                    f"{plural(unwritten, 'job')} not completely written. The report shows those of which a record or "
                    f"attempts were written; it does not know the others."
                )
            return not unwritten and not self.error

    def _has_room(self) -> bool:
        """Whether the next job may begin. While nothing can be written, the oldest rows make room for new ones."""
        for closing in self._waiting if self._error else ():
            if self._bytes_waiting() <= MOST_WAITING:
                break
            self._give_up(closing, self._error)
        return self._ending or self._bytes_waiting() <= MOST_WAITING

    def _bytes_waiting(self) -> int:
        return sum(closing.size for closing in self._waiting)

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (closing := self._next_job()) is not None or not self._ending:
            if closing is not None and self._try(partial(self._write, closing)):
                self._remove(closing)
            elif closing is not None and self._ending:
                self._unwritable.append(closing)  # it was the last attempt
                self._remove(closing)
            elif closing is not None:
                closing.failed = True
                self._wait(LEDGER_RETRY_AFTER)
            self._try(self._write_progress)
            self._keep_alive()
            self._try(self._merge)
            self._ledger.parquet.rest(bool(self._running))
        self._try(partial(self._write_progress, everything=True))
        if self._deadline is None or self._deadline - self._now() > MERGE_NEEDS:
            self._try(partial(self._merge, everything=True))

    def _next_job(self) -> ClosingJob | None:
        """The oldest job that can be closed. A job whose record hangs is the last: it must not block the others."""
        with self._changed:
            if not self._waiting and not self._ending:
                self._changed.wait(LEDGER_TICK)
            return min(self._waiting, key=lambda closing: closing.is_being_opened, default=None)

    def _all_waiting(self) -> list[ClosingJob]:
        with self._changed:
            return list(self._waiting)

    def _remove(self, closing: ClosingJob) -> None:
        with self._changed:
            self._waiting.remove(closing)
            self._changed.notify_all()
        self._recover()

    def _wait(self, seconds: float) -> None:
        """Wait before the next attempt, unless the writer is to end."""
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ending, seconds)

    def _write(self, closing: ClosingJob) -> None:
        """Writes what is not written of a job. It may be called again after an error."""
        self._make_jobs_known()
        if closing.by_day is None:
            self._arrange(closing)
        while closing.by_day:
            day, name, file = closing.by_day[0]
            self._written(self._ledger.put_transfers(day, name, file))
            with self._changed:
                if closing.by_day:  # the rows may have been given up meanwhile
                    closing.by_day.popleft()
            self._keep_alive()
            self._make_jobs_known()
        if closing.is_being_opened:
            raise LedgerUnwritable(self._no_answer(RECORD_WITHIN))
        if not closing.given_up:
            self._ledger.close_job(closing.job)

    def _make_jobs_known(self) -> None:
        """Writes what a report needs to know of every job, before more rows: attempts of ended jobs, and records."""
        while uncounted := [each for each in self._all_waiting() if each.attempts]:
            for each in uncounted:
                self._written(self._ledger.put_attempts(each.job, each.attempts))
                each.attempts = ()
        self._write_missing_records()

    def _write_missing_records(self, everything: bool = False) -> None:
        """Writes the records of jobs that began while the ledger hung or could not be written.

        It waits while a record hangs, because this thread might hang as well, and write no rows. The progress of a job
        does not wait for that, because a record may hang forever.
        """
        with self._changed:
            is_early = self._records_from is not None and self._now() < self._records_from
            if (self._late or is_early) and not everything:
                return
            missing = [each for each in self._running.values() if each.opened.is_set() and not each.on_record]
        for running in missing:
            if not self._try(partial(self._put_record, running)):
                self._records_from = self._now() + LEDGER_RETRY_AFTER
                return
            self._records_from = None
            self._recover()

    def _put_record(self, running: RunningJob) -> None:
        if not running.on_record:
            self._ledger.open_job(running.job)
            running.on_record = True

    def _arrange(self, closing: ClosingJob) -> None:
        try:
            found = [(f"{day}", file) for day, file in self._ledger.parquet.files_by_day(closing.files)]
        except Exception as error:  # no file of transfers: a bug, which must not keep others from being written
            with self._changed:
                self._give_up(closing, f"{error}")
            return
        with self._changed:
            parts = [(day, f"{closing.job}-{number}", file) for number, (day, file) in enumerate(found)]
            closing.by_day = deque(() if closing.given_up else parts)
            closing.files = []

    def _give_up(self, closing: ClosingJob, why: str) -> None:
        """Drops the rows of a job. Its attempts are still written, and its record, if there is one, is not deleted.

        By either of them the report says what is missing.
        """
        if closing.size:
            closing.files, closing.by_day, closing.given_up = [], deque(), True
            self._lost = f"The rows of job {closing.job} were dropped and are missing from the ledger. {why}"
            log.error("%s", self._lost)

    def _write_progress(self, everything: bool = False) -> None:
        self._write_missing_records(everything)
        now = self._now()
        with self._changed:
            changed = [running for running in self._running.values() if running.changed]
        for running in changed:
            if everything or now - running.written_at >= self._ledger.files.progress_every:
                self._try(partial(self._put_progress, running))

    def _keep_alive(self) -> None:
        """Lets the report know that jobs which wait for a long time are not lost."""
        overdue = [
            closing for closing in self._all_waiting() if self._now() - closing.heard_at >= LEDGER_KEEP_ALIVE_EVERY
        ]
        for closing in sorted(overdue, key=lambda closing: closing.heard_at)[:KEPT_ALIVE]:
            closing.heard_at = self._now()
            self._try(partial(self._ledger.put_progress, closing.job, _wall_clock(), closing.counted))

    def _put_progress(self, running: RunningJob) -> None:
        with self._changed:
            heard_at, queues = running.heard_at, running.queues
            running.changed, running.written_at = False, self._now()
        if not running.opened.is_set():
            return
        self._put_record(running)
        self._ledger.put_progress(running.job.job, heard_at, queues)
        self._recover()

    def _written(self, stored: StoredFile) -> None:
        self._steps += 1
        if self._merger is None:
            self._merger = Merger(self._ledger.files, self._now, self._ledger.parquet)
        self._merger.add(stored)

    def _merge(self, everything: bool = False) -> None:
        """Merges files, unless Spark would have to be started for it: then they are merged when it runs again."""
        if self._merger is not None and self._ledger.is_writable:
            self._merger.merge(everything)

    def _try(self, step: Callable[[], None]) -> bool:
        try:
            step()
        except LedgerUnwritable as error:
            self._set_error(str(error))
            return False
        except Exception as error:  # a bug: the next job may fare better
            self._set_error(f"The ledger at {self._ledger.path} could not be written: {type(error).__name__}.")
            log.debug("error while writing the ledger", exc_info=True)
            return False
        return True

    def _recover(self) -> None:
        """Forgets an error, if nothing waits that could not be written."""
        if not self._unwritable and not any(closing.failed for closing in self._waiting):
            self._error = ""

    def _set_error(self, text: str) -> None:
        if text != self._error:
            log.error("%s", text)
        self._error = text


def _wall_clock() -> int:
    return int(time.time() * 1000)
