"""The ledger: what became of every message, as Parquet on any path that Spark can write (D9, X3).

    <path>/transfers/date=2026-10-05/part-….parquet     a row per transfer
    <path>/attempts/date=2026-10-05/part-….parquet      a row per attempt of a task
    <path>/_writing/<id>/                               what is being written, or was when a driver was killed

Several workers, and several jobs of one worker, write to it at once. Spark's own append is not made for that: all
writers of a path share its `_temporary` folder, and the first to finish removes it under the others. (Measured, 40
appends by 8 threads to one path: 4 of them failed, and 4,500 of 40,000 rows were gone.) So each write has a folder of
its own, and its files are moved into the tables when they are complete: a file that can be seen is whole. A folder for
each write inside the tables would be safe as well, but slow to read: 5,000 writes took 20 s to list, and their files in
a folder per day 0.1 s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql.functions import col, expr

from syphon.model import SyphonError

from .schema import ATTEMPTS, TRANSFERS, Attempt, attempt_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LedgerUnwritable(SyphonError):
    """The ledger cannot be written. The transfer itself went on."""


class LedgerUnreadable(SyphonError):
    """The ledger cannot be read."""


class Ledger:
    """The account of all transfers. One more writer, here or elsewhere, disturbs nobody."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        self._spark = spark

    def write(self, transfers: DataFrame) -> None:
        """Puts transfers on record. Raises LedgerUnwritable; what goes wrong in the transfer itself is raised as it is.

        The rows come out of running pumps, and are counted before they are written: a pump must not end because
        the disk is full, least of all that of another slot. So they have to be persisted, or would be made twice.
        """
        if not transfers.is_cached:
            raise ValueError("transfers must be persisted: each evaluation of them is another transfer")
        if transfers.count():
            self._append(transfers, "transfers", "settled_at")

    def note(self, attempts: Sequence[Attempt]) -> None:
        """Puts on record what tasks had counted. Raises LedgerUnwritable."""
        if attempts:
            rows = self._spark.createDataFrame(attempt_rows(attempts), ATTEMPTS)
            self._append(rows.coalesce(1), "attempts", "ended_at")

    def transfers(self) -> DataFrame:
        """All transfers on record, and the UTC `date` each was settled on."""
        return self._read("transfers", TRANSFERS)

    def attempts(self) -> DataFrame:
        """All attempts on record, and the UTC `date` each ended on."""
        return self._read("attempts", ATTEMPTS)

    def unreadable_files(self) -> list[str]:
        """The files that are passed over because they are broken. Every file of ours has a row at least."""
        broken = []
        for rows in (self.transfers(), self.attempts()):
            if files := {file.rpartition("/")[2]: file for file in rows.inputFiles()}:
                readable = rows.select(col("_metadata.file_name")).distinct().collect()
                broken += [files[name] for name in files.keys() - {row[0] for row in readable}]
        return sorted(broken)

    # --- files ---------------------------------------------------------------------------------------------------

    def _append(self, rows: DataFrame, table: str, time: str) -> None:
        own = f"{self.path}/_writing/{uuid4().hex}"
        # Of UTC, whatever time zone the session of a managed cluster may have.
        date = expr(f"date_from_unix_date(cast(floor(unix_seconds({time}) / 86400) as int))")
        try:
            rows.withColumn("date", date).write.partitionBy("date").parquet(own)
            self._move(own, table)
        except (Py4JError, PySparkException, OSError) as error:
            raise LedgerUnwritable(
                f"The ledger at {self.path} cannot be written: {cause(error)}. "
                f"The transfer itself went on; not all of its {table} are on record."
            ) from error
        finally:
            with suppress(Py4JError):
                files, path = self._hadoop()
                files.delete(path(own), True)

    def _move(self, own: str, table: str) -> None:
        files, path = self._hadoop()
        for day in files.listStatus(path(own)):
            if not day.isDirectory():
                continue  # _SUCCESS
            place = path(f"{self.path}/{table}/{day.getPath().getName()}")
            files.mkdirs(place)
            for file in files.listStatus(day.getPath()):
                if not files.rename(file.getPath(), path(place, file.getPath().getName())):
                    raise OSError(f"{file.getPath()} cannot be moved to {place}")

    def _hadoop(self) -> tuple[Any, Any]:
        """The file system the ledger is on, and what makes its paths: PySpark by itself cannot move a file."""
        path = self._spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        return path(self.path).getFileSystem(self._spark._jsc.hadoopConfiguration()), path

    def _read(self, table: str, schema: str) -> DataFrame:
        schema = f"{schema}, date date"
        reader = self._spark.read.schema(schema).option("ignoreCorruptFiles", "true")
        try:
            return reader.parquet(_literal(f"{self.path}/{table}"))
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return self._spark.createDataFrame([], schema)
            raise LedgerUnreadable(f"The ledger at {self.path} cannot be read: {cause(error)}.") from error
        except (Py4JError, PySparkException) as error:
            raise LedgerUnreadable(f"The ledger at {self.path} cannot be read: {cause(error)}.") from error


def _literal(path: str) -> str:
    """A path to read from: Spark takes one for a pattern, though not where it writes."""
    return re.sub(r"([\[\]{}*?,\\])", r"\\\1", path)


def cause(error: Exception) -> str:
    """Why Spark failed, in a line: what stands deepest below the error it reports."""
    text = str(error).strip()
    found = re.findall(r"^(?:\s*Caused by)?: (.+)$", text, re.MULTILINE)
    line = found[-1] if found else text.partition("\n")[0]
    return re.sub(r"^(?:[\w$]+\.)+([\w$]+): ", r"\1: ", line).strip().rstrip(".")
