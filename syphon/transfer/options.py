"""How a pump works: its bounds, what it may forward, and what it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syphon.backlog import Ttl
from syphon.config import PairSettings
from syphon.model import (
    DestinationDisabled,
    DestinationMissing,
    MessageFilter,
    MessageTooLarge,
    NotAllowedByEntity,
    PathPatterns,
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
    allow: PathPatterns = field(default_factory=PathPatterns)
    """Where messages may go. One for another place is dead-lettered (D13)."""
    permanent: frozenset[type[SyphonError]] = PERMANENT
    limit: int | None = None
    messages: MessageFilter = field(default_factory=MessageFilter)
    """Which messages are asked for this time. The others stay in the backlog."""

    @classmethod
    def for_pair(cls, pair: PairSettings, **options: Any) -> PumpOptions:
        """The settings of a pair, and what a caller adds to them."""
        return cls(
            **{
                "ttl": Ttl(pair.time_to_live.value),
                "allow": pair.destinations.allowed,
                "permanent": pair.destinations.permanent(),
                **options,
            }
        )
