"""What syphon costs on Service Bus, estimated before anything runs."""

from .estimate import (
    LIST_PRICES,
    Charge,
    Prices,
    PricingTier,
    bandwidth_cost,
    charge_of,
    drain_cost,
    idle_cost,
    load_prices,
    namespace_cost,
)
from .operations import (
    BILLED_OPERATIONS,
    PING_EVERY,
    DeadDestination,
    crossing_bytes,
    dead_destination,
    drain_operations,
    pings_within,
    ring_receives,
)

__all__ = [
    "BILLED_OPERATIONS",
    "Charge",
    "DeadDestination",
    "LIST_PRICES",
    "PING_EVERY",
    "Prices",
    "PricingTier",
    "bandwidth_cost",
    "charge_of",
    "crossing_bytes",
    "dead_destination",
    "drain_cost",
    "drain_operations",
    "idle_cost",
    "load_prices",
    "namespace_cost",
    "pings_within",
    "ring_receives",
]
