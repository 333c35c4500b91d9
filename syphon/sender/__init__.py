"""Sending with failover: a pair of namespaces as one client.

While an entity of the primary is unavailable, its messages go to a backlog queue of the secondary. The syphon moves
them from there to the primary.

`syphon.sender` is the sync API, `syphon.sender.aio` the asyncio API. Both behave the same.
"""

from .error_classes import (
    BothSidesFailed,
    PairFaulted,
    SenderClosed,
    TooLargeForBacklog,
    UnfitForBacklog,
    UsedAfterFork,
)
from .events import Change, EntityFailedOver, EntityPinged, EntityReturned, QueueTakenBack, QueueTakenOut, SideEnded
from .pair_options import BadOptions, PairOptions
from .pair_state import PairSideState, PairState
from .send_calls import NOT_CANCELLABLE
from .sync import PairedClient, PairedSender, pair

__all__ = [
    "pair",
    "PairedClient",
    "PairedSender",
    "PairOptions",
    "BothSidesFailed",
    "TooLargeForBacklog",
    "UnfitForBacklog",
    "SenderClosed",
    "PairFaulted",
    "UsedAfterFork",
    "PairState",
    "PairSideState",
    "BadOptions",
    "NOT_CANCELLABLE",
    "Change",
    "EntityFailedOver",
    "EntityPinged",
    "EntityReturned",
    "QueueTakenOut",
    "QueueTakenBack",
    "SideEnded",
]
