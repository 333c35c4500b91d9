"""Filters that a read applies itself: exactly, or not at all."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.datasource.peek_read import Bounds, SequenceRange, Wanted, push, split_range


@dataclass(frozen=True)
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class GreaterThan(EqualTo):
    pass


class GreaterThanOrEqual(EqualTo):
    pass


class LessThan(EqualTo):
    pass


class LessThanOrEqual(EqualTo):
    pass


class In(EqualTo):
    pass


@dataclass(frozen=True)
class IsNotNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    child: Any


HOLDS = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
NUMBER, TIME = ("sequence_number",), ("enqueued_at",)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
comparisons = st.lists(st.tuples(st.sampled_from(list(HOLDS)), st.integers(0, 10)), max_size=4)


@given(comparisons, st.integers(0, 10))
def test_numbers_pass_that_pass_every_comparison(found: list[tuple[Any, int]], number: int) -> None:
    wanted, rest = push(Wanted(), [kind(NUMBER, value) for kind, value in found])
    assert rest == []
    assert wanted.enqueued is None
    assert (number in wanted.numbers) == all(HOLDS[kind](number, value) for kind, value in found)


@given(comparisons, st.none() | st.integers(0, 10))
def test_times_pass_in_the_same_way_and_no_time_passes_nothing(found: list[tuple[Any, int]], time: int | None) -> None:
    east = timezone(timedelta(hours=5))
    moments = [(kind, (EPOCH + timedelta(microseconds=value)).astimezone(east)) for kind, value in found]
    wanted, rest = push(Wanted(), [kind(TIME, moment) for kind, moment in moments])
    assert rest == []
    if wanted.enqueued is None:
        assert found == []
    else:
        expected = time is not None and all(HOLDS[kind](time, value) for kind, value in found)
        assert (time in wanted.enqueued) == expected


@pytest.mark.parametrize(
    "kept",
    [
        EqualTo(("subject",), "x"),
        EqualTo(("sequence_number", "inner"), 5),
        EqualTo(NUMBER, "5"),
        EqualTo(NUMBER, 5.0),
        EqualTo(NUMBER, None),
        EqualTo(NUMBER, True),
        In(NUMBER, (1, 2)),
        Not(EqualTo(NUMBER, 5)),
        LessThan(TIME, datetime(2026, 1, 1)),
        LessThan(TIME, 5),
        IsNotNull(("subject",)),
    ],
)
def test_a_filter_that_is_not_applied_exactly_stays_with_spark(kept: Any) -> None:
    wanted, rest = push(Wanted(), [IsNotNull(NUMBER), kept, GreaterThan(NUMBER, 3)])
    assert rest == [kept]
    assert rest[0] is kept
    assert wanted == Wanted(Bounds(low=4))


def test_only_rows_with_a_time_pass_where_one_must_be_there() -> None:
    wanted, _ = push(Wanted(), [IsNotNull(TIME)])
    assert wanted.enqueued is not None
    assert None not in wanted.enqueued
    assert 0 in wanted.enqueued


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.integers(1, 10**5))
def test_the_parts_of_a_range_are_the_range(first: int, length: int, size: int) -> None:
    parts = split_range(SequenceRange("q", first, first + length - 1), size)
    assert len(parts) == -(-length // size)
    assert all(1 <= part.last - part.first + 1 <= size for part in parts)
    assert (parts[0].first, parts[-1].last) == (first, first + length - 1)
    assert all(one.last + 1 == other.first for one, other in pairwise(parts))
