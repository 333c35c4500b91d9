"""The settings of destinations: which are allowed (D13), which are renamed, and which errors are permanent (S4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from syphon.model import (
    DestinationDisabled,
    DestinationMissing,
    EntityPath,
    MessageTooLarge,
    NotAllowedByEntity,
    PathPatterns,
    Renames,
    SyphonError,
    never_a_destination,
)
from syphon.yaml_settings import Mistake, Settings, given

Text = Annotated[str, Field(min_length=1)]


class PermanentError(StrEnum):
    """Errors of a destination that may be permanent for a message (S4)."""

    ENTITY_NOT_FOUND = "entity-not-found"
    ENTITY_DISABLED = "entity-disabled"
    MESSAGE_TOO_LARGE = "message-too-large"
    NOT_ALLOWED = "not-allowed"

    @property
    def error(self) -> type[SyphonError]:
        return _ERRORS[self]


_ERRORS: dict[PermanentError, type[SyphonError]] = {
    PermanentError.ENTITY_NOT_FOUND: DestinationMissing,
    PermanentError.ENTITY_DISABLED: DestinationDisabled,
    PermanentError.MESSAGE_TOO_LARGE: MessageTooLarge,
    PermanentError.NOT_ALLOWED: NotAllowedByEntity,
}


class DestinationSettings(Settings):
    """Which destinations are allowed (D13), and which errors are permanent (S4)."""

    allow: Annotated[list[Text], Field(min_length=1)] = Field(default_factory=lambda: ["*"])
    """Patterns: `*` is any text, slashes included. Case is ignored, as in Service Bus."""
    rename: dict[Text, Text] = Field(default_factory=dict)
    """Where messages go instead of the destinations that they name: whole names, no patterns, one step only.

    `allow` is about what messages name. The new name needs no entry in it: the operator has written it down here.
    """
    permanent_errors: frozenset[PermanentError] = frozenset(
        (PermanentError.MESSAGE_TOO_LARGE, PermanentError.NOT_ALLOWED)
    )
    """A message that gets one of these is dead-lettered; with any other error it stays in the backlog and is retried.

    A missing or disabled entity is not among them: the sender failed over because of exactly that, and the entity may
    come back.
    """

    @property
    def allowed(self) -> PathPatterns:
        return PathPatterns.of(self.allow)

    @property
    def renames(self) -> Renames:
        return Renames.of(self.rename)

    def permanent(self) -> frozenset[type[SyphonError]]:
        return frozenset(kind.error for kind in self.permanent_errors)

    def giving_up(self, errors: Iterable[PermanentError]) -> DestinationSettings:
        """These settings, with more errors that are permanent."""
        return self.model_copy(update={"permanent_errors": self.permanent_errors | frozenset(errors)})


_LONGEST_NAME = 260
"""Characters of an entity's name, at most."""


def _too_long(path: EntityPath) -> str | None:
    return f"it has more than {_LONGEST_NAME} characters" if len(path.name) > _LONGEST_NAME else None


def check_renames(destinations: Any) -> Iterator[Mistake]:
    renames, allow = given(destinations, "rename"), given(destinations, "allow")
    if not isinstance(renames, dict):
        return
    texts = [(name, actual) for name, actual in renames.items() if isinstance(name, str) and isinstance(actual, str)]
    allowed = PathPatterns.of(allow) if isinstance(allow, list) and all(isinstance(a, str) for a in allow) else None
    seen: dict[str, str] = {}
    for name, actual in texts:
        path, target, at = EntityPath.of(name), EntityPath.of(actual), ("rename", name)
        if any(mark in name for mark in "*?["):
            yield Mistake("is a pattern", "write the whole name of each destination", at)
        elif allowed is not None and not allowed.fit(path):
            yield Mistake("is renamed but not allowed, so it gets no messages", "add it to allow", at)
        if first := seen.get(path.key):
            yield Mistake(f"is the same entity as {first!r}", "keep one of them", at)
        seen[path.key] = name
        why = _too_long(target) or never_a_destination(target)
        if why is not None:
            yield Mistake(f"cannot be sent to {actual!r}: {why}", "name a queue or topic of the primary", at)
        elif target.key == path.key:
            yield Mistake("is renamed to itself", "remove it", at)
    for name, actual in texts:
        if (target := EntityPath.of(actual)).key in seen and target.key != EntityPath.of(name).key:
            remedy = "write the last name here: messages are renamed once"
            yield Mistake("is renamed to a destination that is itself renamed", remedy, ("rename", name))
