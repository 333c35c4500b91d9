"""Run and drain: the pairs of a worker, their listeners and dispatchers, pauses, and the shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .backoffs import Backoffs
    from .drain.drain import Drain, DrainResult
    from .drain.progress import DrainProgress, QueueProgress
    from .drain.queue_drain import DrainOptions, DrainState, QueueDrain
    from .drain.waiting import WaitingDestination, waiting_destinations
    from .engine import Engine, running_engine
    from .message_counts import counts_of
    from .pair_worker import PairFault, PairWorker
    from .pauses import BY_THE_OPERATOR, Pause, Pauses, StateUnreadable
    from .run import Worker

_MODULES = {
    "backoffs": ("Backoffs",),
    "drain.drain": (
        "Drain",
        "DrainResult",
    ),
    "drain.progress": (
        "DrainProgress",
        "QueueProgress",
    ),
    "drain.queue_drain": (
        "DrainOptions",
        "DrainState",
        "QueueDrain",
    ),
    "drain.waiting": (
        "WaitingDestination",
        "waiting_destinations",
    ),
    "engine": (
        "Engine",
        "running_engine",
    ),
    "message_counts": ("counts_of",),
    "pair_worker": (
        "PairFault",
        "PairWorker",
    ),
    "pauses": (
        "BY_THE_OPERATOR",
        "Pause",
        "Pauses",
        "StateUnreadable",
    ),
    "run": ("Worker",),
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
    "WaitingDestination",
    "Worker",
    "counts_of",
    "running_engine",
    "waiting_destinations",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
