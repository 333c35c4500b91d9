"""What is counted in the rows of a ledger, with Arrow alone: no Spark, no files (X3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from syphon.ledger.aggregates import COLUMNS, count_rows
from syphon.ledger.rows import Period, Selection

NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)
EVERYTHING = Selection(Period())
TYPES: dict[str, pa.DataType] = {
    **dict.fromkeys(COLUMNS, pa.string()),
    **dict.fromkeys(("enqueued_at", "received_at", "forwarded_at", "settled_at"), pa.timestamp("us", tz="UTC")),
    **dict.fromkeys(("sequence_number", "size", "slot", "attempt"), pa.int64()),
    "possible_duplicate": pa.bool_(),
}


def rows(*changes: dict[str, Any]) -> pa.Table:
    """Rows of messages that were forwarded at noon, a second after they came into the backlog, with these changes."""
    usual: dict[str, Any] = {
        "pair": "contoso",
        "queue": "q",
        "message_id": "m",
        "destination": "orders",
        "enqueued_at": NOON - timedelta(seconds=1),
        "received_at": NOON,
        "forwarded_at": NOON,
        "settled_at": NOON,
        "size": 10,
        "outcome": "forwarded",
        "possible_duplicate": False,
        "job": "j",
        "slot": 0,
        "attempt": 0,
    }
    made = [{**dict.fromkeys(COLUMNS), **usual, "sequence_number": n, **each} for n, each in enumerate(changes, 1)]
    return pa.Table.from_pylist(made, pa.schema(TYPES.items()))


def test_transfers_are_counted_by_minute() -> None:  # X3
    """Exactly by minute, however long after 1970: a step of the report begins with the minute."""
    moments = [NOON - timedelta(milliseconds=1), NOON, NOON + timedelta(seconds=59, milliseconds=999)]
    steps = count_rows(rows(*({"settled_at": moment} for moment in moments)), EVERYTHING).steps
    noon = round(NOON.timestamp()) // 60
    assert sorted(zip(*(steps[name].to_pylist() for name in ("minute", "transfers", "bytes")), strict=True)) == [
        (noon - 1, 1, 10),
        (noon, 2, 20),
    ]


def test_transfers_are_counted_by_hour_and_destination() -> None:  # X3
    moments = [NOON - timedelta(milliseconds=1), NOON, NOON + timedelta(minutes=59)]
    hours = count_rows(rows(*({"settled_at": moment} for moment in moments)), EVERYTHING).hours
    noon = round(NOON.timestamp()) // 3600
    assert sorted(zip(hours["hour"].to_pylist(), hours["transfers"].to_pylist(), strict=True)) == [
        (noon - 1, 1),
        (noon, 2),
    ]


@pytest.mark.parametrize(
    ("waited", "counted"),
    [
        (0, 0),
        (9_999, 9_999),
        (10_000, 10_000),
        (12_345, 12_340),
        (99_999, 99_990),
        (123_456, 123_400),
        (86_399_999, 86_390_000),
        (1_234_567_890, 1_234_000_000),
    ],
)
def test_a_long_wait_is_counted_with_four_digits(waited: int, counted: int) -> None:  # X3
    enqueued = NOON - timedelta(milliseconds=waited)
    durations = count_rows(rows({"enqueued_at": enqueued}), EVERYTHING).durations.to_pylist()
    assert {found["what"]: found["millis"] for found in durations} == {"waited": counted, "in_flight": 0}


def test_a_message_counts_once_with_what_became_of_it_in_the_end() -> None:  # X3
    """It was left, and forwarded twice: one message, one copy too many."""
    later = NOON + timedelta(minutes=5)
    again = {"sequence_number": 7, "enqueued_at": NOON - timedelta(hours=1)}
    counted = count_rows(
        rows(
            {**again, "outcome": "left", "forwarded_at": None, "reason": "full"},
            {**again, "possible_duplicate": True},
            {**again, "settled_at": later, "forwarded_at": later},
        ),
        EVERYTHING,
    )
    (destination,) = counted.destinations.to_pylist()
    assert [destination[name] for name in ("messages", "forwarded", "left", "repeated", "copies")] == [1, 1, 0, 1, 1]
    assert (destination["possible_duplicates"], destination["longest_wait"]) == (1, 3_600_000)
    assert counted.reasons.num_rows == 0


def test_a_dead_letter_that_was_replayed_and_arrived_is_told_from_one_that_was_not() -> None:  # X3
    dead = {"outcome": "dead_lettered", "forwarded_at": None}
    found = count_rows(
        rows(
            {**dead, "message_id": "replayed"},
            {"message_id": "replayed"},
            {**dead, "message_id": "lost in another queue"},
            {"message_id": "lost in another queue", "queue": "other"},
            {**dead, "message_id": None},
            {"message_id": None},
        ),
        EVERYTHING,
    ).destinations
    assert [found[name].to_pylist() for name in ("dead_lettered", "arrived_otherwise")] == [[3], [1]]
    first = NOON - timedelta(seconds=1)
    assert found["first_enqueued"].to_pylist() == [round(first.timestamp() * 1000)]
