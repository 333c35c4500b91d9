"""What syphon costs on Service Bus, estimated before anything runs."""

from .estimate import (
    BILLED_OPERATIONS,
    LIST_PRICES,
    Charge,
    Prices,
    PricingTier,
    drain_cost,
    idle_cost,
    load_prices,
    namespace_cost,
)

__all__ = [
    "BILLED_OPERATIONS",
    "Charge",
    "LIST_PRICES",
    "Prices",
    "PricingTier",
    "drain_cost",
    "idle_cost",
    "load_prices",
    "namespace_cost",
]
