"""The states of one backlog queue of a drain, what can happen to it, and what follows (X2, D4).

    Checking ──a job serves it──► Moving ──locked messages, back-offs──► Waiting
       ▲  └───────a peek finds nothing─────┴───────────┬───────────────────┘
       │                                               ▼
       └──late messages── Settling ──nothing for as long as asked──► Empty

An empty queue is checked again if messages arrive while other queues are drained. All other states end its drain.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum, auto


class DrainState(StrEnum):
    """What the drain of a queue is doing, or how it ended."""

    CHECKING = "checking"
    MOVING = "moving"
    THROTTLED = "throttled"
    """It moves as fast as a throttled namespace allows. Shown instead of `MOVING`; no queue is set to it."""
    WAITING = "waiting"
    """For locks that expire, for destinations that back off, or for the secondary."""
    SETTLING = "settling"
    """It is empty, and the drain waits for messages that become visible late."""
    EMPTY = "empty"
    """A peek has proven that no matching message is left."""
    MORE_CAME = "more came"
    """It was empty. Messages that arrived while other queues were drained are left in the backlog."""
    MISSING = "missing"
    STUCK = "stuck"
    """Nothing has moved for longer than the patience of the drain."""
    LIMIT = "limit reached"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return self not in OPEN and self is not DrainState.THROTTLED


class DrainEvent(Enum):
    """What happens to a queue of a drain."""

    SERVED = auto()
    """A job begins to serve it."""
    HELD_UP = auto()
    """Its messages are locked, their destinations back off, or the secondary is unreachable."""
    MESSAGES_FOUND = auto()
    NOTHING_FOUND = auto()
    PROVEN_EMPTY = auto()
    """Peeks have found nothing for as long as the drain was told to settle."""
    MISSING = auto()
    """There is no such queue."""
    LATE_MESSAGES = auto()
    """It has messages, and each queue has been empty once."""
    NO_PROGRESS = auto()
    LIMIT_REACHED = auto()
    TOLD_TO_STOP = auto()
    BROKEN = auto()
    """An error that no retry helps against."""


OPEN = frozenset((DrainState.CHECKING, DrainState.MOVING, DrainState.WAITING, DrainState.SETTLING))
"""The states in which a queue takes part in the drain."""
UNPROVEN = OPEN - {DrainState.SETTLING}
"""The states in which the last peek has found messages, or there was none."""


def _from(
    states: frozenset[DrainState], event: DrainEvent, to: DrainState
) -> dict[tuple[DrainState, DrainEvent], DrainState]:
    return {(state, event): to for state in states}


TRANSITIONS: Mapping[tuple[DrainState, DrainEvent], DrainState] = {
    **_from(UNPROVEN, DrainEvent.SERVED, DrainState.MOVING),
    **_from(OPEN, DrainEvent.HELD_UP, DrainState.WAITING),
    **_from(OPEN, DrainEvent.NOTHING_FOUND, DrainState.SETTLING),
    **_from(OPEN | {DrainState.EMPTY, DrainState.MORE_CAME}, DrainEvent.PROVEN_EMPTY, DrainState.EMPTY),
    **_from(OPEN | {DrainState.EMPTY}, DrainEvent.MISSING, DrainState.MISSING),
    (DrainState.SETTLING, DrainEvent.MESSAGES_FOUND): DrainState.CHECKING,
    (DrainState.EMPTY, DrainEvent.MESSAGES_FOUND): DrainState.CHECKING,
    (DrainState.CHECKING, DrainEvent.LATE_MESSAGES): DrainState.MORE_CAME,
    (DrainState.EMPTY, DrainEvent.LATE_MESSAGES): DrainState.MORE_CAME,
    **_from(OPEN, DrainEvent.NO_PROGRESS, DrainState.STUCK),
    **_from(OPEN, DrainEvent.LIMIT_REACHED, DrainState.LIMIT),
    **_from(OPEN, DrainEvent.TOLD_TO_STOP, DrainState.STOPPED),
    **_from(OPEN, DrainEvent.BROKEN, DrainState.FAILED),
}
"""All other events change nothing."""
