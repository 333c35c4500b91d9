"""The ledger: what happened to every message, as Parquet on any path that Spark can write (D9, X3).

    <path>/transfers/date=2026-10-05/part-….parquet     a row per transfer
    <path>/attempts/date=2026-10-05/part-….parquet      a row per attempt of a task
    <path>/_writing/<id>/                               files of a write that runs, or whose driver was killed

Several workers, and several jobs of one worker, write to it at once. Spark's own append is not made for that: all
writers of a path share its `_temporary` folder, and the first writer to finish removes the folder while the others use
it. (Measured, 40 appends by 8 threads to one path: 4 of them failed, and 4,500 of 40,000 rows were gone.) So each write
has a folder of its own, and moves its complete files into the tables: a file in a table is always whole. A folder for
each write inside the tables would be safe as well, but slow to read: 5,000 writes took 20 s to list, and their files in
a folder per day 0.1 s.

Modules that are imported from here import pyspark inside functions: a task imports this package, and needs no pyspark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from syphon.model import SyphonError

from .schema import ATTEMPTS, TRANSFERS, Attempt, attempt_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class LedgerUnwritable(SyphonError):
    """The ledger cannot be written. The transfer itself continued."""


class LedgerUnreadable(SyphonError):
    """The ledger cannot be read."""


class Ledger:
    """The record of all transfers. Any number of writers, here or elsewhere, may use one path at once."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/") or "/"
        self._spark = spark

    def write(self, transfers: DataFrame) -> None:
        """Records transfers. Raises LedgerUnwritable; an error of the transfer itself is raised unchanged.

        The rows come from running pumps, and are counted before they are written: a full disk must not end a pump.
        So the rows must be persisted, or Spark would run the pumps twice.
        """
        if not transfers.is_cached:
            raise ValueError("transfers must be persisted: each evaluation of them is another transfer")
        if transfers.count():
            self._append(transfers, "transfers", "settled_at")

    def note(self, attempts: Sequence[Attempt]) -> None:
        """Records what tasks had counted. Raises LedgerUnwritable."""
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
        """The files that Spark skips because they are broken. Every file that syphon writes has at least one row."""
        from pyspark.sql.functions import col

        broken = []
        for rows in (self.transfers(), self.attempts()):
            if files := {file.rpartition("/")[2]: file for file in rows.inputFiles()}:
                readable = rows.select(col("_metadata.file_name")).distinct().collect()
                broken += [files[name] for name in files.keys() - {row[0] for row in readable}]
        return sorted(broken)

    # --- files ---------------------------------------------------------------------------------------------------

    def _append(self, rows: DataFrame, table: str, time: str) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql.functions import expr

        own = f"{self.path}/_writing/{uuid4().hex}"
        # The date in UTC: the session of a managed cluster may have another time zone.
        date = expr(f"date_from_unix_date(cast(floor(unix_seconds({time}) / 86400) as int))")
        try:
            rows.withColumn("date", date).write.partitionBy("date").parquet(own)
            self._move(own, table)
        except (Py4JError, PySparkException, OSError) as error:
            raise LedgerUnwritable(
                f"The ledger at {self.path} cannot be written: {cause(error)}. "
                f"The transfer itself continued; not all of its {table} are on record."
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
        """The file system of the ledger, and Hadoop's class for paths: PySpark itself cannot move a file."""
        path = self._spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        return path(self.path).getFileSystem(self._spark._jsc.hadoopConfiguration()), path

    def _read(self, table: str, schema: str) -> DataFrame:
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, PySparkException

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
    """Escapes a path for reading: Spark reads it as a pattern, although not when it writes."""
    return re.sub(r"([\[\]{}*?,\\])", r"\\\1", path)


def cause(error: Exception) -> str:
    """Why Spark failed, in one line: the deepest cause of the error that it reports."""
    text = str(error).strip()
    found = re.findall(r"^(?:\s*Caused by)?: (.+)$", text, re.MULTILINE)
    line = found[-1] if found else text.partition("\n")[0]
    return re.sub(r"^(?:[\w$]+\.)+([\w$]+): ", r"\1: ", line).strip().rstrip(".")
