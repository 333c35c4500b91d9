"""Counts transfers for a report, with Arrow: from rows of the ledger to `Aggregates`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .aggregates import (
    ATTEMPT,
    DESTINATIONS,
    DURATIONS,
    HOURS,
    MESSAGES,
    REASONS,
    RECORDED,
    RENAMES,
    STEPS,
    Aggregates,
    first_repeats,
)
from .report import Period
from .selection import Selection, within

if TYPE_CHECKING:
    import pyarrow as pa

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
    rows = _selected(rows.select(list(COLUMNS)), selection.near, selection.pair)
    recorded = _with_recorded(rows)
    rows = _prepared(_selected(rows, selection.period, None))
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


def _selected(rows: pa.Table, period: Period, pair: str | None) -> pa.Table:
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
        _millis(rows[name]) for name in ("enqueued_at", "received_at", "forwarded_at", "settled_at")
    )
    has_arrived = is_outcome("forwarded")
    nothing = pa.scalar(None, pa.int64())
    # The clock of the broker, which set the first of these times, and ours may differ a little.
    waited = pc.subtract(pc.max_element_wise(enqueued, pc.coalesce(forwarded, settled), skip_nulls=False), enqueued)
    carried = pc.subtract(forwarded, received)
    duplicate = pc.cast(pc.fill_null(rows["possible_duplicate"], False), pa.int64())
    size = pc.fill_null(pc.cast(rows["size"], pa.int64()), 0)
    columns = {
        **{name: rows[name] for name in ("pair", "queue", "sequence_number", "message_id", "outcome")},
        "enqueued_at": enqueued,
        "destination": _names(rows["destination"]),
        "renamed_to": _names(rows["renamed_to"]),
        "reason": pc.fill_null(rows["reason"], ""),
        "kind": _kinds(pc.fill_null(rows["reason"], "")),
        "settled": settled,
        "rank": pc.add(pc.multiply(has_arrived, 2), is_outcome("dead_lettered")),
        "size": size,
        "forwards": has_arrived,
        "possible_duplicate": duplicate,
        "waited": pc.if_else(pc.equal(has_arrived, 1), waited, nothing),
        "carried": pc.if_else(pc.equal(has_arrived, 1), carried, nothing),
        "minute": pc.divide(settled, 60_000),
        "hour": pc.divide(settled, 3_600_000),
        "transfers": _ones(rows),
        "bytes": size,
        "possible_duplicates": duplicate,
        "first": settled,
        "last": settled,
    }
    return pa.table(columns)


def _names(names: pa.ChunkedArray) -> pa.ChunkedArray:
    """Names of entities: capitals and slashes around them make no difference to Service Bus."""
    import pyarrow.compute as pc

    return pc.utf8_lower(pc.utf8_trim(pc.fill_null(names, ""), "/"))


def _kinds(reasons: pa.ChunkedArray) -> pa.ChunkedArray:
    """The first word of a reason if a colon follows it; else the whole reason without the parts that always differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.dictionary_encode(reasons).combine_chunks() if isinstance(reasons, pa.ChunkedArray) else reasons
    # Few reasons differ, so each is looked at once.
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
        "possible_duplicates": messages["possible_duplicate"],
        "repeated": repeated,
        "copies": pc.multiply(repeated, pc.subtract(messages["forwards"], 1)),
        "bytes": messages["size"],
        "longest_wait": messages["waited"],
        "longest_carry": messages["carried"],
    }
    return pa.table(columns)


def _with_durations(messages: pa.Table) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    def of(what: str) -> pa.Table:
        found = messages.filter(pc.is_valid(messages[what]))
        texts = pa.repeat(pa.scalar(what), found.num_rows)
        names = ["destination", "what", "millis", "messages"]
        return pa.table([found["destination"], texts, _cut(found[what]), _ones(found)], names)

    return pa.concat_tables([of("waited"), of("carried")])


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
        "last_tried": found["settled"],
        "example": found["reason"],
    }
    return pa.table(columns)


def _with_repeats(messages: pa.Table) -> pa.Table:
    import pyarrow.compute as pc

    names = ["pair", "queue", "sequence_number", "message_id", "destination", "forwards"]
    return messages.filter(pc.greater(messages["forwards"], 1)).select(names)


def _millis(times: pa.ChunkedArray) -> pa.ChunkedArray:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.cast(pc.cast(times, pa.timestamp("ms", tz="UTC"), safe=False), pa.int64())


def _ones(rows: pa.Table) -> pa.Array:
    import pyarrow as pa

    return pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
