"""Run and drain: pairs at work, their listeners and dispatchers, pauses, and how it all ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .backoffs import Backoffs, TurnedAway
    from .drain import Drain, DrainResult
    from .drain_progress import DrainProgress, QueueProgress
    from .engine import Engine, running_engine
    from .message_counts import counts_of
    from .pair_worker import PairFault, PairWorker
    from .pauses import BY_THE_OPERATOR, Pause, Pauses, StateUnreadable
    from .queue_drain import DrainOptions, DrainState, QueueDrain
    from .run import Worker
    from .state_file import write_state
    from .waiting import WaitingDestination, waiting_destinations

_MODULES = {
    "backoffs": ("Backoffs", "TurnedAway"),
    "drain": (
        "Drain",
        "DrainResult",
    ),
    "drain_progress": ("DrainProgress", "QueueProgress"),
    "engine": (
        "Engine",
        "running_engine",
    ),
    "message_counts": ("counts_of",),
    "pair_worker": ("PairFault", "PairWorker"),
    "pauses": (
        "BY_THE_OPERATOR",
        "Pause",
        "Pauses",
        "StateUnreadable",
    ),
    "queue_drain": (
        "DrainOptions",
        "DrainState",
        "QueueDrain",
    ),
    "run": ("Worker",),
    "state_file": ("write_state",),
    "waiting": ("WaitingDestination", "waiting_destinations"),
}
__all__ = [
    "BY_THE_OPERATOR",
    "Backoffs",
    "Drain",
    "DrainOptions",
    "DrainProgress",
    "DrainResult",
    "DrainState",
    "Engine",
    "PairFault",
    "PairWorker",
    "Pause",
    "Pauses",
    "QueueDrain",
    "QueueProgress",
    "StateUnreadable",
    "TurnedAway",
    "WaitingDestination",
    "Worker",
    "counts_of",
    "running_engine",
    "waiting_destinations",
    "write_state",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
