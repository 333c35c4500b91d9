"""What a report counts in the rows of the ledger: small tables, and how those of separate parts are added up.

`count_rows` (`counting`) counts rows, `Aggregates.merged` adds up what was counted in separate parts. So one
implementation serves both ways to read a ledger: a small one is counted in this process, which takes a second, and a
large one in the tasks of Spark, whose start alone takes longer than that. All rows of a message must be in one part.

A message is identified by pair, queue, sequence number and the time it came into the backlog: a queue that was deleted
and created again starts its sequence numbers at one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MESSAGE = ("pair", "queue", "sequence_number", "enqueued_at")
"""The columns that identify a message."""
ATTEMPT = ("pair", "job", "slot", "attempt", "queue")
MOST_LINES = 10_000
"""The limit of lists whose length depends on the content of messages."""


@dataclass(frozen=True)
class Grouping:
    """A table of aggregates: what it is grouped by, and how its other columns are put together."""

    keys: tuple[str, ...]
    functions: Mapping[str, str]
    order: tuple[str, ...] = ()
    """What the rows are sorted by first, for the function `last`."""

    def of(self, rows: pa.Table) -> pa.Table:
        """The aggregates of rows, which may be aggregates already."""
        import pyarrow.compute as pc

        if self.order:
            by = [(name, "ascending") for name in self.order]
            rows = rows.take(pc.sort_indices(rows, by))
        keep_nulls = pc.ScalarAggregateOptions(skip_nulls=False)
        wanted = [
            (name, function, keep_nulls if function == "last" else None) for name, function in self.functions.items()
        ]
        # `last` depends on the order of the rows, which several threads would not keep.
        found = rows.group_by(list(self.keys), use_threads=not self.order).aggregate(wanted)
        return found.select(
            [*self.keys, *(f"{name}_{function}" for name, function in self.functions.items())]
        ).rename_columns([*self.keys, *self.functions])


STEPS = Grouping(
    ("minute", "outcome"),
    {"transfers": "sum", "bytes": "sum", "possible_duplicates": "sum", "first": "min", "last": "max"},
)
HOURS = Grouping(("hour", "destination", "outcome"), {"transfers": "sum"})
RECORDED = Grouping(ATTEMPT, {"rows": "sum", "forwarded": "sum"})
MESSAGES = Grouping(
    MESSAGE,
    {
        "outcome": "last",
        "destination": "last",
        "renamed_to": "last",
        "kind": "last",
        "reason": "last",
        "settled": "last",
        "message_id": "max",
        "size": "max",
        "forwards": "sum",
        "possible_duplicate": "max",
        "waited": "min",
        "carried": "max",
    },
    order=("rank", "settled", "destination", "renamed_to", "kind", "reason"),
)
DESTINATIONS = Grouping(
    ("destination",),
    {
        "messages": "sum",
        "forwarded": "sum",
        "dead_lettered": "sum",
        "left": "sum",
        "possible_duplicates": "sum",
        "repeated": "sum",
        "copies": "sum",
        "bytes": "sum",
        "longest_wait": "max",
        "longest_carry": "max",
    },
)
DURATIONS = Grouping(("destination", "what", "millis"), {"messages": "sum"})
RENAMES = Grouping(("destination", "renamed_to"), {"messages": "sum", "forwarded": "sum"})
REASONS = Grouping(
    ("outcome", "kind", "destination"),
    {"messages": "sum", "oldest": "min", "last_tried": "max", "example": "last"},
    order=("last_tried", "example"),
)


@dataclass(frozen=True)
class Aggregates:
    """What was counted: small tables, whatever the number of rows. Times are milliseconds since 1970."""

    steps: pa.Table
    """Transfers by minute and outcome."""
    hours: pa.Table
    """Transfers by hour, destination and outcome."""
    recorded: pa.Table
    """Rows by attempt of a task."""
    destinations: pa.Table
    """Messages by destination."""
    durations: pa.Table
    """Messages by destination, and by the time that they waited in the backlog or were carried."""
    renames: pa.Table
    """Messages whose destination was renamed, by what they named and where they went."""
    reasons: pa.Table
    """Messages that did not arrive, by reason."""
    repeats: pa.Table
    """Messages that were forwarded more than once, at most MOST_LINES."""

    @classmethod
    def merged(cls, parts: Sequence[Aggregates]) -> Aggregates:
        """The aggregates of all parts together. No message may be in two of them."""
        import pyarrow as pa

        def every(name: str) -> pa.Table:
            return pa.concat_tables([getattr(part, name) for part in parts])

        tables = {name: grouping.of(every(name)) for name, grouping in _TABLES.items()}
        return cls(**tables, repeats=first_repeats(every("repeats")))

    def packed(self) -> pa.RecordBatch:
        """These tables as one batch with the schema PACKED_AGGREGATES, as a Spark task passes them on."""
        import pyarrow as pa

        def bytes_of(table: pa.Table) -> bytes:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, table.schema) as writer:
                writer.write_table(table)
            return bytes(stream.getvalue())

        names = [*_TABLES, "repeats"]
        tables = [bytes_of(getattr(self, name)) for name in names]
        return pa.RecordBatch.from_arrays([pa.array([table], pa.binary()) for table in tables], names=names)

    @classmethod
    def unpacked(cls, row: Mapping[str, bytes]) -> Aggregates:
        """The tables of one row with the schema PACKED_AGGREGATES."""
        import pyarrow as pa

        return cls(**{name: pa.ipc.open_stream(pa.py_buffer(table)).read_all() for name, table in row.items()})


_TABLES = {
    "steps": STEPS,
    "hours": HOURS,
    "recorded": RECORDED,
    "destinations": DESTINATIONS,
    "durations": DURATIONS,
    "renames": RENAMES,
    "reasons": REASONS,
}
PACKED_AGGREGATES = ", ".join(f"{name} binary" for name in (*_TABLES, "repeats"))
"""The Spark schema of packed aggregates."""


def first_repeats(repeats: pa.Table) -> pa.Table:
    order = [("forwards", "descending"), *((name, "ascending") for name in ("pair", "queue", "sequence_number"))]
    return repeats.sort_by(order).slice(0, MOST_LINES)


def percentiles(counts: Iterable[tuple[int, int]], percents: Sequence[int]) -> list[int]:
    """The least values that so many percent do not exceed: of pairs of a value and how often it occurs."""
    ordered = sorted(counts)
    total = sum(times for _, times in ordered)
    places = iter(ordered)
    found, seen, value = [], 0, 0
    for percent in sorted(percents):
        while seen * 100 < percent * total:
            value, times = next(places)
            seen += times
        found.append(value)
    return found
