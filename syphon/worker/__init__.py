"""Run and drain: the pairs of a worker, their listeners and dispatchers, pauses, and the shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .backoffs import Backoffs
    from .drain.drain_options import GIVE_UP, DrainOptions
    from .drain.emptiness import counts_of
    from .drain.queue_drain import QueueDrain
    from .drain.queue_state import DrainState
    from .drain.result import DrainProgress, DrainResult, QueueProgress, WaitingDestination, waiting_destinations
    from .drain.whole_drain import Drain
    from .engine import Engine, running_engine
    from .pair_worker import PairFault, PairWorker
    from .pauses import BY_THE_OPERATOR, Pause, Pauses, StateUnreadable
    from .worker import Worker

_MODULES = {
    "backoffs": ("Backoffs",),
    "drain.emptiness": ("counts_of",),
    "drain.drain_options": ("GIVE_UP", "DrainOptions"),
    "drain.queue_drain": ("QueueDrain",),
    "drain.queue_state": ("DrainState",),
    "drain.result": (
        "DrainProgress",
        "DrainResult",
        "QueueProgress",
        "WaitingDestination",
        "waiting_destinations",
    ),
    "drain.whole_drain": ("Drain",),
    "engine": ("Engine", "running_engine"),
    "pair_worker": ("PairFault", "PairWorker"),
    "pauses": ("BY_THE_OPERATOR", "Pause", "Pauses", "StateUnreadable"),
    "worker": ("Worker",),
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
    "GIVE_UP",
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
