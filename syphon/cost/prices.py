"""The price file: what Service Bus costs, with its date. One comes with the package; the operator may have another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from syphon.yaml_settings import Mistake, Settings, read, together, validate

LIST_PRICES = Path(__file__).with_name("prices.yaml")

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class PriceStep(Settings):
    """What operations cost up to a number of them in a month; without a number, all above."""

    up_to: Annotated[int, Field(ge=1)] | None = None
    per_million: Amount


def _steps_rise(steps: Any) -> Iterator[Mistake]:
    limits = [_end(step) for step in steps] if isinstance(steps, list) else []
    for index, limit in enumerate(limits):
        last = index == len(limits) - 1
        if last and limit is not None:
            yield Mistake("has an end", "leave it out of the last step, which is for all above", (index, "up_to"))
        elif not last and limit is None:
            yield Mistake("has no up_to", "only the last step is without one", (index,))
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


class Prices(Settings):
    """All prices, in one currency."""

    as_of: Text
    """When they were looked up."""
    currency: Text
    source: Text | None = None
    standard: StandardPrices
    premium: PremiumPrices


def load_prices(path: Path = LIST_PRICES) -> Prices:
    """Read a price file. Raises SettingsError with all that is wrong with it."""
    return validate(read(path), Prices)
