"""Service Bus over the network: connections, raw senders and receivers, administration, and pairs of namespaces."""

from .administration import (
    OPERATION_TIMEOUT,
    Administration,
    AdministrationFailed,
    AdministrationUnavailable,
    AdministrationUnreachable,
    EntityConflict,
    QueueCounts,
    QueueInfo,
)
from .connection import (
    HANDSHAKE_WITHIN,
    NOTICING_PAUSE,
    Backoff,
    Connection,
    Wait,
    largest_accepted,
    try_receiver,
    try_sender,
    wait_for_traffic,
)
from .data_plane import DataPlaneAdministration
from .factory import administration_of, client_of, connected, namespace_of
from .links import Arrival, LinkState, ManagementReply, RawReceiver, RawSender, RequestLink, Sent, Settled
from .namespace import Namespace, NamespaceStatus
from .opening_errors import explain
from .pair import Pair, SideFault
from .peeking import MessageState, Peeked, Peeker, peek
from .runtime import RUNTIME, Runtime
from .sdk_clients import (
    CloseWatch,
    ConnectionDetails,
    RetryPolicy,
    condition_of,
    connection_details,
    disable_retries,
    fill,
    is_shut_down,
    message_limit,
    payloads_of,
    release_sockets,
    watch_close,
)
from .sdk_contract import check_contract

__all__ = [
    "Administration",
    "AdministrationFailed",
    "Arrival",
    "Backoff",
    "CloseWatch",
    "EntityConflict",
    "Connection",
    "HANDSHAKE_WITHIN",
    "NOTICING_PAUSE",
    "DataPlaneAdministration",
    "LinkState",
    "MessageState",
    "Namespace",
    "OPERATION_TIMEOUT",
    "Pair",
    "Peeked",
    "Peeker",
    "QueueCounts",
    "QueueInfo",
    "RUNTIME",
    "RawReceiver",
    "RawSender",
    "Runtime",
    "ManagementReply",
    "RequestLink",
    "RetryPolicy",
    "Sent",
    "Settled",
    "SideFault",
    "NamespaceStatus",
    "AdministrationUnavailable",
    "AdministrationUnreachable",
    "ConnectionDetails",
    "administration_of",
    "check_contract",
    "client_of",
    "condition_of",
    "connected",
    "explain",
    "fill",
    "is_shut_down",
    "largest_accepted",
    "message_limit",
    "namespace_of",
    "payloads_of",
    "peek",
    "disable_retries",
    "release_sockets",
    "try_receiver",
    "try_sender",
    "Wait",
    "watch_close",
    "wait_for_traffic",
    "connection_details",
]
