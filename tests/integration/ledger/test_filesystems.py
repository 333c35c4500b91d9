"""Files of the ledger are whole or not there, on this machine and on any file system of Hadoop's (D9)."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from syphon.ledger.filesystems import HadoopFiles, LedgerFiles, LocalFiles, ledger_files
from syphon.ledger.ledger import Ledger, LedgerUnwritable
from syphon.ledger.merge import merge
from syphon.ledger.reader import SparkReader
from syphon.ledger.report_query import query_report
from syphon.ledger.rows import OpenJob
from syphon.model.outcomes import Counters
from tests.support.ledger_rows import NOON, attempt, note, outcome, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mounted(spark: SparkSession, folder: Path) -> str:
    """A folder under an address that only Hadoop understands."""
    name = f"t{uuid4().hex}"
    spark._jsc.hadoopConfiguration().set(f"fs.viewfs.mounttable.{name}.link./ledger", f"file://{folder}")
    return f"viewfs://{name}/ledger"


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> LedgerFiles:
    path = f"file://{tmp_path}" if request.param == "local" else mounted(spark, tmp_path)
    found = ledger_files(lambda: spark, path)
    assert isinstance(found, LocalFiles if request.param == "local" else HadoopFiles)
    return found


def test_a_file_is_read_as_it_was_put(files: LedgerFiles, tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    files.put("table/one", content)
    assert files.read("table/one") == content
    assert list((tmp_path / "_writing").iterdir()) == []


def test_a_file_can_be_replaced(files: LedgerFiles) -> None:
    files.put("open/job", b"first")
    files.put("open/job", b"second", durable=False)
    assert (files.read("open/job"), files.names("open")) == (b"second", ["job"])


def test_a_new_file_has_the_permissions_that_the_umask_gives_it(files: LedgerFiles, tmp_path: Path) -> None:  # T7
    umask = os.umask(0o077)
    os.umask(umask)
    files.put("table/day/file", b"content")
    (file,) = tmp_path.rglob("file")
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o777 & ~umask


def test_what_is_not_there_has_no_names_and_can_be_deleted(files: LedgerFiles) -> None:
    assert files.names("nowhere") == []
    files.delete("nowhere", ["job"])
    files.put("table/one", b"1")
    files.put("table/two", b"2")
    files.delete("table", ["one", "three"])
    assert files.names("table") == ["two"]


def test_a_file_that_cannot_be_put_is_an_error_of_the_system(files: LedgerFiles, tmp_path: Path) -> None:
    (tmp_path / "table").touch()
    with pytest.raises(OSError, match="table"):
        files.put("table/one", b"1")
    assert [file for file in (tmp_path / "_writing").iterdir() if not file.name.endswith(".crc")] == []


def test_a_path_without_a_scheme_is_where_spark_looks_for_it(spark: SparkSession, tmp_path: Path) -> None:
    assert isinstance(ledger_files(lambda: spark, str(tmp_path)), LocalFiles)
    settings = spark._jsc.hadoopConfiguration()
    settings.set("fs.defaultFS", "viewfs://elsewhere/")
    try:
        assert isinstance(ledger_files(lambda: spark, str(tmp_path)), HadoopFiles)
    finally:
        settings.set("fs.defaultFS", "file:///")


def test_a_ledger_can_be_anywhere_that_spark_can_write(spark: SparkSession, tmp_path: Path) -> None:  # D9
    ledger = Ledger(spark, mounted(spark, tmp_path))
    for number in range(3):
        record(ledger, [outcome(number)])
    note(ledger, [attempt(3)])
    ledger.open_job(OpenJob("job-1", "contoso", ("q",), 1, NOON))
    ledger.put_progress("job-1", NOON, {"q": Counters(3)})
    ledger.put_progress("job-1", NOON + 1, {"q": Counters(3, 3)})
    folder = "transfers/date=2026-10-05"
    merge(ledger.files, folder, ledger.files.names(folder))
    told = query_report(SparkReader(ledger))
    assert told.verdict == "All 3 messages arrived. Every delivery is accounted for."
    ledger.open_job(OpenJob("job-2", "contoso", ("q",), 1, NOON))
    assert [each.job for each in query_report(SparkReader(ledger)).open_jobs] == ["job-2"]
    ledger.close_job("job-2")
    ledger.close_job("job-1")
    assert ledger.open_jobs() == ([], [])


def test_a_driver_without_its_jvm_still_writes_to_plain_files(tmp_path: Path) -> None:
    gone: SparkSession = None  # type: ignore[assignment]
    record(Ledger(gone, f"file:{tmp_path}"), [outcome(1)])
    assert len(list((tmp_path / "transfers").rglob("*.parquet"))) == 1
    with pytest.raises(LedgerUnwritable):
        record(Ledger(gone, "viewfs://gone/ledger"), [outcome(1)])
