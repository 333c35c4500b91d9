"""Which transfers a report is about: those of a period, and of one pair or of all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from .report import Period
from .rows import EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

LONGEST_ATTEMPT = timedelta(days=2)
"""Longer than any attempt: a task lives no longer than its lease, and a lease is at most an hour."""


@dataclass(frozen=True)
class Selection:
    """The transfers that a report is about: those of a period and of a pair, or of all."""

    period: Period
    pair: str | None = None

    @property
    def near(self) -> Period:
        """The period in which the attempts that ended within the selected one may have settled messages."""
        since, until = self.period.since, self.period.until
        return Period(since and since - LONGEST_ATTEMPT, until and until + LONGEST_ATTEMPT)


def micros(when: datetime) -> int:
    """Microseconds since 1970."""
    return (when - EPOCH) // timedelta(microseconds=1)


def within(times: pa.ChunkedArray, period: Period) -> pa.ChunkedArray:
    """Which of these times are in the period."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.cast(pc.cast(times, pa.timestamp("us", tz="UTC"), safe=False), pa.int64())
    found = pc.is_valid(numbers)
    if period.since is not None:
        found = pc.and_(found, pc.greater_equal(numbers, micros(period.since)))
    if period.until is not None:
        found = pc.and_(found, pc.less(numbers, micros(period.until)))
    return pc.fill_null(found, False)
