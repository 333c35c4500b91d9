"""How a pump works: its bounds, what it may forward, and what it was asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from syphon.backlog import Ttl
from syphon.model.errors import (
    DestinationDisabled,
    DestinationMissing,
    MessageTooLarge,
    NotAllowedByEntity,
    SyphonError,
)

PERMANENT: frozenset[type[SyphonError]] = frozenset(
    (DestinationMissing, DestinationDisabled, MessageTooLarge, NotAllowedByEntity)
)
"""What S4 sends to the dead letters unless the operator says otherwise."""


@dataclass(frozen=True, slots=True)
class PumpOptions:
    """How a pump works."""

    window: int = 4000
    """Messages in hand at a time. They pass in three round trips: fewer, and both ends wait for the line."""
    window_bytes: int = 16 * 1024 * 1024
    """Their bytes. The process needs about three times as much: as they came, restored, and on their way out."""
    max_links: int = 200
    quiet: float = 3.0
    """Seconds without a message after which the queue counts as quiet."""
    lease: float | None = 60.0
    """Seconds after which the pump stops taking messages, even if there are more."""
    grace: float = 20.0
    """Seconds to finish what is in hand once it stops."""
    lock: float = 60.0
    """Seconds a lock lasts, as backlog queues are made (P2). What a message says of its own may only shorten it."""
    ttl: Ttl = Ttl.RESTORE
    allow: tuple[str, ...] = ("*",)
    """Where messages may go. One for another place is dead-lettered (D13)."""
    permanent: frozenset[type[SyphonError]] = PERMANENT
    limit: int | None = None
    only: tuple[str, ...] = ("*",)
    """Which destinations are served this time. A message for another stays as it is."""
    before: int | None = None
    after: int | None = None
    """When a message must have come into the backlog to be served this time, in milliseconds since 1970."""

    def wants(self, destination: str | None, enqueued_at: int) -> bool:
        """Whether a message is within the filter. One of no readable destination is, unless some are asked for."""
        if self.before is not None and enqueued_at >= self.before:
            return False
        if self.after is not None and enqueued_at < self.after:
            return False
        return "*" in self.only or (destination is not None and _fits(destination, self.only))


def _fits(path: str, patterns: Iterable[str]) -> bool:
    """Capitals make no difference, as in Service Bus, and `*` is any text, slashes included."""
    path = path.strip("/").lower()
    return any(fnmatchcase(path, pattern.strip("/").lower()) for pattern in patterns)
