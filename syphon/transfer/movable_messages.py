"""Which deferred messages can be moved: the filter allows them, and their destination is available, or may be."""

from __future__ import annotations

from collections.abc import Callable

from syphon.backlog import destination_of, stamps_of
from syphon.servicebus import Peeked

from .breaker import BackingOff, Rejecting
from .destinations import Destinations
from .pump_options import PumpOptions


class MovableMessages:
    """Knows which messages can be moved, and finds out whether a destination that has failed is available."""

    def __init__(self, destinations: Destinations, options: PumpOptions, now: Callable[[], float]) -> None:
        self._destinations = destinations
        self._messages = options.messages
        self._move = options.move
        self._keeps_order = options.session_order is not None
        self._now = now

    def destination_key(self, message: Peeked) -> str | None:
        """The key of a message's destination, empty if it names none; None if the message cannot be moved now."""
        path = destination_of(message.payload) if self._move is None else self._move.target
        if not self._messages.matches(path, stamps_of(message.payload).enqueued_at, message.payload):
            return None
        if path is None:
            return ""  # it goes to the dead letters
        self._destinations.find(path)  # under the name that the message has, and not its key
        return path.key if self.can_move(path.key) else None

    def can_move(self, destination: str) -> bool:
        """Whether the messages for a destination (its key) leave the backlog, as far as is known."""
        found = self._destinations.by_key(destination) if destination else None
        if found is None:
            return True
        return not found.is_paused and not isinstance(found.breaker.state_at(self._now()), BackingOff)

    def is_proven(self, destination: str) -> bool:
        """Whether the messages for a destination (its key) leave the backlog: it has accepted one, or rejects all."""
        found = self._destinations.by_key(destination) if destination else None
        return found is None or found.has_accepted or isinstance(found.state, Rejecting)

    def prove(self, destination: str) -> bool:
        """Finds out whether a destination (its key) is available. False if a message must show it: none has failed.

        The target of a move belongs to somebody else, who expects no pings. With an order of sessions no message can
        show it: the one that is received may have to wait for others.
        """
        found = self._destinations.by_key(destination) if destination else None
        if found is None or self._move is not None or not (found.breaker.failures or self._keeps_order):
            return False
        if not found.will_answer():
            self._destinations.ping(found)
        return True
