"""Sending with failover: a pair of namespaces as one client. While an entity of the primary is away, its messages go to
a backlog queue of the secondary, from where the syphon carries them home.

`syphon.sender` is for threads, `syphon.sender.aio` for asyncio; both behave the same.
"""

from .changes import Change, EntityFailedOver, EntityPinged, EntityReturned, QueueTakenBack, QueueTakenOut
from .errors import BothSidesFailed, SenderClosed, TooLargeForBacklog, UnfitForBacklog
from .messages import NOT_CANCELLABLE
from .options import BadOptions, PairOptions
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
    "BadOptions",
    "NOT_CANCELLABLE",
    "Change",
    "EntityFailedOver",
    "EntityPinged",
    "EntityReturned",
    "QueueTakenOut",
    "QueueTakenBack",
]
