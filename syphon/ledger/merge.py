"""Merging small files: a worker writes a file or two for each job, and thousands of small files are slow to read.

A writer merges only files that it wrote itself, in this process: when it has a hundred small ones of a table and a day,
or 4 MB of them, ten minutes after the first of them, and at its end. A merged file that is still small is merged again.

Readers never see a row twice, nor miss one:

1. A manifest, `<path>/merging/<id>.json`, names the merged file and the files that it replaces.
2. The merged file is moved to its place. From this step on, readers leave out the files that it replaces.
3. The replaced files are deleted, then the manifest.

A writer that is killed between two steps leaves a manifest with which readers still find every row once. Programs that
read the files and no manifest would count rows twice: the next writer finishes what it finds.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

from syphon.time_budget import MERGE_LONGEST_WAIT

from . import parquet as in_this_process
from .filesystems import LedgerFiles, cause
from .parquet import LARGEST
from .parquet_process import ParquetFiles

log = logging.getLogger(__name__)

FOLDER = "merging"
MERGED = "merged-"
"""How the names of merged files begin."""
SMALL = LARGEST // 4
"""Bytes of a file that is worth merging."""
MOST_FILES = 100


class StoredFile(NamedTuple):
    """A file in a table of the ledger."""

    folder: str
    """`transfers/date=2026-10-05`."""
    name: str
    size: int


@dataclass
class _Group:
    """Small files of one folder."""

    since: float
    files: list[StoredFile] = field(default_factory=list)

    def is_due(self, now: float) -> bool:
        size = sum(file.size for file in self.files)
        return len(self.files) >= MOST_FILES or size >= LARGEST or now - self.since >= MERGE_LONGEST_WAIT


class Merger:
    """Merges the small files of one writer, in the writer's thread."""

    def __init__(
        self,
        files: LedgerFiles,
        now: Callable[[], float] = time.monotonic,
        parquet: ParquetFiles = in_this_process,
    ) -> None:
        self._files, self._now, self._parquet = files, now, parquet
        finish_interrupted(files)
        self._groups: dict[str, _Group] = {}

    def add(self, file: StoredFile) -> None:
        """Add a file that the writer has just written."""
        if file.size <= SMALL:
            self._groups.setdefault(file.folder, _Group(self._now())).files.append(file)

    def merge(self, everything: bool = False) -> None:
        """Merge where there are many files, large ones, or old ones; or everything."""
        for folder, group in list(self._groups.items()):
            if everything or group.is_due(self._now()):
                self._merge(folder)

    def _merge(self, folder: str) -> None:
        """Merges the files of a folder. After an error they stay as they are, and are never merged."""
        files = self._groups.pop(folder).files
        if len(files) < 2:
            if files:
                self.add(files[0])
            return
        try:
            merged = merge(self._files, folder, [file.name for file in files], self._parquet)
        except (OSError, ValueError) as error:
            log.warning("Files of the ledger in %s were not merged: %s. Every row is on record.", folder, cause(error))
            return
        self.add(merged)


def merge(files: LedgerFiles, folder: str, names: list[str], parquet: ParquetFiles = in_this_process) -> StoredFile:
    """Merges files of a folder into one. Raises OSError or ValueError; every row is still found once then."""
    content = parquet.joined([files.read(f"{folder}/{name}") for name in names])
    number = uuid4().hex
    merged = StoredFile(folder, f"{MERGED}{number}.parquet", len(content))
    manifest = {"folder": folder, "file": merged.name, "replaces": names}
    files.put(f"{FOLDER}/{number}.json", json.dumps(manifest).encode())
    files.put(f"{folder}/{merged.name}", content)
    files.delete(folder, names)
    files.delete(FOLDER, [f"{number}.json"])
    return merged


def finish_interrupted(files: LedgerFiles) -> None:
    """Deletes what merged files replace, where a writer was killed before it did. One that still runs does the same.

    Without the merged file the manifest stays: its writer may be about to put it there.
    """
    try:
        for name in files.names(FOLDER):
            manifest = json.loads(files.read(f"{FOLDER}/{name}"))
            if manifest["file"] in files.names(manifest["folder"]):
                files.delete(manifest["folder"], manifest["replaces"])
                files.delete(FOLDER, [name])
    except (OSError, ValueError) as error:
        log.warning("An interrupted merge of the ledger was not finished: %s. Every row is on record.", cause(error))


def replaced_files(files: LedgerFiles, present: set[str]) -> set[str]:
    """The names among `present` that a merged file among `present` replaces."""
    replaced: set[str] = set()
    for name in files.names(FOLDER):
        try:
            manifest = json.loads(files.read(f"{FOLDER}/{name}"))
        except OSError:
            if name in files.names(FOLDER):
                raise
            continue  # the merge is over
        if manifest["file"] in present:
            replaced.update(present.intersection(manifest["replaces"]))
    return replaced
