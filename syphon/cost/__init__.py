"""What syphon costs on Service Bus, estimated before anything runs."""

from .estimate import (
    LIST_PRICES,
    Charge,
    Prices,
    PricingTier,
    charge_of,
    drain_cost,
    idle_cost,
    load_prices,
    namespace_cost,
)
from .operations import BILLED_OPERATIONS, DeadDestination, dead_destination, drain_operations, ring_receives

__all__ = [
    "BILLED_OPERATIONS",
    "Charge",
    "DeadDestination",
    "LIST_PRICES",
    "Prices",
    "PricingTier",
    "charge_of",
    "dead_destination",
    "drain_cost",
    "drain_operations",
    "idle_cost",
    "load_prices",
    "namespace_cost",
    "ring_receives",
]
