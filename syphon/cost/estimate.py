"""What a syphon costs, worked out from numbers alone: an idle month (S1), and a drain (S7).

A charge is told as a range. A subscription has so many operations free each month, and nobody here knows how many of
them are used up by others: `least` is with all of them to spare, `most` with none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .prices import Prices

LONG_POLL = 900
"""Seconds one receive waits at an idle queue (S1)."""
CHUNK = 64 * 1024
"""Bytes of a message that make one billed operation; a larger message counts as several."""
MILLION = 1_000_000


class PricingTier(StrEnum):
    STANDARD = "standard"
    PREMIUM = "premium"


@dataclass(frozen=True)
class Charge:
    """So many operations, and what they cost."""

    operations: int
    least: float
    most: float


@dataclass(frozen=True)
class BilledOperation:
    """One of the four operations each message takes (S7), and on whose account it is."""

    what: str
    whose: str


BILLED_OPERATIONS = (
    BilledOperation("send to the backlog", "sender"),
    BilledOperation("receive from the backlog", "syphon"),
    BilledOperation("send to the primary", "syphon"),
    BilledOperation("receive from the primary", "receiver"),
)


def idle_receives(queues: int, days: int, long_poll: int = LONG_POLL) -> int:
    """What listening to empty queues takes: 10 queues and 30 days are 28,800 receives (S1)."""
    return -(-queues * days * 86_400 // long_poll)


def drain_operations(messages: int, message_bytes: int = 0) -> int:
    """All four operations of all messages."""
    return len(BILLED_OPERATIONS) * messages * max(1, -(-message_bytes // CHUNK))


def idle_cost(queues: int, days: int, prices: Prices, tier: PricingTier, long_poll: int = LONG_POLL) -> Charge:
    return _charge(idle_receives(queues, days, long_poll), prices, tier)


def drain_cost(messages: int, prices: Prices, tier: PricingTier, message_bytes: int = 0) -> Charge:
    return _charge(drain_operations(messages, message_bytes), prices, tier)


def namespace_cost(days: int, prices: Prices, tier: PricingTier, units: int = 1) -> float:
    """What is to be paid before the first message: the base charge of a month, or messaging units by the hour."""
    if tier is PricingTier.PREMIUM:
        return units * days * 24 * prices.premium.unit_per_hour
    return prices.standard.base_per_month


def _charge(operations: int, prices: Prices, tier: PricingTier) -> Charge:
    if tier is PricingTier.PREMIUM:
        return Charge(operations, 0.0, 0.0)
    free = prices.standard.included_operations
    return Charge(operations, _billed(0, operations, prices), _billed(free, operations, prices))


def _billed(used: int, operations: int, prices: Prices) -> float:
    """What operations cost on top of those that the month has seen already."""
    total, begin = 0.0, prices.standard.included_operations
    for step in prices.standard.operations:
        end = used + operations if step.up_to is None else min(step.up_to, used + operations)
        total += max(0, end - max(begin, used)) * step.per_million / MILLION
        begin = max(begin, step.up_to or begin)
    return total
