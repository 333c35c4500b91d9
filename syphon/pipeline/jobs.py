"""Spark jobs: so many slots on one backlog queue, their rows into the ledger, their sheets back to who asked.

The rows are kept by Spark until they are written: a ledger that cannot be written (disk full) is told to the operator,
and neither stops a transfer nor repeats one (D9).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ..config import PairSettings
from ..errors import SyphonError
from ..transfer.pump import PumpOptions
from .desk import Desk, added_up
from .ledger import Ledger, LedgerUnwritable
from .rows import TRANSFERS, Attempt
from .sheets import Fault, Sheet, WaitingDestination
from .slot import Assignment, slots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


class JobFailed(SyphonError):
    """Spark gave a job up."""


class SparkLost(SyphonError):
    """Spark is gone: it has to be started again, and the worker with it."""


@dataclass(frozen=True, slots=True)
class Done:
    """A job that has ended, as far as the driver heard of it."""

    sheets: tuple[Sheet, ...]

    @property
    def lost(self) -> tuple[Sheet, ...]:
        """Attempts that were killed: their rows are gone, their counters are not."""
        return tuple(sheet for sheet in self.sheets if not sheet.finished)

    @property
    def fault(self) -> Fault | None:
        return next((sheet.fault for sheet in self.sheets if sheet.fault is not None), None)

    @property
    def error(self) -> str:
        return next((sheet.error for sheet in self.sheets if sheet.error), "")

    @property
    def waiting(self) -> tuple[WaitingDestination, ...]:
        """The destinations that took nothing, the longest wait of each."""
        longest: dict[str, WaitingDestination] = {}
        for destination in (found for sheet in self.sheets for found in sheet.waiting):
            known = longest.get(destination.path)
            if known is None or known.seconds < destination.seconds:
                longest[destination.path] = destination
        return tuple(longest.values())

    @property
    def has_more(self) -> bool:
        """A lease ended while there still were messages, or somebody was killed over them."""
        return bool(self.lost) or any(sheet.ended == "lease" for sheet in self.sheets)

    def sum(self, field: str) -> int:
        return added_up(self.sheets, field)


class Jobs:
    """Runs slots, and keeps the account."""

    def __init__(self, spark: SparkSession, desk: Desk, ledger: Ledger) -> None:
        self._spark = spark
        self._desk = desk
        self._ledger = ledger
        self.ledger_error: str = ""
        """Why the last rows could not be written, if they could not."""

    @property
    def most_slots(self) -> int:
        """How many tasks run at once."""
        return int(self._spark.sparkContext.defaultParallelism)

    def carry(
        self,
        pair: PairSettings,
        queue: str,
        options: Sequence[PumpOptions],
        waiting: Sequence[WaitingDestination] = (),
        rate: float | None = None,
    ) -> Done:
        """Carries a queue's messages with a slot for each of `options`, until all of them have ended."""
        job = uuid.uuid4().hex[:12]
        share = None if rate is None else rate / len(options)
        assignments = [
            Assignment(pair, queue, job, each, self._desk.address, share, tuple(waiting)) for each in options
        ]
        self._desk.open_job(job)
        try:
            self._run(queue, assignments)
        finally:
            done = Done(tuple(self._desk.close_job(job)))
            self._note(done)
        return done

    def _run(self, queue: str, assignments: list[Assignment]) -> None:
        from pyspark import StorageLevel

        context = self._spark.sparkContext
        # A pool of its own: in the common one, jobs wait for each other in a line.
        context.setLocalProperty("spark.scheduler.pool", queue)
        context.setJobDescription(f"syphon: {queue}")
        count = len(assignments)
        frame = self._spark.range(0, count, 1, count).mapInArrow(slots(assignments), TRANSFERS)
        frame = frame.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            self._write(frame)
        except SyphonError:
            raise
        except Exception as error:
            raise self._explained(error, queue) from error
        finally:
            if not self._is_lost():
                frame.unpersist()

    def _write(self, frame: DataFrame) -> None:
        try:
            self._ledger.write(frame)
            self.ledger_error = ""
        except LedgerUnwritable as error:
            self._complain(error)
            # The slots may not even have begun when the ledger was refused. If they have, Spark still has their rows.
            frame.count()

    def _note(self, done: Done) -> None:
        now = datetime.now(UTC)
        attempts = [
            Attempt(
                sheet.pair, sheet.queue, sheet.job, sheet.slot, sheet.attempt,
                datetime.fromtimestamp(sheet.started_at, UTC), now, sheet.received, sheet.forwarded,
                sheet.dead_lettered, sheet.left, sheet.possible_duplicates, sheet.finished, sheet.error,
            )
            for sheet in done.sheets
        ]  # fmt: skip
        if attempts and not self._is_lost():
            try:
                self._ledger.note(attempts)
            except LedgerUnwritable as error:
                self._complain(error)

    def _complain(self, error: LedgerUnwritable) -> None:
        if str(error) != self.ledger_error:
            log.error("%s", error)
        self.ledger_error = str(error)

    def _is_lost(self) -> bool:
        from py4j.protocol import Py4JError

        try:
            return bool(self._spark.sparkContext._jsc.sc().isStopped())
        except (Py4JError, OSError, AttributeError):
            return True

    def _explained(self, error: Exception, queue: str) -> SyphonError:
        text = str(error).strip().partition("\n")[0]
        if self._is_lost():
            return SparkLost(f"Spark is gone while it worked on {queue}: {text}")
        return JobFailed(f"Spark gave up a job on {queue}: {text}. Nothing is lost: what was in hand comes again.")

