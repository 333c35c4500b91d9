"""One Service Bus namespace: connections, raw senders and receivers, administration; and the pair of two of them."""

from .administration import (
    OPERATION_TIMEOUT,
    Administration,
    AdministrationFailed,
    Conflict,
    QueueFacts,
    Unanswered,
    Unreachable,
)
from .backoff import Backoff
from .connection import Connection
from .data_plane import DataPlaneAdministration
from .factory import administration_of, client_of, connected, namespace_of
from .links import Arrival, LinkState, RawReceiver, RawSender, Reply, RequestLink, Sent, Settled
from .namespace import Namespace, Status
from .pair import Pair, SideFault
from .peeking import MessageState, Peeked, peek
from .polling import wait_for_traffic
from .probe import try_receiver, try_sender
from .sdk_internals import (
    Retries,
    WayIn,
    check_contract,
    condition_of,
    fill,
    message_limit,
    payloads_of,
    take_over_retries,
    way_in,
)

__all__ = [
    "Administration",
    "AdministrationFailed",
    "Arrival",
    "Backoff",
    "Conflict",
    "Connection",
    "DataPlaneAdministration",
    "LinkState",
    "MessageState",
    "Namespace",
    "OPERATION_TIMEOUT",
    "Pair",
    "Peeked",
    "QueueFacts",
    "RawReceiver",
    "RawSender",
    "Reply",
    "RequestLink",
    "Retries",
    "Sent",
    "Settled",
    "SideFault",
    "Status",
    "Unanswered",
    "Unreachable",
    "WayIn",
    "administration_of",
    "check_contract",
    "client_of",
    "condition_of",
    "connected",
    "fill",
    "message_limit",
    "namespace_of",
    "payloads_of",
    "peek",
    "take_over_retries",
    "try_receiver",
    "try_sender",
    "wait_for_traffic",
    "way_in",
]
