"""For how long the entities of a namespace drop messages whose ids they know: asked once for each entity.

Only the Manage claim allows the question. Where there is no answer the window is not known, and that is never taken for
"no duplicate detection".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from syphon.config import PairSettings, Via
from syphon.model import EntityPath, NamespaceGone, NotAuthorized, SyphonError
from syphon.servicebus import Administration, AdministrationUnavailable, administration_of

from .check import ANSWER_WITHIN, secondary_administration

LONGEST_WINDOW = 7 * 24 * 3_600_000
"""The longest window that the service allows, in milliseconds."""


class DuplicateWindows:
    """The windows of the entities of one namespace, asked for when they are first needed."""

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
        return cls(lambda: secondary_administration(pair, timeout=ANSWER_WITHIN))

    @classmethod
    def of_destinations(cls, pair: PairSettings) -> Self:
        return cls(lambda: administration_of(pair.primary, Via.ADMIN, "", ANSWER_WITHIN))

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
