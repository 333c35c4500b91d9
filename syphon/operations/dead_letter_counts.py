"""Where the dead letters of a namespace are: its queues and subscriptions that have some, the most first (X4)."""

from __future__ import annotations

from typing import NamedTuple

from syphon.backlog import dead_letter_path, stamps_of
from syphon.config import SideSettings, Via
from syphon.servicebus import DataPlaneAdministration, administration_of, connected, peek


class EntityDeadLetters(NamedTuple):
    """The dead letters of one queue or subscription."""

    entity: str
    messages: int
    """By the namespace's own count, which may be wrong."""
    first_enqueued: int | None
    """The enqueued time of the first one, in milliseconds since 1970; None if a peek finds none."""


def dead_letters_of_namespace(side: SideSettings) -> list[EntityDeadLetters]:
    """The entities with dead letters, the most first, and of as many the oldest. It needs the Manage claim."""
    administration = administration_of(side, Via.ADMIN, "")
    assert isinstance(administration, DataPlaneAdministration)  # that is what Via.ADMIN means
    with administration:
        counts = {entity: count for entity, count in administration.dead_letter_counts().items() if count}
    if not counts:
        return []
    found = []
    with connected(side, next(iter(counts))) as connection:
        for entity, count in counts.items():
            first = next(peek(connection, dead_letter_path(entity), first=1), None)
            enqueued_at = None if first is None else stamps_of(first.payload).enqueued_at or None
            found.append(EntityDeadLetters(entity, count, enqueued_at))
    return sorted(found, key=lambda each: (-each.messages, each.first_enqueued or 0, each.entity))
