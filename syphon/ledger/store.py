"""The ledger: what happened to every message, as Parquet on any path that Spark can write (D9, D17, X3).

    <path>/transfers/date=2026-10-05/….parquet     a row per transfer
    <path>/attempts/date=2026-10-05/….parquet      a row per attempt of a task and queue
    <path>/open/<job>.json                         jobs that are not closed: see `open_jobs`
    <path>/merging/<id>.json                       merges of small files that are not over: see `merging`
    <path>/_writing/                               files that are being written, or whose writer was killed

Several workers, and several jobs of one worker, write to it at once. Spark's own append is not made for that: all
writers of a path share its `_temporary` folder, and the first writer to finish removes the folder while the others use
it. (Measured, 40 appends by 8 threads to one path: 4 of them failed, and 4,500 of 40,000 rows were gone.) So the driver
writes files itself, each whole and under a name of its own; Spark only reads them.

Modules that are imported from here import pyspark and Arrow inside functions: a task imports this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from syphon.model import Counters, SyphonError

from .files import NOT_WRITABLE, LedgerFiles, LocalFiles, cause, has_no_jvm, ledger_files, literal_path, local_path
from .merge import MERGED, StoredFile, replaced_files
from .open_jobs import OpenRecord, delete_open, put_open, put_progress, read_open
from .parquet import attempts_file
from .rows import ATTEMPTS, EPOCH, TRANSFERS, Attempt, OpenJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_LISTINGS = 20
"""How often a reader looks again at a table in which files are being merged."""


class LedgerUnwritable(SyphonError):
    """The ledger cannot be written. The transfer itself continued."""


class LedgerUnreadable(SyphonError):
    """The ledger cannot be read."""


class Ledger:
    """The record of all transfers. Any number of writers, here or elsewhere, may use one path at once."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        self._spark = spark

    @cached_property
    def files(self) -> LedgerFiles:
        return ledger_files(self._spark, self.path)

    @property
    def is_local(self) -> bool:
        """Whether it is in a folder of this machine."""
        return isinstance(self.files, LocalFiles)

    # --- writing -------------------------------------------------------------------------------------------------

    def put_transfers(self, day: str, name: str, file: bytes) -> StoredFile:
        """Records transfers of one UTC day. The name makes it safe to try again. Raises LedgerUnwritable."""
        return self._put("transfers", day, name, file)

    def put_attempts(self, name: str, attempts: Sequence[Attempt]) -> StoredFile:
        """Records what tasks had counted, all in one step. Raises LedgerUnwritable."""
        ended = EPOCH + timedelta(milliseconds=max(attempt.ended_at for attempt in attempts))
        return self._put("attempts", f"{ended:%Y-%m-%d}", name, attempts_file(attempts))

    def open_job(self, job: OpenJob) -> None:
        """Puts a job on record before it begins. Raises LedgerUnwritable."""
        with self._writing("A job"):
            put_open(self.files, job)

    def put_progress(self, job: str, heard_at: int, queues: Mapping[str, Counters]) -> None:
        """Records what an open job has counted so far. Raises LedgerUnwritable."""
        with self._writing("The progress of a job"):
            put_progress(self.files, job, heard_at, queues)

    def close_job(self, job: str) -> None:
        """Notes that everything about a job is on record. Raises LedgerUnwritable."""
        with self._writing("The end of a job"):
            delete_open(self.files, job)

    def _put(self, table: str, day: str, name: str, content: bytes) -> StoredFile:
        stored = StoredFile(f"{table}/date={day}", f"part-{name}.parquet", len(content))
        with self._writing(f"A file of {table}"):
            self.files.put(f"{stored.folder}/{stored.name}", content)
        return stored

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerUnwritable(
                f"The ledger at {self.path} cannot be written: {cause(error)}. "
                f"The transfer itself continued. {what} is not on record."
            ) from error

    # --- reading -------------------------------------------------------------------------------------------------

    def open_jobs(self) -> tuple[list[OpenRecord], list[str]]:
        """The jobs that are not closed, and the files of such jobs that cannot be read. Raises LedgerUnreadable."""
        try:
            found, broken = read_open(self.files)
        except OSError as error:
            raise self._unreadable(error) from error
        return found, [f"{self.path}/{place}" for place in broken]

    def transfers(self) -> DataFrame:
        """All transfers on record, and the UTC `date` each was settled on."""
        return self._read("transfers", TRANSFERS)[0]

    def attempts(self) -> DataFrame:
        """All attempts on record, and the UTC `date` on which the last of their job ended."""
        return self._read("attempts", ATTEMPTS)[0]

    def unreadable_files(self) -> list[str]:
        """The files that Spark skips because they are broken. Every file that syphon writes has at least one row."""
        from pyspark.sql.functions import col

        broken: list[str] = []
        for table, schema in (("transfers", TRANSFERS), ("attempts", ATTEMPTS)):
            rows, files = self._read(table, schema)
            if files:
                readable = rows.select(col("_metadata.file_name")).distinct().collect()
                broken += [files[name] for name in files.keys() - {row[0] for row in readable}]
        return sorted(broken)

    def _read(self, table: str, schema: str) -> tuple[DataFrame, dict[str, str]]:
        """The rows of a table, and the files they are in, by name: each row once, whatever is merged meanwhile.

        Spark lists the files when the table is opened. What the listing shows is a state that the table was in, if a
        second listing has every file of the first and no merged file that the first has not.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, PySparkException

        schema = f"{schema}, date date"
        try:
            for _ in range(MOST_LISTINGS):
                rows = self._open(table, schema)
                files = self._listed(rows)
                replaced = replaced_files(self.files, set(files))
                again = self._listed(self._open(table, schema)).keys()
                if files.keys() <= again and not any(name.startswith(MERGED) for name in again - files.keys()):
                    return self._without(rows, replaced), {n: f for n, f in files.items() if n not in replaced}
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return self._spark.createDataFrame([], schema), {}
            raise self._unreadable(error) from error
        except (Py4JError, PySparkException, OSError, ValueError, KeyError) as error:
            raise self._unreadable(error) from error
        raise LedgerUnreadable(f"The ledger at {self.path} cannot be read: its files change all the time.")

    def _open(self, table: str, schema: str) -> DataFrame:
        reader = self._spark.read.schema(schema).option("ignoreCorruptFiles", "true")
        return reader.parquet(literal_path(f"{self.path}/{table}"))

    def _listed(self, rows: DataFrame) -> dict[str, str]:
        """The files of a table as Spark has listed them, by name."""
        if has_no_jvm(self._spark):
            return {file.rpartition("/")[2]: file for file in rows.inputFiles()}
        jvm: Any = self._spark._jvm
        # As one text, because PySpark makes a call for each element of an array of the JVM.
        text = jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(rows._jdf.inputFiles())
        return {str(file).rpartition("/")[2]: str(file) for file in json.loads(text)}

    def _without(self, rows: DataFrame, replaced: set[str]) -> DataFrame:
        from pyspark.sql.functions import col

        return rows.where(~col("_metadata.file_name").isin(sorted(replaced))) if replaced else rows

    def _unreadable(self, error: Exception) -> LedgerUnreadable:
        return LedgerUnreadable(f"The ledger at {self.path} cannot be read: {cause(error)}.")


def check_ledger_path(spark: SparkSession, path: str) -> None:
    """Raises LedgerUnwritable for a ledger that this session can never write: known before a message is received."""
    if has_no_jvm(spark) and local_path(path) is None:
        raise LedgerUnwritable(f"The ledger at {path} cannot be written: {NOT_WRITABLE}.")
