"""."""

from .estimate import SHARES, Charge, Tier, drain_cost, idle_cost, namespace_cost
from .prices import LIST_PRICES, Prices, load_prices

__all__ = [
    "Charge",
    "LIST_PRICES",
    "Prices",
    "SHARES",
    "Tier",
    "drain_cost",
    "idle_cost",
    "load_prices",
    "namespace_cost",
]
