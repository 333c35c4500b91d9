"""Reads a ledger for a report with Spark: of any size, on any path that Spark knows.

One pass over the transfers: Spark brings the rows of each message together, and each task counts its share of the
messages with the code that counts a small ledger. Only what was counted comes back to the driver.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, timedelta
from typing import TYPE_CHECKING

from .aggregates import MESSAGE, PACKED_AGGREGATES, Aggregates
from .counts import COLUMNS, count_rows
from .files import cause
from .open_jobs import OpenRecord
from .parquet import arrow_schema
from .readers import ATTEMPT_COLUMNS, FilesChanged, LedgerExtract, jobs_of, selected_attempts
from .report import Period
from .rows import ATTEMPTS, TRANSFERS
from .selection import Selection, micros
from .store import Ledger, LedgerUnreadable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

DAY = timedelta(days=1)


class SparkReader:
    """Reads a ledger with the Spark session of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.path = ledger.path
        self._ledger = ledger

    def open_jobs(self) -> tuple[list[OpenRecord], list[str]]:
        return self._ledger.open_jobs()

    def read(self, selection: Selection, open_jobs: Sequence[str]) -> LedgerExtract:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return self._read(selection, open_jobs)
        except (Py4JError, PySparkException) as error:
            if re.search("FileNotFoundException|FILE_NOT_EXIST", str(error)):
                raise FilesChanged from error
            raise LedgerUnreadable(f"The ledger at {self.path} cannot be read: {cause(error)}.") from error

    def _read(self, selection: Selection, open_jobs: Sequence[str]) -> LedgerExtract:
        from pyspark.sql.functions import col, expr

        of_pair = expr("true") if selection.pair is None else col("pair") == selection.pair
        of_open_jobs = col("job").isin(list(open_jobs))
        # The rows of a job are written after its attempts, so they are read after them: none seems to be missing.
        every_attempt = self._ledger.attempts()
        wanted = every_attempt.where((of_pair & _within(selection.period, "ended_at")) | of_open_jobs)
        attempts = _as_arrow(wanted.select(*ATTEMPT_COLUMNS)).cast(arrow_schema(ATTEMPTS, ATTEMPT_COLUMNS))
        transfers = self._ledger.transfers()
        rows = transfers.where(of_pair & _within(selection.near, "settled_at")).select(*COLUMNS)
        counted = rows.repartition(*MESSAGE).mapInArrow(_counting(selection), PACKED_AGGREGATES).collect()
        nothing = count_rows(arrow_schema(TRANSFERS, COLUMNS).empty_table(), selection)
        return LedgerExtract(
            Aggregates.merged([nothing, *(Aggregates.unpacked(row.asDict()) for row in counted)]),
            selected_attempts(attempts, selection),
            jobs_of(attempts, open_jobs),
            {row.pair for row in transfers.select("pair").distinct().collect()},
            self._ledger.unreadable_files(),
        )


def _as_arrow(rows: DataFrame) -> pa.Table:
    """The rows as a table of this process. Spark 3.5 has no such call: there the tasks write them as bytes."""
    import pyarrow as pa

    if hasattr(rows, "toArrow"):
        return rows.toArrow()

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            with pa.BufferOutputStream() as sink:
                with pa.ipc.new_stream(sink, batch.schema) as stream:
                    stream.write_batch(batch)
                yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})

    tables = [pa.ipc.open_stream(row.batch).read_all() for row in rows.mapInArrow(written, "batch binary").collect()]
    return pa.concat_tables(tables) if tables else arrow_schema(ATTEMPTS, ATTEMPT_COLUMNS).empty_table()


def _counting(selection: Selection) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does with its rows."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(TRANSFERS, COLUMNS)
        if found := [batch for batch in batches if batch.num_rows]:
            yield count_rows(pa.Table.from_batches(found).cast(schema), selection).packed()

    return count


def _within(period: Period, time: str) -> Column:
    """The condition for rows of a period. It also compares the date, so that Spark skips folders of other days.

    The attempts of a job are all in the folder of the day on which the last of them ended.
    """
    from pyspark.sql.functions import col, expr

    date, moment, found = col("date"), expr(f"unix_micros({time})"), expr("true")
    if period.since is not None:
        found &= (date >= period.since.astimezone(UTC).date()) & (moment >= micros(period.since))
    if period.until is not None:
        found &= (date <= period.until.astimezone(UTC).date() + DAY) & (moment < micros(period.until))
    return found
