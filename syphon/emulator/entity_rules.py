"""What the service refuses in an entity's description, told field by field for who wrote it down."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

from syphon.yaml_settings import Mistake

from .broker.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    Tier,
    TopicDescription,
    validate,
)
from .broker.filters import SqlFilter
from .broker.refusals import Refusal

Description = TypeVar("Description", QueueDescription, TopicDescription, SubscriptionDescription, RuleDescription)


def refusals(description: Description, tier: Tier | None = None) -> Iterator[Mistake]:
    """What the service refuses in a description, each fault at the field that is to blame.

    The broker's `validate` stops at the first refusal. So the field whose default would have changed its answer is set
    to that default, and the question is asked again. Without a tier only what no tier takes counts.
    """
    if tier is None:
        premium = {fault.at for fault in refusals(description, Tier.PREMIUM)}
        yield from (fault for fault in refusals(description, Tier.STANDARD) if fault.at in premium)
        return
    while (refusal := _refusal(description, tier)) is not None:
        reason, _, remedy = refusal.removeprefix("SubCode=40000. ").partition(": ")
        mended = _mended(description, tier, refusal)
        yield Mistake("is not what Service Bus takes", (remedy or reason).rstrip("."), (mended[0],) if mended else ())
        if mended is None:
            return
        description = mended[1]


def sql_faults(expression: str | None, at: tuple[str, ...]) -> Iterator[Mistake]:
    """Whether an SQL filter can be understood."""
    try:
        if expression is not None:
            SqlFilter(expression)
    except Refusal as refusal:
        yield Mistake("is not a filter", refusal.description.removeprefix("SubCode=40000. ").rstrip("."), at)


def _refusal(description: Description, tier: Tier) -> str | None:
    try:
        validate(description, tier)
    except Refusal as refusal:
        return refusal.description
    return None


def _mended(description: Description, tier: Tier, refusal: str) -> tuple[str, Description] | None:
    """The field whose default changes the service's answer, and the description with that default.

    Of two that do not go together the later one gives way: `forward_to` rather than `requires_session`.
    """
    for field in reversed(dataclasses.fields(description)):
        if field.default is dataclasses.MISSING and field.name != "name":
            continue
        harmless: Any = "any-name" if field.name == "name" else field.default
        changed = dataclasses.replace(description, **{field.name: harmless})
        if _refusal(changed, tier) != refusal:
            return field.name, changed
    return None
