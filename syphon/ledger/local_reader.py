"""Reads a small ledger on this machine for a report, in this process and without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .counts import COLUMNS, count_rows
from .files import LocalFiles, cause, local_path
from .merge import MERGED, replaced_files
from .open_jobs import OpenRecord, read_open
from .parquet import arrow_schema
from .readers import ATTEMPT_COLUMNS, FilesChanged, LedgerExtract, jobs_of, selected_attempts
from .rows import ATTEMPTS, TRANSFERS
from .selection import Selection
from .store import MOST_LISTINGS, LedgerUnreadable

if TYPE_CHECKING:
    import pyarrow as pa

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

    def open_jobs(self) -> tuple[list[OpenRecord], list[str]]:
        with self._reading():
            found, broken = read_open(self._files)
        return found, [f"{self.path}/{place}" for place in broken]

    def read(self, selection: Selection, open_jobs: Sequence[str]) -> LedgerExtract:
        import pyarrow.compute as pc

        with self._reading():
            # The rows of a job are written after its attempts, so they are read after them: none seems to be missing.
            attempts, broken = self._table("attempts", ATTEMPTS, ATTEMPT_COLUMNS)
            transfers, more_broken = self._table("transfers", TRANSFERS, COLUMNS)
        return LedgerExtract(
            count_rows(transfers, selection),
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
                    tables.append(_as(schema, opened.read(schema.names)))
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


def _as(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows with these columns. A column that a file does not have is empty, as it is for Spark."""
    import pyarrow as pa

    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        if field.name not in rows.column_names:
            return pa.nulls(rows.num_rows, field.type)
        return rows[field.name].cast(field.type, safe=False)  # times of older files have other units

    return pa.table([column(field) for field in schema], schema=schema)
