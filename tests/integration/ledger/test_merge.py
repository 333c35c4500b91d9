"""Small files become one, and a reader finds every row once, wherever a merge is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from syphon.ledger.filesystems import LocalFiles
from syphon.ledger.ledger import Ledger
from syphon.ledger.merge import MOST_FILES, Merger, StoredFile, finish_interrupted, merge
from syphon.ledger.parquet import LARGEST
from syphon.time_budget import MERGE_LONGEST_WAIT
from tests.support.ledger_rows import outcome, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "transfers/date=2026-10-05"


class CutOff(BaseException):
    """The process is killed here."""


class Killed(LocalFiles):
    """Plain files of a process that is killed before one of its changes."""

    def __init__(self, root: str, changes: int) -> None:
        super().__init__(root)
        self.left = changes

    def _change(self) -> None:
        if not self.left:
            raise CutOff
        self.left -= 1

    def put(self, place: str, content: bytes, durable: bool = True) -> None:
        self._change()
        super().put(place, content, durable)

    def delete(self, folder: str, names: Sequence[str]) -> None:
        for name in names:
            self._change()
            super().delete(folder, [name])


def numbers(ledger: Ledger) -> list[int]:
    return sorted(row.sequence_number for row in ledger.transfers().collect())


def test_a_reader_finds_every_row_once_wherever_a_merge_is_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    changes = 2 + 3 + 1  # the manifest and the merged file; three files and the manifest are deleted
    for before in range(changes + 1):
        ledger = Ledger(spark, f"{tmp_path}/{before}")
        for number in range(3):
            record(ledger, [outcome(number)])
        record(ledger, [outcome(3)])
        files = Killed(ledger.path, before)
        merged = sorted(files.names(FOLDER))[:3]
        if before < changes:
            with pytest.raises(CutOff):
                merge(files, FOLDER, merged)
        else:
            merge(files, FOLDER, merged)
        assert (numbers(ledger), ledger.unreadable_files()) == ([0, 1, 2, 3], [])
        finish_interrupted(LocalFiles(ledger.path))  # as the next writer does
        plain = pq.read_table(f"{ledger.path}/{FOLDER}", columns=["sequence_number"], partitioning=None)
        assert sorted(plain["sequence_number"].to_pylist()) == [0, 1, 2, 3], "without the manifests, too"
        assert (numbers(ledger), ledger.unreadable_files()) == ([0, 1, 2, 3], [])
    assert len(files.names(FOLDER)) == 2
    assert files.names("merging") == []


@pytest.mark.parametrize("when", ["before the manifests are read", "after they are read"])
def test_a_merge_between_the_looks_of_a_reader_hides_no_row_and_doubles_none(
    spark: SparkSession, tmp_path: Path, when: str
) -> None:
    ledger = Ledger(spark, str(tmp_path))
    for number in range(3):
        record(ledger, [outcome(number)])
    plain = LocalFiles(str(tmp_path))

    class Meanwhile(LocalFiles):
        done = False

        def names(self, folder: str) -> list[str]:
            after = [] if when.startswith("before") else super().names(folder)
            if not self.done:
                self.done = True
                merge(plain, FOLDER, plain.names(FOLDER))
            return after or super().names(folder)

    ledger.files = Meanwhile(str(tmp_path))
    assert numbers(ledger) == [0, 1, 2]


def test_files_are_merged_when_they_are_many_or_much_or_old(tmp_path: Path) -> None:
    now = 0.0
    files = LocalFiles(str(tmp_path))
    ledger = Ledger(None, f"file:{tmp_path}")
    merger = Merger(files, lambda: now)

    def add(count: int, size: int | None = None) -> None:
        for _ in range(count):
            record(ledger, [outcome(1)])
        for name in files.names(FOLDER):
            if name not in known:
                known.add(name)
                merger.add(StoredFile(FOLDER, name, size or 100))

    known: set[str] = set()
    add(MOST_FILES - 1)
    merger.merge()
    assert len(files.names(FOLDER)) == MOST_FILES - 1
    add(1)
    merger.merge()
    assert len(files.names(FOLDER)) == 1
    known.update(files.names(FOLDER))
    add(4, LARGEST // 4)
    merger.merge()
    assert len(files.names(FOLDER)) == 1
    known.update(files.names(FOLDER))
    add(1)
    merger.merge()
    assert len(files.names(FOLDER)) == 2
    now += MERGE_LONGEST_WAIT
    merger.merge()
    assert len(files.names(FOLDER)) == 1
    known.update(files.names(FOLDER))
    add(1)
    merger.merge(everything=True)
    assert len(files.names(FOLDER)) == 1


def test_files_that_cannot_be_merged_stay_as_they_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = LocalFiles(str(tmp_path))
    for name in ("a", "b"):
        files.put(f"{FOLDER}/{name}", b"PAR1 and no more")
    merger = Merger(files)
    for name in ("a", "b"):
        merger.add(StoredFile(FOLDER, name, 10))
    merger.merge(everything=True)
    assert sorted(files.names(FOLDER)) == ["a", "b"]
    assert "Every row is on record" in caplog.text
