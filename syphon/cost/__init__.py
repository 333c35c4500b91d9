"""."""

from .estimate import BILLED_OPERATIONS, Charge, PricingTier, drain_cost, idle_cost, namespace_cost
from .prices import LIST_PRICES, Prices, load_prices

__all__ = [
    "Charge",
    "LIST_PRICES",
    "Prices",
    "BILLED_OPERATIONS",
    "PricingTier",
    "drain_cost",
    "idle_cost",
    "load_prices",
    "namespace_cost",
]
