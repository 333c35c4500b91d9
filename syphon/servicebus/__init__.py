"""Service Bus over the network: connections, raw senders and receivers, administration, and pairs of namespaces.

What a sending application does not need until it fails over, or never, is loaded when it is first used: our own AMQP
connections, and what reads the settings file.
"""

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

from .administration import (
    Administration,
    AdministrationFailed,
    AdministrationUnavailable,
    AdministrationUnreachable,
    AllowedUse,
    EntityConflict,
    NamespaceTier,
    NewQueue,
    QueueCounts,
    QueueInfo,
)
from .backoff import Backoff
from .namespace import Namespace, NamespaceStatus
from .pair import Pair, SideFault
from .sdk_clients import (
    CloseWatch,
    ConnectionDetails,
    condition_of,
    connection_details,
    disable_retries,
    fill,
    is_shut_down,
    message_limit,
    payloads_of,
    refuse_use,
    release_sockets,
    watch_close,
)
from .sdk_private_names import check_contract
from .sdk_sockets import explain

if TYPE_CHECKING:
    from .clocks_and_threads import RUNTIME, Runtime, Wait, wait_for_traffic
    from .connection import Connection, largest_accepted, try_receiver, try_sender
    from .data_plane_administration import DataPlaneAdministration
    from .factory import administration_of, client_of, connected, data_plane_of, namespace_of
    from .links import PING_TYPE, Arrival, LinkState, RawReceiver, RawSender, Sent, Settled, ping_payload
    from .management_node import (
        TOKENS_PER_REQUEST,
        DeferredReceiver,
        ManagementLinks,
        ManagementReply,
        RequestLink,
        lock_tokens,
    )
    from .peek_reply import MessageState, Peeked
    from .queue_peek import FIRST_OF_PARTITION, Peeker, peek, peek_pages, sequence_bounds
else:
    _MODULES = {
        "clocks_and_threads": ("RUNTIME", "Runtime", "Wait", "wait_for_traffic"),
        "connection": ("Connection", "largest_accepted", "try_receiver", "try_sender"),
        "data_plane_administration": ("DataPlaneAdministration",),
        "factory": ("administration_of", "client_of", "connected", "data_plane_of", "namespace_of"),
        "links": ("PING_TYPE", "Arrival", "LinkState", "RawReceiver", "RawSender", "Sent", "Settled", "ping_payload"),
        "management_node": (
            "TOKENS_PER_REQUEST",
            "DeferredReceiver",
            "ManagementLinks",
            "ManagementReply",
            "RequestLink",
            "lock_tokens",
        ),
        "peek_reply": ("MessageState", "Peeked"),
        "queue_peek": ("FIRST_OF_PARTITION", "Peeker", "peek", "peek_pages", "sequence_bounds"),
    }
    __getattr__ = lazy_exports(__name__, _MODULES)

__all__ = [
    "TOKENS_PER_REQUEST",
    "lock_tokens",
    "Administration",
    "AdministrationFailed",
    "Arrival",
    "Backoff",
    "CloseWatch",
    "EntityConflict",
    "AllowedUse",
    "Connection",
    "FIRST_OF_PARTITION",
    "PING_TYPE",
    "DataPlaneAdministration",
    "DeferredReceiver",
    "LinkState",
    "MessageState",
    "Namespace",
    "Pair",
    "Peeked",
    "Peeker",
    "QueueCounts",
    "QueueInfo",
    "RUNTIME",
    "RawReceiver",
    "RawSender",
    "Runtime",
    "ManagementLinks",
    "ManagementReply",
    "RequestLink",
    "Sent",
    "Settled",
    "SideFault",
    "NamespaceStatus",
    "NamespaceTier",
    "NewQueue",
    "AdministrationUnavailable",
    "AdministrationUnreachable",
    "ConnectionDetails",
    "administration_of",
    "data_plane_of",
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
    "ping_payload",
    "peek_pages",
    "disable_retries",
    "refuse_use",
    "release_sockets",
    "sequence_bounds",
    "try_receiver",
    "try_sender",
    "Wait",
    "watch_close",
    "wait_for_traffic",
    "connection_details",
]
