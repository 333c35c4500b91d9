"""Checks in the rows of the ledger whether the order of sessions was kept (D21).

The order of a session is that in which its messages came into the backlog. It was kept if each of them was first
accepted by its destination no earlier than those before it. A message that was not forwarded does not count. Only rows
of pairs that keep the order are checked.

All rows of a session must be in one part: for Spark these are other parts than those of `Aggregates`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from .aggregates import MESSAGE, MOST_LINES, Grouping, millis, names, selected
from .rows import Selection

if TYPE_CHECKING:
    import pyarrow as pa

SESSION = ("pair", "destination", "session_id")
ORDER_COLUMNS = (
    *SESSION,
    "queue",
    "sequence_number",
    "enqueued_at",
    "forwarded_at",
    "settled_at",
    "outcome",
    "ordered",
)
"""The columns of a transfer that are checked."""
FIRST_COPIES = Grouping((*SESSION, *MESSAGE[1:]), {"forwarded_at": "min"})
VIOLATIONS = "pair string, destination string, session_id string, messages bigint, late bigint"
"""The Spark schema of sessions whose order was not kept, and of a line per part that counts the sessions: it has no
session, `messages` is their number, and `late` how many of them had a message that was late."""


@dataclass(frozen=True)
class OrderFound:
    """What was found in all sessions."""

    sessions: int
    violated: int
    """Sessions whose order was not kept."""
    violations: list[tuple[str, str, str, int, int]]
    """Pair, destination, session, messages, and how many came after a later one; at most MOST_LINES."""

    @classmethod
    def merged(cls, parts: Sequence[OrderFound]) -> OrderFound:
        """What was found in all parts together. No session may be in two of them."""
        violations = sorted((each for part in parts for each in part.violations), key=lambda each: (-each[-1], each))
        return cls(sum(part.sessions for part in parts), sum(part.violated for part in parts), violations[:MOST_LINES])

    @classmethod
    def unpacked(cls, lines: Iterable[Sequence[Any]]) -> OrderFound:
        """What all tasks have passed on, as lines with the schema VIOLATIONS."""
        found = [tuple(line) for line in lines]
        counts = [line for line in found if line[2] is None]
        violations = [line for line in found if line[2] is not None]
        return cls.merged([cls(sum(line[3] for line in counts), sum(line[4] for line in counts), violations)])

    def packed(self) -> pa.RecordBatch:
        """This as a batch with the schema VIOLATIONS, as a Spark task passes it on."""
        import pyarrow as pa

        from .parquet import arrow_schema

        schema = arrow_schema(VIOLATIONS, [column.split()[0] for column in VIOLATIONS.split(", ")])
        lines = [("", "", None, self.sessions, self.violated), *self.violations]
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*lines, strict=True), schema, strict=True)],
            schema=schema,
        )


def check_order(rows: pa.Table, selection: Selection) -> OrderFound:
    """Checks transfers. The table has the columns ORDER_COLUMNS."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = selected(rows.select(list(ORDER_COLUMNS)), selection.period, selection.pair)
    has_order = pc.and_(pc.fill_null(rows["ordered"], False), pc.equal(rows["outcome"], "forwarded"))
    rows = rows.filter(pc.and_(has_order, pc.is_valid(rows["session_id"])))
    columns = {
        **{name: rows[name] for name in ("pair", "session_id", "queue", "sequence_number")},
        "destination": names(rows["destination"]),
        **{name: millis(rows[name]) for name in ("enqueued_at", "forwarded_at")},
    }
    by = [(name, "ascending") for name in (*SESSION, "enqueued_at", "sequence_number")]
    first = FIRST_COPIES.of(pa.table(columns)).sort_by(by)
    sessions, found = 0, []
    for session, messages, late in _sessions(first):
        sessions += 1
        if late:
            found.append((*session, messages, late))
    return OrderFound.merged([OrderFound(sessions, len(found), found)])


def _sessions(first: pa.Table) -> Iterator[tuple[tuple[str, str, str], int, int]]:
    """Each session, how many messages of it arrived, and how many of them after a later one."""
    lines = zip(*(first[name].to_pylist() for name in (*SESSION, "forwarded_at")), strict=True)
    for session, group in groupby(lines, key=itemgetter(0, 1, 2)):
        times = [line[3] for line in group]
        earliest, late = times[-1], 0
        for time in reversed(times):
            late += time > earliest
            earliest = min(earliest, time)
        yield session, len(times), late
