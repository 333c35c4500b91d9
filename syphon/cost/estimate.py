"""Estimates what syphon costs from numbers alone: an idle month (S1), a drain (S7), an outage; with the price file.

A charge is a range. A subscription includes a number of free operations each month, and syphon does not know how many
of them others use: `least` assumes that all are free, `most` that none are.

The package contains a price file with its date; the operator may use another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from syphon.model import RetryPolicy
from syphon.yaml_settings import Mistake, Settings, read, together, validate

LONG_POLL = 900
"""Seconds that one receive waits at an idle queue (S1)."""
CHUNK = 64 * 1024
"""Bytes of a message in one billed operation; a larger message counts as several."""
PEEK_PAGE = 250
"""Messages that one peek returns at most."""
DESTINATION_RETRIES = RetryPolicy(first=30, longest=120)
"""Attempts to reach a destination that is missing, disabled or full (S9)."""
PING_EVERY = 60
"""Seconds between two pings of an entity that is failed over (F5)."""
CROSSINGS = 2
"""How often a message crosses from one region to the other on its way through the backlog."""
HOUR = 3600
PEEK_EVERY = 10
"""Seconds between two peeks of a worker at the oldest message of a queue while the primary is unreachable (D16)."""


@dataclass(frozen=True)
class BilledOperation:
    """One of the four operations that each message needs (S7), and the party that causes it."""

    what: str
    whose: str


BILLED_OPERATIONS = (
    BilledOperation("send to the backlog", "sender"),
    BilledOperation("receive from the backlog", "syphon"),
    BilledOperation("send to the primary", "syphon"),
    BilledOperation("receive from the primary", "receiver"),
)


@dataclass(frozen=True)
class UnavailableDestination:
    """The operations of all workers while one destination is unavailable, and all queues hold messages for it."""

    first_receives: int
    """Each message once, before it is deferred; and once more for the ring of each queue."""
    browse_peeks: int
    """To scan each queue once, page by page, for deferred messages."""
    pings: int
    """A ping, whenever a back-off is over."""

    @property
    def operations(self) -> int:
        return self.first_receives + self.browse_peeks + self.pings


def idle_receives(queues: int, days: int, long_poll: int = LONG_POLL, workers: int = 1) -> int:
    """The receives of listening to empty queues: 10 queues and 30 days are 28,800 for each worker (S1)."""
    return workers * -(-queues * days * 86_400 // long_poll)


def chunks_of(message_bytes: int) -> int:
    return max(1, -(-message_bytes // CHUNK))


def drain_operations(messages: int, message_bytes: int = 0) -> int:
    """The four operations of all messages."""
    return len(BILLED_OPERATIONS) * messages * chunks_of(message_bytes)


def ring_receives(rings: int, message_bytes: int = 0, workers: int = 1) -> int:
    """The receives of doorbells: a message that rings is received and released, and then received by a job.

    With several workers the released message may ring at each of them.
    """
    return rings * workers * chunks_of(message_bytes)


def destination_pings_within(seconds: int) -> int:
    """How often an unavailable destination is pinged: at once, and after back-offs that double up to the longest."""
    pings, moment = 0, 0.0
    while moment < seconds:
        moment += DESTINATION_RETRIES.delay(pings)
        pings += 1
    return pings


def pings_within(hours: float, entities: int = 1, senders: int = 1, interval: float = PING_EVERY) -> int:
    """The pings in an outage: each process that sends pings each entity that is failed over (F5)."""
    return senders * entities * int(hours * HOUR // interval)


def peeks_within(hours: float, queues: int, workers: int = 1) -> int:
    """The peeks while the primary is unreachable: each worker peeks at one message of each queue, and receives none."""
    return workers * queues * int(hours * HOUR // PEEK_EVERY)


def crossing_bytes(messages: int, message_bytes: int) -> int:
    """The bytes that cross between the regions: from the sender to the secondary, and back to the primary.

    It makes no difference in which of the two regions syphon runs.
    """
    return CROSSINGS * messages * message_bytes


def unavailable_destination(queues: int, messages: int, hours: float, workers: int = 1) -> UnavailableDestination:
    """What a destination costs that is unavailable for `hours`, with `messages` for it in equal parts in all queues."""
    seconds = round(hours * HOUR)
    each = -(-messages // queues)
    return UnavailableDestination(
        first_receives=messages + workers * queues if messages else 0,
        browse_peeks=workers * queues * (1 + each // PEEK_PAGE) if messages else 0,
        pings=workers * destination_pings_within(seconds) if messages else 0,
    )


LIST_PRICES = Path(__file__).with_name("prices.yaml")
MILLION, GIGABYTE = 1_000_000, 2**30


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class PriceStep(Settings):
    """The price of operations up to a number of them in a month; without a number, of all above."""

    up_to: Annotated[int, Field(ge=1)] | None = None
    per_million: Amount


def _steps_rise(steps: Any) -> Iterator[Mistake]:
    limits = [_end(step) for step in steps] if isinstance(steps, list) else []
    for index, limit in enumerate(limits):
        last = index == len(limits) - 1
        if last and limit is not None:
            yield Mistake(
                "is not allowed in the last step",
                "remove it: the last step is for all operations above",
                (index, "up_to"),
            )
        elif not last and limit is None:
            yield Mistake("has no up_to", "add it: only the last step has none", (index,))
        elif not last and index > 0 and isinstance(limit, int) and limit <= (limits[index - 1] or 0):
            yield Mistake("is not above the step before", "write the steps in rising order", (index, "up_to"))


def _end(step: Any) -> Any:
    return step.get("up_to") if isinstance(step, dict) else getattr(step, "up_to", None)


class StandardPrices(Settings):
    base_per_month: Amount
    included_operations: Annotated[int, Field(ge=0)]
    operations: Annotated[list[PriceStep], together(_steps_rise), Field(min_length=1)]


class PremiumPrices(Settings):
    unit_per_hour: Amount


class BandwidthPrices(Settings):
    between_regions_per_gb: Amount


class Prices(Settings):
    """All prices, in one currency."""

    as_of: Text
    """The date of the prices."""
    currency: Text
    source: Text | None = None
    standard: StandardPrices
    premium: PremiumPrices
    bandwidth: BandwidthPrices | None = None


def load_prices(path: Path = LIST_PRICES) -> Prices:
    """Reads a price file. Raises SettingsError with all problems."""
    return validate(read(path), Prices)


class PricingTier(StrEnum):
    STANDARD = "standard"
    PREMIUM = "premium"


@dataclass(frozen=True)
class Charge:
    """A number of operations, and what they cost."""

    operations: int
    least: float
    most: float


def idle_cost(
    queues: int, days: int, prices: Prices, tier: PricingTier, long_poll: int = LONG_POLL, workers: int = 1
) -> Charge:
    return charge_of(idle_receives(queues, days, long_poll, workers), prices, tier)


def drain_cost(messages: int, prices: Prices, tier: PricingTier, message_bytes: int = 0, bells: int = 0) -> Charge:
    """What messages cost, with the receives of doorbells beside them; a drain has no doorbell."""
    return charge_of(drain_operations(messages, message_bytes) + bells, prices, tier)


def namespace_cost(days: int, prices: Prices, tier: PricingTier, units: int = 1) -> float:
    """The price without any message: the base charge of a month, or messaging units by the hour."""
    if tier is PricingTier.PREMIUM:
        return units * days * 24 * prices.premium.unit_per_hour
    return prices.standard.base_per_month


def bandwidth_cost(crossing: int, prices: Prices) -> float | None:
    """What bytes that leave a region cost; None if the price file does not say it."""
    return None if prices.bandwidth is None else crossing / GIGABYTE * prices.bandwidth.between_regions_per_gb


def charge_of(operations: int, prices: Prices, tier: PricingTier) -> Charge:
    """What a number of operations costs."""
    if tier is PricingTier.PREMIUM:
        return Charge(operations, 0.0, 0.0)
    free = prices.standard.included_operations
    return Charge(operations, _billed(0, operations, prices), _billed(free, operations, prices))


def _billed(used: int, operations: int, prices: Prices) -> float:
    """The price of operations in a month that has had `used` operations already."""
    total, begin = 0.0, prices.standard.included_operations
    for step in prices.standard.operations:
        end = used + operations if step.up_to is None else min(step.up_to, used + operations)
        total += max(0, end - max(begin, used)) * step.per_million / MILLION
        begin = max(begin, step.up_to or begin)
    return total
