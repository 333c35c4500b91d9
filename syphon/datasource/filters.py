"""The filters that a read applies itself: bounds of the sequence number, and of the time of enqueuing.

A filter counts as applied only if it is applied exactly. All others stay with Spark, which then filters the rows that
it gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Bounds:
    """Whole numbers from `low` to `high`, both included."""

    low: int = _LOWEST
    high: int = _HIGHEST

    def narrowed(self, comparison: str, value: int) -> Bounds | None:
        """The part of the bounds in which a comparison holds; None for a comparison that is not known here."""
        match comparison:
            case "EqualTo":
                return Bounds(max(self.low, value), min(self.high, value))
            case "GreaterThan":
                return Bounds(max(self.low, value + 1), self.high)
            case "GreaterThanOrEqual":
                return Bounds(max(self.low, value), self.high)
            case "LessThan":
                return Bounds(self.low, min(self.high, value - 1))
            case "LessThanOrEqual":
                return Bounds(self.low, min(self.high, value))
        return None

    def __contains__(self, value: int | None) -> bool:
        return value is not None and self.low <= value <= self.high


@dataclass(frozen=True)
class Wanted:
    """The messages that a read is asked for."""

    numbers: Bounds = Bounds()
    enqueued: Bounds | None = None
    """Microseconds since 1970; None if every time will do, and also none at all."""

    def with_filter(self, found: Any) -> Wanted | None:
        """The messages that also pass a filter of Spark's; None if the filter cannot be applied exactly."""
        column = getattr(found, "attribute", None)
        comparison = type(found).__name__
        if column == ("sequence_number",):
            if comparison == "IsNotNull":
                return self  # every message has one
            value = getattr(found, "value", None)
            if type(value) is int and (numbers := self.numbers.narrowed(comparison, value)) is not None:
                return Wanted(numbers, self.enqueued)
        elif column == ("enqueued_at",):
            times = self.enqueued or Bounds()
            if comparison == "IsNotNull":
                return Wanted(self.numbers, times)
            micros = _micros(getattr(found, "value", None))
            if micros is not None and (narrowed := times.narrowed(comparison, micros)) is not None:
                return Wanted(self.numbers, narrowed)
        return None


def push(wanted: Wanted, filters: Iterable[Any]) -> tuple[Wanted, list[Any]]:
    """The messages that pass all filters that can be applied, and the filters that stay with Spark."""
    rest = []
    for each in filters:
        narrowed = wanted.with_filter(each)
        if narrowed is None:
            rest.append(each)
        else:
            wanted = narrowed
    return wanted, rest


def _micros(value: object) -> int | None:
    # A time without a zone would depend on the session's.
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND
