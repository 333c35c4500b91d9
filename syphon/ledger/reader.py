"""Reads a ledger for a report: a small one in this process with Arrow, any other with Spark.

Starting Spark takes longer than a report on a small ledger on this machine, which `LocalReader` reads. `SparkReader`
reads ledgers of any size, on any path that Spark knows, in one pass: Spark brings the rows of each message together,
and each task counts its share of the messages. Both count with `aggregates`, so both give the same report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .aggregates import ATTEMPT, COLUMNS, PACKED_AGGREGATES, Aggregates, count_rows
from .filesystems import LocalFiles, cause, local_path
from .ledger import MOST_LISTINGS, Ledger, LedgerUnreadable, read_open
from .merge import MERGED, replaced_files
from .order_check import ORDER_COLUMNS, VIOLATIONS, OrderFound, check_order
from .parquet import arrow_schema
from .report_values import OpenJobReport
from .rows import ATTEMPTS, TRANSFERS, Period, Selection, micros, within
from .runs import RunRecord, read_runs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

ATTEMPT_COLUMNS = (*ATTEMPT, "started_at", "ended_at", "received", "forwarded", "error")
"""The columns of an attempt that a report uses."""
EVERY_COLUMN = tuple(dict.fromkeys((*COLUMNS, *ORDER_COLUMNS)))
"""The columns of a transfer that a report uses."""


class FilesChanged(Exception):
    """A file was merged into another one since the files were listed. A retry helps."""


class LedgerExtract(NamedTuple):
    """What a reader finds for a report."""

    aggregates: Aggregates
    order: OrderFound
    attempts: pa.Table
    """The attempts of the selected pair that ended in the period."""
    attempted: set[tuple[str, str]]
    """Pair and job of those open jobs that have attempts on record."""
    pairs: set[str]
    """All pairs that have transfers."""
    unreadable_files: list[str]


class Reader(Protocol):
    """Reads a ledger for a report. Its methods raise LedgerUnreadable, or FilesChanged."""

    @property
    def path(self) -> str: ...

    def open_jobs(self) -> tuple[list[OpenJobReport], list[str]]:
        """The jobs that are not closed, and the files of such jobs that cannot be read."""

    def read(self, selection: Selection, open_jobs: Sequence[str]) -> LedgerExtract:
        """Counts the rest. `open_jobs` are the names of all jobs that are not closed."""


def selected_attempts(attempts: pa.Table, selection: Selection) -> pa.Table:
    """The attempts of the selected pair that ended in the period."""
    import pyarrow.compute as pc

    if selection.pair is not None:
        attempts = attempts.filter(pc.equal(attempts["pair"], selection.pair))
    if selection.period == Period():
        return attempts
    return attempts.filter(within(attempts["ended_at"], selection.period))


def jobs_of(attempts: pa.Table, jobs: Sequence[str]) -> set[tuple[str, str]]:
    """Pair and job of the attempts of these jobs."""
    if not jobs:
        return set()
    found = zip(attempts["pair"].to_pylist(), attempts["job"].to_pylist(), strict=True)
    return {(pair, job) for pair, job in found if job in jobs}


LARGEST = 16 * 1024 * 1024
"""Bytes of a ledger that is read here: about half a million transfers. Spark reads larger ones in less time."""
_FOLDER = re.compile(r"date=\d{4}-\d\d-\d\d")


class LocalReader:
    """Reads a ledger in this process."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        root = local_path(self.path)
        if root is None:
            raise LedgerUnreadable(f"The ledger at {self.path} is not on this machine.")
        self._root = Path(root)
        self._files = LocalFiles(str(self._root))

    def is_small(self) -> bool:
        """Whether the ledger is small enough to be read here. Raises LedgerUnreadable."""
        with self._reading():
            return sum(file.stat().st_size for file in self._listed("transfers")) <= LARGEST

    def open_jobs(self) -> tuple[list[OpenJobReport], list[str]]:
        with self._reading():
            found, broken = read_open(self._files)
        return found, [f"{self.path}/{place}" for place in broken]

    def runs(self) -> tuple[list[RunRecord], list[str]]:
        """The runs on record, the newest first, and the files that cannot be read."""
        with self._reading():
            found, broken = read_runs(self._files)
        return found, [f"{self.path}/{place}" for place in broken]

    def read(self, selection: Selection, open_jobs: Sequence[str]) -> LedgerExtract:
        import pyarrow.compute as pc

        with self._reading():
            # The rows of a job are written after its attempts, so they are read after them: none seems to be missing.
            attempts, broken = self._table("attempts", ATTEMPTS, ATTEMPT_COLUMNS)
            transfers, more_broken = self._table("transfers", TRANSFERS, EVERY_COLUMN)
        return LedgerExtract(
            count_rows(transfers, selection),
            check_order(transfers, selection),
            selected_attempts(attempts, selection),
            jobs_of(attempts, open_jobs),
            set(pc.unique(transfers["pair"]).to_pylist()),
            broken + more_broken,
        )

    def _table(self, table: str, declared: str, columns: Sequence[str]) -> tuple[pa.Table, list[str]]:
        """The rows of a table, each once, and the files that cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = arrow_schema(declared, columns)
        tables, broken = [schema.empty_table()], []
        for file in self._complete(table):
            try:
                with pq.ParquetFile(file) as opened:
                    tables.append(_with_columns(schema, opened.read(schema.names)))
            except (OSError, pa.ArrowException) as error:
                if not file.exists():
                    raise FilesChanged from error
                broken.append(str(file))
        return pa.concat_tables(tables), broken

    def _complete(self, table: str) -> list[Path]:
        """The files of a table in a state that the table was in, without those that a merged file replaces."""
        for _ in range(MOST_LISTINGS):
            files = {file.name: file for file in self._listed(table)}
            replaced = replaced_files(self._files, set(files))
            again = {file.name for file in self._listed(table)}
            if files.keys() <= again and not any(name.startswith(MERGED) for name in again - files.keys()):
                return [file for name, file in sorted(files.items()) if name not in replaced]
        raise LedgerUnreadable(f"The ledger at {self.path} cannot be read: its files change all the time.")

    def _listed(self, table: str) -> list[Path]:
        top = self._root / table
        files = [file for file in top.rglob("*") if not file.name.startswith(("_", ".")) and file.is_file()]
        for file in files:
            if file.parent.parent != top or not _FOLDER.fullmatch(file.parent.name):
                raise LedgerUnreadable(
                    f"The ledger at {self.path} cannot be read: {file} is not in a folder of a day, "
                    f"as in {table}/date=2026-10-05."
                )
        return files

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise FilesChanged from error
        except (OSError, ValueError, KeyError) as error:
            raise LedgerUnreadable(f"The ledger at {self.path} cannot be read: {cause(error)}.") from error


def _with_columns(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with these columns. A column that a file does not have is empty, as it is for Spark."""
    import pyarrow as pa

    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        if field.name not in rows.column_names:
            return pa.nulls(rows.num_rows, field.type)
        return rows[field.name].cast(field.type, safe=False)  # times of older files have other units

    return pa.table([column(field) for field in schema], schema=schema)


DAY = timedelta(days=1)


class SparkReader:
    """Reads a ledger with the Spark session of the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.path = ledger.path
        self._ledger = ledger

    def open_jobs(self) -> tuple[list[OpenJobReport], list[str]]:
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
        wanted = every_attempt.where((of_pair & _is_within(selection.period, "ended_at")) | of_open_jobs)
        attempts = _as_arrow(wanted.select(*ATTEMPT_COLUMNS)).cast(arrow_schema(ATTEMPTS, ATTEMPT_COLUMNS))
        transfers = self._ledger.transfers()
        rows = transfers.where(of_pair & _is_within(selection.near, "settled_at"))
        parts = ("pair", "queue", expr("coalesce(message_id, string(sequence_number))"))
        counted = (
            rows.select(*COLUMNS).repartition(*parts).mapInArrow(_counting(selection), PACKED_AGGREGATES).collect()
        )
        of_sessions = rows.where("ordered and session_id is not null").select(*ORDER_COLUMNS)
        order = of_sessions.repartition("pair", "session_id").mapInArrow(_checking(selection), VIOLATIONS).collect()
        nothing = count_rows(arrow_schema(TRANSFERS, COLUMNS).empty_table(), selection)
        return LedgerExtract(
            Aggregates.merged([nothing, *(Aggregates.unpacked(row.asDict()) for row in counted)]),
            OrderFound.unpacked([tuple(row) for row in order]),
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


def _checking(selection: Selection) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What each task does with the rows of its sessions."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = arrow_schema(TRANSFERS, ORDER_COLUMNS)
        if found := [batch for batch in batches if batch.num_rows]:
            yield check_order(pa.Table.from_batches(found).cast(schema), selection).packed()

    return check


def _is_within(period: Period, time: str) -> Column:
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
