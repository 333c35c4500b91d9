"""Routes: what the pump sends for a message that it has received, and where it may send it.

There is one for the messages of a backlog queue, two for dead letters: back into the backlog queue, or to the
destination (X4), and one for moves, from any queue to any entity (X12).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from syphon.backlog import (
    NO_EDIT,
    LetterEdit,
    NotPutBack,
    Restored,
    Unrestorable,
    UnrestorableReason,
    carried_over,
    not_allowed,
    not_allowed_text,
    put_back,
    restore,
    stamps_of,
    with_message_id,
)
from syphon.config import PairSettings
from syphon.model import DESTINATION_NOT_ALLOWED, EntityPath, PathPatterns, Renames, TimeToLive


class Restore(Protocol):
    """Makes the message to send out of the message that was received: `syphon.backlog.restoration`, or one like it."""

    def __call__(
        self, payload: bytes, *, enqueued_at: int | None, now: int, ttl: TimeToLive
    ) -> Restored | Unrestorable: ...


@dataclass(frozen=True, slots=True)
class Route:
    """How a message gets from its queue to its destination."""

    restore: Restore
    objection: Callable[[EntityPath], str | None]
    """Why nothing may be sent to a path (D13); None if it may."""
    ttl: TimeToLive = TimeToLive.RESTORE
    rename: Renames = field(default_factory=Renames)
    """Where messages go instead of the destinations that they name."""
    replaced_ids: dict[str, str] = field(default_factory=dict)
    """The message ids that this route has replaced, by the new ones."""

    def preview(self, payload: bytes, now: int) -> Restored | str:
        """What would be sent for a message, or why it cannot take this route. Nothing is sent."""
        restored = self.restore(payload, enqueued_at=None, now=now, ttl=self.ttl)
        if isinstance(restored, Unrestorable):
            return f"{restored.reason.value}: {restored.description}"
        objection = self.objection(restored.destination)
        if objection is None:
            return restored
        return f"{DESTINATION_NOT_ALLOWED}: {not_allowed_text(restored.destination, objection)}"

    def replaced_id(self, restored: Restored) -> str | None:
        """The message id that a message had, if this route has given it a new one."""
        return self.replaced_ids.get(str(restored.message_id))


def from_backlog(ttl: TimeToLive, allow: PathPatterns, rename: Renames) -> Route:
    """The route of a backlog message: restored, to its destination, if the operator allows it (D13)."""
    # `restore` itself: this runs for every message, and a function around it would cost a Python frame.
    return Route(restore, lambda path: not_allowed(path, allow), ttl, rename)


def route_to_backlog(queue: str, edit: LetterEdit = NO_EDIT) -> Route:
    """The route of a dead letter back into its backlog queue; from there the syphon forwards it."""
    destination = EntityPath.of(queue)

    def put_into_queue(payload: bytes, **_: object) -> Restored | Unrestorable:
        try:
            copy = put_back(payload, edit)
        except NotPutBack as error:
            return Unrestorable(UnrestorableReason.MALFORMED, str(error))
        return Restored(copy, destination, None, None, None, len(copy), stamps_of(payload))

    return Route(put_into_queue, lambda _: None)


def route_to_destination(pair: PairSettings, ttl: TimeToLive, edit: LetterEdit = NO_EDIT) -> Route:
    """The route of a dead letter to its destination: restored like a backlog message, and only where one may go (D13).

    `edit` may give it another destination than the one that it names.
    """

    def restore_dead_letter(
        payload: bytes, *, enqueued_at: int | None, now: int, ttl: TimeToLive
    ) -> Restored | Unrestorable:
        stamps = stamps_of(payload)
        try:
            copy = put_back(payload, edit)
        except NotPutBack as error:
            return Unrestorable(UnrestorableReason.MALFORMED, str(error))
        restored = restore(copy, enqueued_at=enqueued_at or stamps.enqueued_at or None, now=now, ttl=ttl)
        return restored if isinstance(restored, Unrestorable) else restored._replace(stamps=stamps)

    allow, rename = pair.destinations.allowed, pair.destinations.renames
    return Route(restore_dead_letter, lambda found: not_allowed(found, allow), ttl, rename)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """What a move does with the messages of its source: it carries each to one target, as it is or edited (X12)."""

    source: str
    """Host and path of the source: with what a message had there they make its new id."""
    target: EntityPath
    edit: LetterEdit = NO_EDIT
    new_ids: bool = False
    """Whether messages get new ids. A message gets the same one however often it is sent: duplicate detection drops a
    copy that a lost answer made."""
    are_dead_letters: bool = False
    """Whether the source is a dead-letter queue: then the reason that its owner wrote into a message stays behind."""

    def route(self) -> Route:
        """The route of one pump."""
        replaced: dict[str, str] = {}

        def carry(payload: bytes, *, enqueued_at: int | None, now: int, ttl: TimeToLive) -> Restored | Unrestorable:  # noqa: ARG001
            made = carried_over(payload, self.target, self.edit, are_dead_letters=self.are_dead_letters)
            if not self.new_ids or isinstance(made, Unrestorable) or made.message_id is None:
                return made
            old, stamps = str(made.message_id), made.stamps
            # The number alone is not enough: a source that was deleted and created again counts from 1 again.
            place = f"sb://{self.source}#{stamps.sequence_number}@{stamps.enqueued_at}#{old}"
            new = str(uuid.uuid5(uuid.NAMESPACE_URL, place))
            replaced[new] = old
            changed = with_message_id(made.payload, new)
            return made._replace(payload=changed, message_id=new, size=len(changed))

        return Route(carry, lambda _: None, replaced_ids=replaced)
