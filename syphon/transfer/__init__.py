"""One backlog queue's way home: receive, restore, forward, settle. Destinations have a state, outcomes are values."""

from .clock import wall_clock
from .destinations import DestinationBackoff
from .doorbell import Doorbell
from .in_hand import Ended
from .listener import Listener
from .options import PumpOptions
from .pump import Pump
from .replay import Replay, ReplayTally, Route, to_backlog, to_destination
from .traces import BatchTrace

__all__ = [
    "BatchTrace",
    "DestinationBackoff",
    "Doorbell",
    "Ended",
    "Listener",
    "Pump",
    "PumpOptions",
    "Replay",
    "ReplayTally",
    "Route",
    "to_backlog",
    "to_destination",
    "wall_clock",
]
