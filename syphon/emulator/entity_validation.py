"""Checks the entities of a settings file by the rules of the service, and reports each fault at its field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, TypeVar

from syphon.yaml_settings import Mistake

from .broker import (
    QueueDescription,
    Refusal,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    Tier,
    TopicDescription,
    validate,
)

Description = TypeVar("Description", QueueDescription, TopicDescription, SubscriptionDescription, RuleDescription)


def refusals(description: Description, tier: Tier | None = None) -> Iterator[Mistake]:
    """Yields what the service refuses in a description, each fault at the field that causes it.

    The broker's `validate` stops at the first refusal. So this sets the field whose default changes the answer to that
    default, and validates again. Without a tier, only faults that every tier refuses count.
    """
    if tier is None:
        premium = {fault.at for fault in refusals(description, Tier.PREMIUM)}
        yield from (fault for fault in refusals(description, Tier.STANDARD) if fault.at in premium)
        return
    while (refusal := _refusal(description, tier)) is not None:
        reason, _, remedy = refusal.removeprefix("SubCode=40000. ").partition(": ")
        corrected = _with_default(description, tier, refusal)
        yield Mistake(
            "is not what Service Bus takes", (remedy or reason).rstrip("."), (corrected[0],) if corrected else ()
        )
        if corrected is None:
            return
        description = corrected[1]


def sql_faults(expression: str | None, at: tuple[str, ...]) -> Iterator[Mistake]:
    """Yields the fault of an SQL filter that cannot be parsed."""
    yield from _parsing_faults(SqlFilter, expression, "is not a filter", at)


def action_faults(expression: str | None, at: tuple[str, ...]) -> Iterator[Mistake]:
    """Yields the fault of an SQL action that cannot be parsed."""
    yield from _parsing_faults(SqlAction, expression, "is not an action", at)


def _parsing_faults(
    kind: type[SqlFilter] | type[SqlAction], expression: str | None, fault: str, at: tuple[str, ...]
) -> Iterator[Mistake]:
    try:
        if expression is not None:
            kind(expression)
    except Refusal as refusal:
        yield Mistake(fault, refusal.description.removeprefix("SubCode=40000. ").rstrip("."), at)


def _refusal(description: Description, tier: Tier) -> str | None:
    try:
        validate(description, tier)
    except Refusal as refusal:
        return refusal.description
    return None


def _with_default(description: Description, tier: Tier, refusal: str) -> tuple[str, Description] | None:
    """Finds the field whose default changes the answer of the service, and the description with that default.

    Of two fields that exclude each other the later one is reported: `forward_to` and not `requires_session`.
    """
    for field in reversed(dataclasses.fields(description)):
        if field.default is dataclasses.MISSING and field.name != "name":
            continue
        harmless: Any = "any-name" if field.name == "name" else field.default
        changed = dataclasses.replace(description, **{field.name: harmless})
        if _refusal(changed, tier) != refusal:
            return field.name, changed
    return None
