"""The Parquet files of the ledger, made with Arrow: by a task for its transfers, by the driver for attempts.

A task packs its transfers into a file, and the driver only moves the bytes: so neither the JVM nor a Spark job handles
single rows. Spark's daemon preloads this module, so Arrow is imported inside functions.

Measured with 2,000 rows a file: zstd and delta encodings take 30 bytes a row and 0.6 ms a thousand rows; snappy with
Arrow's own choice of encodings takes 67 bytes and 0.8 ms. Statistics of columns that no query selects by cost a third
of a small file.

Arrow imports pandas, if it is installed, when it makes its first array: 0.4 s of CPU time and 34 MB, which the ledger
does not need. Processes of our own (a worker's driver, the Python workers of a local Spark) prevent that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from functools import cache
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

from syphon.model import AttemptKey, Outcome

from .rows import Attempt

if TYPE_CHECKING:
    import pyarrow as pa

_is_wanted = False


def avoid_loading_pandas() -> None:
    """Keep Arrow from loading pandas in this process, and in those that it forks. Arrow itself is not loaded yet.

    Arrow tries once: a process that converts anything to or from pandas must not call this.
    """
    global _is_wanted
    _is_wanted = True


def prepare_arrow() -> None:
    """Hide pandas, if `avoid_loading_pandas` was called, before the first array is made."""
    if _is_wanted:
        _hide_pandas_once()


@cache
def _hide_pandas_once() -> None:
    if "pandas" in sys.modules:
        return
    sys.meta_path.insert(0, _Hidden)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_Hidden)


class _Hidden(MetaPathFinder):
    """Finds no pandas, wherever it is installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG003
        if fullname == "pandas":
            raise ImportError(fullname)


LARGEST = 4 * 1024 * 1024
"""Bytes of small files that are merged into one: about 140,000 rows, which take 30 MB in memory."""
_RISING = ("sequence_number", "enqueued_at", "received_at", "forwarded_at", "settled_at", "size")
"""Columns whose values differ little from row to row: only the differences are stored."""
_UNIQUE = "message_id"


def arrow_schema(declared: str, columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of some columns of a Spark schema of the ledger."""
    import pyarrow as pa

    kinds = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    types = dict(column.split() for column in declared.split(", "))
    return pa.schema([pa.field(name, kinds[types[name]]) for name in columns])


def packed_file(outcomes: Sequence[Outcome], origin: AttemptKey) -> bytes:
    """A file of the transfers of one task."""
    prepare_arrow()
    import pyarrow as pa

    return _file(pa.Table.from_batches([transfer_rows(outcomes, origin)]))


def transfer_rows(outcomes: Sequence[Outcome], origin: AttemptKey) -> pa.RecordBatch:
    """Outcomes as an Arrow batch with the columns TRANSFERS."""
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    by_column = list(zip(*outcomes, strict=True)) or [()] * len(Outcome._fields)
    by_name = dict(zip(Outcome._fields, by_column, strict=True))

    def same(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(outcomes))

    def each(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array(by_name[name], kind)

    columns = {
        "pair": same(origin.pair, text),
        "queue": each("queue", text),
        "sequence_number": each("sequence_number", number),
        "message_id": each("message_id", text),
        "destination": each("destination", text),
        "session_id": each("session_id", text),
        "enqueued_at": _times(by_name["enqueued_at"]),
        "received_at": _times(by_name["received_at"]),
        "forwarded_at": _times(by_name["forwarded_at"]),
        "settled_at": _times(by_name["settled_at"]),
        "size": each("size", number),
        "delivery_count": each("delivery_count", pa.int32()),
        "outcome": each("result", text),
        "reason": each("reason", text),
        "possible_duplicate": each("possible_duplicate", pa.bool_()),
        "job": same(origin.job, text),
        "slot": same(origin.slot, pa.int32()),
        "attempt": same(origin.attempt, pa.int32()),
        "renamed_to": each("renamed_to", text),
        "ordered": each("ordered", pa.bool_()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def attempts_file(attempts: Sequence[Attempt]) -> bytes:
    """A file of attempts."""
    prepare_arrow()
    import pyarrow as pa

    text, number, small = pa.string(), pa.int64(), pa.int32()
    counters = [attempt.counters for attempt in attempts]
    columns = {
        "pair": pa.array([each.pair for each in attempts], text),
        "queue": pa.array([each.queue for each in attempts], text),
        "job": pa.array([each.job for each in attempts], text),
        "slot": pa.array([each.slot for each in attempts], small),
        "attempt": pa.array([each.attempt for each in attempts], small),
        "started_at": _times([each.started_at for each in attempts]),
        "ended_at": _times([each.ended_at for each in attempts]),
        "received": pa.array([each.received for each in counters], number),
        "forwarded": pa.array([each.forwarded for each in counters], number),
        "dead_lettered": pa.array([each.dead_lettered for each in counters], number),
        "left": pa.array([each.left for each in counters], number),
        "possible_duplicates": pa.array([each.possible_duplicates for each in counters], number),
        "finished": pa.array([each.finished for each in attempts], pa.bool_()),
        "error": pa.array([each.error for each in attempts], text),
    }
    return _file(pa.table(columns))


def files_by_day(files: Sequence[bytes]) -> Iterator[tuple[date, bytes]]:
    """The rows of these files of transfers as few files, each with the transfers of one UTC day.

    Raises ValueError if one is no such file.
    """
    by_day: dict[date, list[bytes]] = {}
    for file in files:
        for day, part in _split_by_day(file):
            by_day.setdefault(day, []).append(part)
    for day, parts in by_day.items():
        while parts:
            taken = [parts.pop(0)]
            while parts and sum(map(len, taken)) + len(parts[0]) <= LARGEST:
                taken.append(parts.pop(0))
            yield day, joined(taken)


def joined(files: Sequence[bytes]) -> bytes:
    """One file with the rows of all these files."""
    import pyarrow as pa

    if len(files) == 1:
        return files[0]
    return _file(pa.concat_tables([_table(file) for file in files]))


def rest(is_job_open: bool) -> None:
    """In this process there is nothing to start or end (`parquet_process`)."""


def _split_by_day(file: bytes) -> Iterator[tuple[date, bytes]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    found = pq.read_metadata(pa.BufferReader(file))
    place = found.schema.names.index("settled_at")
    days: set[date] = set()
    for group in range(found.num_row_groups):
        statistics = found.row_group(group).column(place).statistics
        days |= {_day(statistics.min), _day(statistics.max)}
    if len(days) == 1:
        yield days.pop(), file
        return
    table = _table(file)
    dates = pc.cast(table["settled_at"], pa.date32())
    for day in sorted(filter(None, pc.unique(dates).to_pylist())):
        yield day, _file(table.filter(pc.equal(dates, pa.scalar(day, pa.date32()))))


def _day(when: datetime) -> date:
    return when.date()


def _times(millis: Sequence[int | None]) -> pa.Array:
    import pyarrow as pa

    known = millis if all(millis) else [value or None for value in millis]  # nearly always all: no list is made
    return pa.array(known, pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))


def _table(file: bytes) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(file))


def _file(table: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rising = [name for name in table.column_names if name in _RISING]
    stream = pa.BufferOutputStream()
    options: dict[str, Any] = {
        "compression": "zstd",
        "use_dictionary": [name for name in table.column_names if name not in (*_RISING, _UNIQUE)],
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in ("settled_at", "ended_at") if name in table.column_names],
        "store_schema": False,
    }
    pq.write_table(table, stream, **options)
    return bytes(stream.getvalue())
