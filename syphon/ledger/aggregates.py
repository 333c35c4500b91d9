"""What a report counts in the rows of the ledger: small Arrow tables, which add up over separate parts.

`count_rows` counts rows, `Aggregates.merged` adds up what was counted in separate parts. So one implementation serves
both ways to read a ledger: a small one is counted in this process within a second, and a large one in the tasks of
Spark, which takes longer than that to start. All rows of a message id of a queue must be in one part.

A message is identified by pair, queue, sequence number and the time it came into the backlog: a queue that was deleted
and created again starts its sequence numbers at one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .rows import Period, Selection, within

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
        "in_flight": "max",
    },
    order=("rank", "settled", "destination", "renamed_to", "kind", "reason"),
)
DESTINATIONS = Grouping(
    ("destination",),
    {
        "messages": "sum",
        "forwarded": "sum",
        "dead_lettered": "sum",
        "arrived_otherwise": "sum",
        "left": "sum",
        "possible_duplicates": "sum",
        "repeated": "sum",
        "copies": "sum",
        "bytes": "sum",
        "longest_wait": "max",
        "longest_in_flight": "max",
        "first_enqueued": "min",
        "last_enqueued": "max",
    },
)
DURATIONS = Grouping(("destination", "what", "millis"), {"messages": "sum"})
RENAMES = Grouping(("destination", "renamed_to"), {"messages": "sum", "forwarded": "sum"})
REASONS = Grouping(
    ("outcome", "kind", "destination"),
    {"messages": "sum", "oldest": "min", "last_attempt": "max", "example": "last"},
    order=("last_attempt", "example"),
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
    """Messages by destination, and by the time that they waited in the backlog or were in flight."""
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
    """The percentiles of values, given as pairs of a value and how often it occurs."""
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


COLUMNS = (
    "pair",
    "queue",
    "sequence_number",
    "message_id",
    "destination",
    "enqueued_at",
    "received_at",
    "forwarded_at",
    "settled_at",
    "size",
    "outcome",
    "reason",
    "possible_duplicate",
    "job",
    "slot",
    "attempt",
    "renamed_to",
)
"""The columns of a transfer that are counted."""
_EXACT = 10_000
"""Milliseconds below which a duration is counted as it is; a longer one is cut to four digits, so that there are at
most some ten thousand different ones, and percentiles can be added up."""
_HOST = r"^(?:\[[0-9A-Fa-f:.]+\]|localhost|[\w-]+(?:\.[\w-]+)+)(?::\d+)?: "
"""A host at the beginning of a reason. It says where something happened, and not what."""


def count_rows(rows: pa.Table, selection: Selection) -> Aggregates:
    """Counts transfers. The table has the columns COLUMNS."""
    rows = selected(rows.select(list(COLUMNS)), selection.near, selection.pair)
    recorded = _with_recorded(rows)
    rows = _prepared(selected(rows, selection.period, None))
    messages = MESSAGES.of(rows)
    return Aggregates(
        steps=STEPS.of(rows),
        hours=HOURS.of(rows),
        recorded=RECORDED.of(recorded),
        destinations=DESTINATIONS.of(_with_destinations(messages)),
        durations=DURATIONS.of(_with_durations(messages)),
        renames=RENAMES.of(_with_renames(messages)),
        reasons=REASONS.of(_with_reasons(messages)),
        repeats=first_repeats(_with_repeats(messages)),
    )


def selected(rows: pa.Table, period: Period, pair: str | None) -> pa.Table:
    """The transfers of a pair, or of all, that were settled in the period."""
    import pyarrow.compute as pc

    if pair is not None:
        rows = rows.filter(pc.equal(rows["pair"], pair))
    return rows.filter(within(rows["settled_at"], period))


def _prepared(rows: pa.Table) -> pa.Table:
    """The rows with what is grouped and summed up."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def is_outcome(outcome: str) -> pa.ChunkedArray:
        return pc.cast(pc.equal(rows["outcome"], outcome), pa.int64())

    enqueued, received, forwarded, settled = (
        millis(rows[name]) for name in ("enqueued_at", "received_at", "forwarded_at", "settled_at")
    )
    has_arrived = is_outcome("forwarded")
    nothing = pa.scalar(None, pa.int64())
    # The clock of the broker, which set the first of these times, and ours may differ a little.
    waited = pc.subtract(pc.max_element_wise(enqueued, pc.coalesce(forwarded, settled), skip_nulls=False), enqueued)
    in_flight = pc.subtract(forwarded, received)
    duplicate = pc.cast(pc.fill_null(rows["possible_duplicate"], False), pa.int64())
    size = pc.fill_null(pc.cast(rows["size"], pa.int64()), 0)
    columns = {
        **{name: rows[name] for name in ("pair", "queue", "sequence_number", "message_id", "outcome")},
        "enqueued_at": enqueued,
        "destination": names(rows["destination"]),
        "renamed_to": names(rows["renamed_to"]),
        "reason": pc.fill_null(rows["reason"], ""),
        "kind": _kinds(pc.fill_null(rows["reason"], "")),
        "settled": settled,
        "rank": pc.add(pc.multiply(has_arrived, 2), is_outcome("dead_lettered")),
        "size": size,
        "forwards": has_arrived,
        "possible_duplicate": duplicate,
        "waited": pc.if_else(pc.equal(has_arrived, 1), waited, nothing),
        "in_flight": pc.if_else(pc.equal(has_arrived, 1), in_flight, nothing),
        "minute": pc.divide(settled, 60_000),
        "hour": pc.divide(settled, 3_600_000),
        "transfers": _ones(rows),
        "bytes": size,
        "possible_duplicates": duplicate,
        "first": settled,
        "last": settled,
    }
    return pa.table(columns)


def names(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Names of entities: capitals and slashes around them make no difference to Service Bus."""
    import pyarrow.compute as pc

    return pc.utf8_lower(pc.utf8_trim(pc.fill_null(names, ""), "/"))


def _kinds(reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """The first word of a reason if a colon follows it; else the whole reason without the parts that always differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.dictionary_encode(reasons).combine_chunks() if isinstance(reasons, pa.ChunkedArray) else reasons
    # Few reasons differ, so each is parsed once.
    texts = pc.replace_substring_regex(found.dictionary, _HOST, "")
    first = pc.struct_field(pc.extract_regex(texts, r"^(?P<first>\S+): "), "first")
    whole = pc.replace_substring_regex(texts, " ?TrackingId:.*", "")
    return pc.take(pc.coalesce(first, whole), found.indices)


def _with_recorded(rows: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    forwarded = pc.cast(pc.equal(rows["outcome"], "forwarded"), pa.int64())
    return pa.table({**{name: rows[name] for name in ATTEMPT}, "rows": _ones(rows), "forwarded": forwarded})


def _with_destinations(messages: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    def where(condition: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.cast(condition, pa.int64())

    repeated = where(pc.greater(messages["forwards"], 1))
    outcomes = {name: where(pc.equal(messages["outcome"], name)) for name in ("forwarded", "dead_lettered", "left")}
    columns = {
        "destination": messages["destination"],
        "messages": _ones(messages),
        **outcomes,
        "arrived_otherwise": _arrived_otherwise(messages),
        "possible_duplicates": messages["possible_duplicate"],
        "repeated": repeated,
        "copies": pc.multiply(repeated, pc.subtract(messages["forwards"], 1)),
        "bytes": messages["size"],
        "longest_wait": messages["waited"],
        "longest_in_flight": messages["in_flight"],
        "first_enqueued": messages["enqueued_at"],
        "last_enqueued": messages["enqueued_at"],
    }
    return pa.table(columns)


def _arrived_otherwise(messages: pa.Table) -> pa.ChunkedArray:
    """1 for each dead letter whose message id has arrived from the same queue: it was replayed, or sent twice.

    A message that is replayed to the backlog is another message there, with another sequence number.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    named = pc.binary_join_element_wise(messages["pair"], messages["queue"], messages["message_id"], "\0")
    arrived = named.filter(pc.equal(messages["outcome"], "forwarded")).drop_null()
    found = pc.and_(pc.equal(messages["outcome"], "dead_lettered"), pc.is_in(named, value_set=arrived))
    return pc.cast(pc.and_(found, pc.is_valid(named)), pa.int64())


def _with_durations(messages: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    def of(what: str) -> pa.Table:
        found = messages.filter(pc.is_valid(messages[what]))
        texts = pa.repeat(pa.scalar(what), found.num_rows)
        names = ["destination", "what", "millis", "messages"]
        return pa.table([found["destination"], texts, _cut(found[what]), _ones(found)], names)

    return pa.concat_tables([of("waited"), of("in_flight")])


def _cut(millis: pa.ChunkedArray) -> pa.ChunkedArray:
    """Durations, the long ones cut to four digits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    step = pa.scalar(1, pa.int64())
    for power in range(9):
        step = pc.if_else(pc.greater_equal(millis, _EXACT * 10**power), pa.scalar(10 ** (power + 1), pa.int64()), step)
    return pc.multiply(pc.divide(millis, step), step)


def _with_renames(messages: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = messages.filter(pc.not_equal(messages["renamed_to"], ""))
    columns = {
        "destination": found["destination"],
        "renamed_to": found["renamed_to"],
        "messages": _ones(found),
        "forwarded": pc.cast(pc.equal(found["outcome"], "forwarded"), pa.int64()),
    }
    return pa.table(columns)


def _with_reasons(messages: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = messages.filter(pc.not_equal(messages["outcome"], "forwarded"))
    columns = {
        **{name: found[name] for name in ("outcome", "kind", "destination")},
        "messages": _ones(found),
        "oldest": found["enqueued_at"],
        "last_attempt": found["settled"],
        "example": found["reason"],
    }
    return pa.table(columns)


def _with_repeats(messages: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    names = ["pair", "queue", "sequence_number", "message_id", "destination", "forwards"]
    return messages.filter(pc.greater(messages["forwards"], 1)).select(names)


def millis(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as milliseconds since 1970."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(pc.cast(times, pa.timestamp("ms", tz="UTC"), safe=False), pa.int64())


def _ones(rows: pa.Table) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
