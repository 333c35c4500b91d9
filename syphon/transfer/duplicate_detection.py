"""Keeps a replay or an import from sending a message that the entity would accept and drop (S2).

An entity with duplicate detection accepts a message whose id it knows, and drops it: for the sender that looks like any
other message that was accepted. A replay would complete the dead letter, and the message would be lost. So a message
whose id may be known stays where it is, or goes out under a new id if the operator asks for that. Messages without an
id are never duplicates.

A transfer from the backlog to a destination has no guard: what its destination drops is a repeat, unless a sender uses
one id for different messages. `syphon check` names the destinations where that matters.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from syphon.amqp import Malformed
from syphon.backlog import (
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
    new_ids: bool = False
    """Messages that might be dropped get a new message id."""
    assumes_none: bool = False
    """An entity about which our credentials may not ask detects no duplicates: the operator says so. A question without
    an answer is another matter: the next answer may say that it does."""

    def on(self, route: Route) -> Route:
        """The route for one pass over the messages: it sends nothing that might be dropped."""
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
            if not self.new_ids:
                why = _not_known(entity) if window is None else _may_be_known(entity, window)
                return Unrestorable(UnrestorableReason.DUPLICATE_DETECTION, why)
            new = str(uuid.uuid4())
            replaced[new] = str(found)
            changed = with_message_id(made.payload, new)
            return made._replace(payload=changed, message_id=new, size=len(changed))

        return dataclasses.replace(route, restore=restore, replaced_ids=replaced)


def _may_be_known(entity: EntityPath, window: int) -> str:
    return (
        f"'{entity.name}' detects duplicates (window {duration(window / 1000)}) and may know the message id: it would "
        "accept the message and drop it. --new-ids gives it a new message id."
    )


def _not_known(entity: EntityPath) -> str:
    return (
        f"Cannot tell whether '{entity.name}' detects duplicates; it might accept the message and drop it. Use "
        "credentials with the Manage claim, or `syphon dead-letters` with --new-ids, which gives it a new message id, "
        "or with --assume-no-duplicate-detection if you know that there is none."
    )
