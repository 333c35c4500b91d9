"""The ledger: what happened to every message, as Parquet on any path that Spark can write (D9, D17, X3).

    <path>/transfers/date=2026-10-05/….parquet     a row per transfer
    <path>/attempts/date=2026-10-05/….parquet      a row per attempt of a task and queue
    <path>/open/<job>.json                         an open job: pair, queues, slots, the driver's host and process
    <path>/open/<job>.progress                     what its last report had counted, by queue, and when that was
    <path>/runs/….json                             a run of a command, with its result: see `runs`
    <path>/merging/<id>.json                       a merge of small files that has not ended: see `merge`
    <path>/_writing/                               files that are being written, or whose writer was killed

A job is on record before its first receive, and stays so if its driver dies at any point (D17, X7): its file is written
before Spark runs the job, and deleted as the last step of closing it, after its attempts and its transfers.

Several workers, and several jobs of one worker, write to it at once. Spark's own append is not made for that: all
writers of a path share its `_temporary` folder, and the first writer to finish removes the folder while the others use
it. (Measured, 40 appends by 8 threads to one path: 4 of them failed, and 4,500 of 40,000 rows were lost.) So the driver
writes files itself, each whole and under a name of its own; Spark only reads them.

Modules that are imported from here import pyspark and Arrow inside functions: a task imports this package.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from syphon.model import Counters, SyphonError, volume

from . import parquet as in_this_process
from .filesystems import (
    NOT_WRITABLE,
    LedgerFiles,
    LocalFiles,
    cause,
    has_no_jvm,
    ledger_files,
    literal_path,
    local_path,
)
from .merge import MERGED, StoredFile, replaced_files
from .parquet_process import ParquetFiles
from .report_values import OpenJobReport
from .rows import ATTEMPTS, EPOCH, TRANSFERS, Attempt, OpenJob
from .runs import RunRecord, put_run, read_runs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPEN = "open"
_JOB, _PROGRESS = ".json", ".progress"


def put_open(files: LedgerFiles, job: OpenJob) -> None:
    """Puts a job on record. It is on disk when this returns."""
    values = job._asdict() | {"host": socket.gethostname(), "pid": os.getpid()}
    files.put(f"{OPEN}/{job.job}{_JOB}", _json_bytes(values))


def put_progress(files: LedgerFiles, job: str, heard_at: int, queues: Mapping[str, Counters]) -> None:
    """Replaces the progress of an open job. It need not survive a power cut."""
    values = {"heard_at": heard_at, "queues": {name: asdict(counters) for name, counters in queues.items()}}
    files.put(f"{OPEN}/{job}{_PROGRESS}", _json_bytes(values), durable=False)


def delete_open(files: LedgerFiles, job: str) -> None:
    """Closes a job: everything about it is on record."""
    files.delete(OPEN, [f"{job}{_PROGRESS}", f"{job}{_JOB}"])


def read_open(files: LedgerFiles) -> tuple[list[OpenJobReport], list[str]]:
    """The jobs that are not closed, the oldest first; and the files among them that cannot be read."""
    names = set(files.names(OPEN))
    found, broken = [], []
    for name in sorted(names):
        if not name.endswith(_JOB):
            continue
        job = name.removesuffix(_JOB)
        try:
            opened = json.loads(files.read(f"{OPEN}/{name}"))
            found.append(_open_record(opened, _read_progress(files, job) if f"{job}{_PROGRESS}" in names else {}))
        except FileNotFoundError:
            continue  # it has just been closed
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            if name in files.names(OPEN):  # Hadoop's error does not say that the file was deleted
                broken.append(f"{OPEN}/{name}")
    return sorted(found, key=lambda each: (each.opened_at, each.job)), broken


def _read_progress(files: LedgerFiles, job: str) -> dict[str, object]:
    """The last progress; nothing if it cannot be read: the job is known all the same."""
    try:
        values = json.loads(files.read(f"{OPEN}/{job}{_PROGRESS}"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _open_record(opened: dict[str, object], progress: dict[str, object]) -> OpenJobReport:
    queues = {str(name): Counters() for name in opened["queues"]}  # type: ignore[attr-defined]
    counted = progress.get("queues") or {}
    for name, counters in counted.items():  # type: ignore[attr-defined]
        queues[name] = Counters(**{key: int(value) for key, value in counters.items()})
    return OpenJobReport(
        job=str(opened["job"]),
        pair=str(opened["pair"]),
        slots=int(str(opened["slots"])),
        opened_at=_moment(opened["opened_at"]),
        host=str(opened["host"]),
        pid=int(str(opened["pid"])),
        heard_at=_moment(progress.get("heard_at", opened["opened_at"])),
        queues=dict(sorted(queues.items())),
    )


def _moment(millis: object) -> datetime:
    return EPOCH + timedelta(milliseconds=int(str(millis)))


def _json_bytes(values: dict[str, object]) -> bytes:
    return json.dumps(values).encode()


MOST_LISTINGS = 20
"""How often a reader lists a table in which files are being merged."""


class LedgerUnwritable(SyphonError):
    """The ledger cannot be written. The transfer itself continued."""


class LedgerUnreadable(SyphonError):
    """The ledger cannot be read."""


class Ledger:
    """The record of all transfers. Any number of writers, here or elsewhere, may use one path at once."""

    def __init__(self, spark: SparkSession | None, path: str, parquet: ParquetFiles = in_this_process) -> None:
        """`spark` is None while Spark does not run: only files on this machine can be written then."""
        self.path = path.rstrip("/") or "/"
        self.parquet = parquet
        self._spark: Any = spark

    def use(self, spark: SparkSession | None) -> None:
        """Uses another session from now on."""
        self._spark = spark

    @property
    def is_writable(self) -> bool:
        """Whether its files can be written currently. Those beyond this machine need Spark."""
        return self._spark is not None or isinstance(self.__dict__.get("files"), LocalFiles)

    @cached_property
    def files(self) -> LedgerFiles:
        return ledger_files(lambda: self._spark, self.path)

    @property
    def is_local(self) -> bool:
        """Whether it is in a folder of this machine."""
        return isinstance(self.files, LocalFiles)

    # --- writing -------------------------------------------------------------------------------------------------

    def put_transfers(self, day: str, name: str, file: bytes) -> StoredFile:
        """Records transfers of one UTC day. The name makes a retry safe. Raises LedgerUnwritable."""
        return self._put("transfers", day, name, file)

    def put_attempts(self, name: str, attempts: Sequence[Attempt]) -> StoredFile:
        """Records what tasks had counted, all in one step. Raises LedgerUnwritable."""
        ended = EPOCH + timedelta(milliseconds=max(attempt.ended_at for attempt in attempts))
        return self._put("attempts", f"{ended:%Y-%m-%d}", name, self.parquet.attempts_file(attempts))

    def open_job(self, job: OpenJob) -> None:
        """Puts a job on record before it begins. Raises LedgerUnwritable."""
        with self._writing("A job"):
            put_open(self.files, job)

    def put_progress(self, job: str, heard_at: int, queues: Mapping[str, Counters]) -> None:
        """Records what an open job has counted so far. Raises LedgerUnwritable."""
        with self._writing("The progress of a job"):
            put_progress(self.files, job, heard_at, queues)

    def close_job(self, job: str) -> None:
        """Record that everything about a job is on record. Raises LedgerUnwritable."""
        with self._writing("The end of a job"):
            delete_open(self.files, job)

    def put_run(self, run: RunRecord) -> None:
        """Records a run of a command that has ended. Raises LedgerUnwritable."""
        with self._writing("The run"):
            put_run(self.files, run)

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

    def open_jobs(self) -> tuple[list[OpenJobReport], list[str]]:
        """The jobs that are not closed, and the files of such jobs that cannot be read. Raises LedgerUnreadable."""
        try:
            found, broken = read_open(self.files)
        except OSError as error:
            raise self._unreadable(error) from error
        return found, [f"{self.path}/{place}" for place in broken]

    def runs(self) -> tuple[list[RunRecord], list[str]]:
        """The runs on record, the newest first, and the files that cannot be read. Raises LedgerUnreadable."""
        try:
            found, broken = read_runs(self.files)
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
        rows: DataFrame = reader.parquet(literal_path(f"{self.path}/{table}"))
        return rows

    def _listed(self, rows: DataFrame) -> dict[str, str]:
        """The files of a table as Spark has listed them, by name."""
        if has_no_jvm(self._spark):
            return {file.rpartition("/")[2]: file for file in rows.inputFiles()}
        jvm = self._spark._jvm
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


# --- before a worker starts -------------------------------------------------------------------------------------------

LITTLE = 100 * 1024 * 1024
"""Bytes: with less free space the check warns. They are enough for about three million transfers."""
PROBE = 64 * 1024
"""Bytes that are written for the check: as much as the files of a few jobs."""


class LedgerLevel(StrEnum):
    """How good the place of the ledger is; the words are those of the other findings of `syphon check`."""

    FINE = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class LedgerFinding(NamedTuple):
    """What the check has found."""

    path: str
    level: LedgerLevel
    text: str


def check_ledger(path: str) -> LedgerFinding:
    """Whether the ledger can be created and written, and how much space is free.

    It writes to a file without a name, which disappears however the check ends. The folder of a ledger that does not
    exist yet is not created: the nearest folder above it is checked instead.
    """
    local = local_path(path)
    if local is None:
        text = "cannot be checked without Spark. The status of a worker shows whether it can write it."
        return LedgerFinding(path, LedgerLevel.WARNING, text)
    folder = Path(local).absolute()
    nearest = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
    try:
        with tempfile.TemporaryFile(dir=nearest, buffering=0) as file:
            file.write(b"\0" * PROBE)
            os.fsync(file.fileno())
        free = shutil.disk_usage(nearest).free
    except OSError as error:
        why = cause(OSError(error.errno, error.strerror))
        remedy = "make room or name another path" if nearest.is_dir() else "name a folder"
        text = f"cannot be written: {nearest}: {why}. Nothing would be recorded: {remedy} (pipeline.ledger)."
        return LedgerFinding(path, LedgerLevel.PROBLEM, text)
    state = "can be written" if nearest == folder else f"does not exist yet, and can be created in {nearest}"
    if free < LITTLE:
        return LedgerFinding(path, LedgerLevel.WARNING, f"{state}, but only {volume(free)} are free there")
    return LedgerFinding(path, LedgerLevel.FINE, f"{state}; {volume(free)} are free there")
