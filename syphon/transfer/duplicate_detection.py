"""Keeps a replay or an import from sending a message that the entity would accept and drop (S2).

An entity with duplicate detection accepts a message whose id it knows, and drops it: for the sender that looks like any
other message that was accepted. A replay would complete the dead letter, and the message would be lost. So a message
whose id may be known stays where it is, or goes out under a new id if the operator asks for that. Messages without an
id are never duplicates.

A transfer from the backlog to a destination needs no guard: the destination knows the id only if it has the message.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from syphon.amqp import Malformed
from syphon.backlog import (
    BrokerStamps,
    Restored,
    Unrestorable,
    UnrestorableReason,
    message_id_of,
    secondary_administration,
    with_message_id,
)
from syphon.config import PairSettings, Via
from syphon.model import EntityPath, NamespaceGone, NotAuthorized, SyphonError, TimeToLive, duration
from syphon.servicebus import Administration, AdministrationUnavailable, administration_of
from syphon.time_budget import DUPLICATE_WINDOW_WITHIN

from .route import Route

MARGIN = 600_000
"""Milliseconds that a message must be older than the window: 5 minutes for the longest lock, and 5 for the clocks."""
LONGEST_WINDOW = 7 * 24 * 3_600_000
"""The longest window that the service allows, in milliseconds."""


class DuplicateWindows:
    """For how long the entities of a namespace drop messages whose ids they know. It asks once for each entity.

    Only the Manage claim allows the question. Where there is no answer the window is not known, and that is never taken
    for "no duplicate detection".
    """

    def __init__(self, open_administration: Callable[[], Administration]) -> None:
        self.trouble: SyphonError | None = None
        """Why a window is not known; the first reason, if there are several."""
        self._open = open_administration
        self._administration: Administration | None = None
        self._is_useless = False
        """Whether the namespace does not answer us: a question for each entity would cost a timeout for each."""
        self._known: dict[EntityPath, int | None] = {}

    @classmethod
    def of_backlog(cls, pair: PairSettings) -> Self:
        return cls(lambda: secondary_administration(pair, timeout=DUPLICATE_WINDOW_WITHIN))

    @classmethod
    def of_destinations(cls, pair: PairSettings) -> Self:
        return cls(lambda: administration_of(pair.primary, Via.ADMIN, "", DUPLICATE_WINDOW_WITHIN))

    @property
    def is_hidden(self) -> bool:
        """Whether our credentials may not ask: the Manage claim is missing."""
        return isinstance(self.trouble, NotAuthorized)

    def of(self, entity: EntityPath) -> int | None:
        """The window in milliseconds, 0 if the entity detects no duplicates; None if it is not known."""
        if entity not in self._known:
            self._known[entity] = None if self._is_useless else self._ask(entity)
        return self._known[entity]

    def _ask(self, entity: EntityPath) -> int | None:
        try:
            if self._administration is None:
                self._administration = self._open()
            return self._administration.duplicate_window(entity.name)
        except SyphonError as error:
            self.trouble = self.trouble or error
            self._is_useless = isinstance(error, NotAuthorized | NamespaceGone | AdministrationUnavailable)
            return None

    def close(self) -> None:
        if self._administration is not None:
            self._administration.close()


@dataclass(frozen=True, slots=True)
class DuplicateGuard:
    """What is done about ids that an entity may know."""

    windows: DuplicateWindows
    by_age: bool = False
    """The messages come from the entity that they go to, a backlog queue: it learned their ids when they came there.

    Otherwise nothing says when the entity may have learned an id.
    """
    new_ids: bool = False
    """Messages that might be dropped get a new message id."""
    assumes_none: bool = False
    """An entity about which our credentials may not ask detects no duplicates: the operator says so. A question without
    an answer is another matter: the next answer may say that it does."""
    enqueued_at: dict[tuple[EntityPath, str], int] = field(default_factory=dict)
    """When each id last came into its entity, as far as was seen. Different messages may have the same id, so all
    messages are read before the first one is sent."""

    def on(self, route: Route) -> Route:
        """The route for one pass over the messages: it sends nothing that might be dropped."""
        sent: set[tuple[EntityPath, str]] = set()
        """The ids that were sent where duplicates are, or may be, detected."""
        replaced: dict[str, str] = {}

        def restore(payload: bytes, *, enqueued_at: int | None, now: int, ttl: TimeToLive) -> Restored | Unrestorable:
            made = route.restore(payload, enqueued_at=enqueued_at, now=now, ttl=ttl)
            if isinstance(made, Unrestorable) or route.objection(made.destination) is not None:
                return made
            entity = route.rename.actual(made.destination)
            window = self.windows.of(entity)
            if window == 0 or (window is None and self.assumes_none and self.windows.is_hidden):
                return made
            try:
                found = message_id_of(made.payload)
            except Malformed as error:
                text = f"The message is not well-formed AMQP 1.0: {error}."
                return Unrestorable(UnrestorableReason.MALFORMED, text)
            if found is None:
                return made
            message_id = str(found)
            if self._is_forgotten((entity, message_id), window, made.stamps, now):
                if (entity, message_id) not in sent:
                    sent.add((entity, message_id))
                    return made
                why = _same_id(entity)
            else:
                why = _not_known(entity) if window is None else _may_be_known(entity, window, self.by_age)
            if not self.new_ids:
                return Unrestorable(UnrestorableReason.DUPLICATE_DETECTION, why)
            new = str(uuid.uuid4())
            replaced[new] = message_id
            changed = with_message_id(made.payload, new)
            return made._replace(payload=changed, message_id=new, size=len(changed))

        return dataclasses.replace(route, restore=restore, replaced_ids=replaced)

    def _is_forgotten(
        self, identity: tuple[EntityPath, str], window: int | None, stamps: BrokerStamps, now: int
    ) -> bool:
        """Whether the entity has forgotten the id by now; a window that is not known is as long as one can be."""
        if not self.by_age or not stamps.enqueued_at:
            return False
        last = self.enqueued_at[identity] = max(self.enqueued_at.get(identity, 0), stamps.enqueued_at)
        # The lock ends by the service's clock, at most 5 minutes from now: our own clock may be hours ahead.
        by_now = min(now, stamps.locked_until or now)
        return by_now > last + (LONGEST_WINDOW if window is None else window) + MARGIN


def _may_be_known(entity: EntityPath, window: int, by_age: bool) -> str:
    if by_age:
        known_for = duration((window + MARGIN) / 1000)
        return (
            f"'{entity.name}' detects duplicates and may know the message id for {known_for} after the message came "
            "there: it would accept the message and drop it. Retry after that time, or use --new-ids, "
            "which gives it a new message id."
        )
    return (
        f"'{entity.name}' detects duplicates (window {duration(window / 1000)}) and may know the message id: it would "
        "accept the message and drop it. --new-ids gives it a new message id."
    )


def _same_id(entity: EntityPath) -> str:
    return (
        f"'{entity.name}' detects duplicates, and a message before this one has the same message id: it would accept "
        "the message and drop it. --new-ids gives it a new message id."
    )


def _not_known(entity: EntityPath) -> str:
    return (
        f"Cannot tell whether '{entity.name}' detects duplicates; it might accept the message and drop it. Use "
        "credentials with the Manage claim, or `syphon dead-letters` with --new-ids, which gives it a new message id, "
        "or with --assume-no-duplicate-detection if you know that there is none."
    )
