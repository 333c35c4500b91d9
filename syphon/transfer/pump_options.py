"""The options of a pump: its bounds, what it may forward, and which messages are selected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from syphon.config import PairSettings
from syphon.model import (
    MessageFilter,
    MessageTooLarge,
    NotAllowedByEntity,
    PathPatterns,
    Renames,
    SessionOrder,
    SyphonError,
    TimeToLive,
)
from syphon.time_budget import LOCK_DURATION

from .congestion import DEFAULT_SHARE
from .route import MovePlan

PERMANENT: frozenset[type[SyphonError]] = frozenset((MessageTooLarge, NotAllowedByEntity))
"""The errors after which a message is dead-lettered (S4), unless the operator configures others. Messages for a
destination that is missing or disabled wait: the sender failed over because of exactly that."""

MOST_QUEUES = 80
"""Queues on one connection, and so the queues that one pump serves, at most. Service Bus allows 256 links on a
connection: one for each queue to receive from, and two more for its management node, to peek and to renew locks."""


@dataclass(frozen=True, slots=True)
class PumpOptions:
    """The options of a pump."""

    window: int = 4000
    """Messages in flight at a time, of all queues. Each message needs three round trips; with fewer, both ends would
    wait for the network."""
    window_bytes: int = 16 * 1024 * 1024
    """Bytes in flight at a time. The process needs about three times as much: received, restored and being sent."""
    first_window: int = 200
    """Messages of one queue in flight at the start of its service, at most: every message received for an unavailable
    destination is a wasted receive."""
    max_links: int = 200
    """Links to destinations at a time."""
    quiet: float = 3.0
    """Seconds without a message after which the queue counts as quiet."""
    lease: float | None = 60.0
    """Seconds after which the pump stops taking messages, even if there are more."""
    most_outcomes: int | None = None
    """Outcomes after which the lease is over, too: its owner keeps them until the pump has ended."""
    linger: float = 0.0
    """Seconds for which the pump waits for another queue to serve when it has none."""
    grace: float = 14.0
    """Seconds to finish the messages in flight once the pump stops: less than a slot has as the worker ends (16.5)."""
    lock: float = LOCK_DURATION
    """Seconds a lock lasts, as backlog queues are created (P2). A message's own stamp can only shorten it."""
    ttl: TimeToLive = TimeToLive.RESTORE
    allow: PathPatterns = field(default_factory=PathPatterns)
    """The destinations that messages may go to. A message for another one is dead-lettered (D13)."""
    rename: Renames = field(default_factory=Renames)
    """Where messages go instead of the destinations that they name. `allow` is about what they name."""
    permanent: frozenset[type[SyphonError]] = PERMANENT
    rate_share: float = DEFAULT_SHARE
    """The share of what a throttled namespace takes that the pump uses."""
    session_order: SessionOrder | None = None
    """Whether the order of each session is kept (D21)."""
    limit: int | None = None
    """Messages to receive from all queues, at most."""
    messages: MessageFilter = field(default_factory=MessageFilter)
    """Which messages are selected. The others stay in the backlog."""
    move: MovePlan | None = None
    """What is moved to where, if the queues are no backlog queues."""

    @classmethod
    def for_pair(cls, pair: PairSettings, **options: Any) -> PumpOptions:
        """The options for a pair: its settings, and what the caller adds to them."""
        return cls(
            **{
                "ttl": pair.time_to_live,
                "allow": pair.destinations.allowed,
                "rename": pair.destinations.renames,
                "permanent": pair.destinations.permanent(),
                "rate_share": pair.rate_share,
                "session_order": pair.session_order,
                **options,
            }
        )
