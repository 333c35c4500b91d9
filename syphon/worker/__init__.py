"""Run and drain: the pairs of a worker, their listeners and dispatchers, pauses, and the shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .drain.drain_options import GIVE_UP as GIVE_UP
    from .drain.drain_options import DrainOptions as DrainOptions
    from .drain.drain_options import TransferOptions as TransferOptions
    from .drain.emptiness import EmptinessCheck as EmptinessCheck
    from .drain.emptiness import counts_of as counts_of
    from .drain.move_options import MOVE_END as MOVE_END
    from .drain.move_options import MoveEnd as MoveEnd
    from .drain.move_options import MoveOptions as MoveOptions
    from .drain.queue_drain import QueueDrain as QueueDrain
    from .drain.queue_state import DrainState as DrainState
    from .drain.result import DrainProgress as DrainProgress
    from .drain.result import DrainResult as DrainResult
    from .drain.result import QueueProgress as QueueProgress
    from .drain.result import WaitingDestination as WaitingDestination
    from .drain.result import WaitingForecast as WaitingForecast
    from .drain.result import waiting_destinations as waiting_destinations
    from .drain.whole_drain import Drain as Drain
    from .pair_worker import PairFault as PairFault
    from .pair_worker import PairWorker as PairWorker
    from .pauses import BY_THE_OPERATOR as BY_THE_OPERATOR
    from .pauses import Pause as Pause
    from .pauses import Pauses as Pauses
    from .pauses import StateUnreadable as StateUnreadable
    from .spark_lifecycle import SparkState as SparkState
    from .spark_lifecycle import SparkView as SparkView
    from .start_stop import Engine as Engine
    from .start_stop import engine_on_demand as engine_on_demand
    from .start_stop import running_engine as running_engine
    from .worker import Worker as Worker
else:
    _MODULES = {
        "drain.emptiness": ("EmptinessCheck", "counts_of"),
        "drain.drain_options": ("DrainOptions", "GIVE_UP", "TransferOptions"),
        "drain.move_options": ("MOVE_END", "MoveEnd", "MoveOptions"),
        "drain.queue_drain": ("QueueDrain",),
        "drain.queue_state": ("DrainState",),
        "drain.result": (
            "DrainProgress",
            "DrainResult",
            "QueueProgress",
            "WaitingDestination",
            "WaitingForecast",
            "waiting_destinations",
        ),
        "drain.whole_drain": ("Drain",),
        "start_stop": ("Engine", "engine_on_demand", "running_engine"),
        "pair_worker": ("PairFault", "PairWorker"),
        "pauses": ("BY_THE_OPERATOR", "Pause", "Pauses", "StateUnreadable"),
        "spark_lifecycle": ("SparkState", "SparkView"),
        "worker": ("Worker",),
    }
    __all__ = exported_names(_MODULES)
    __getattr__ = lazy_exports(__name__, _MODULES)
