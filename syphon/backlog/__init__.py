"""What a backlog is: how its queues are called and described, and what a message in one looks like."""

from .aliasing import NotForBacklog, to_backlog
from .broker_stamps import BrokerStamps, stamps_of
from .description import DOCUMENTED, Difference, QueueDescription
from .names import (
    BacklogQueue,
    QueueName,
    backlog_queues,
    never_a_destination,
    not_allowed,
    parse_queue_name,
    primary_label,
)
from .restoring import Reason, Restored, Ttl, Unrestorable, destination_of, restore
from .sender_trace import TraceContext, trace_context
from .times import FOREVER, iso_duration

__all__ = [
    "to_backlog",
    "restore",
    "destination_of",
    "Restored",
    "Unrestorable",
    "Reason",
    "Ttl",
    "NotForBacklog",
    "BacklogQueue",
    "QueueName",
    "backlog_queues",
    "parse_queue_name",
    "primary_label",
    "never_a_destination",
    "not_allowed",
    "BrokerStamps",
    "stamps_of",
    "QueueDescription",
    "DOCUMENTED",
    "Difference",
    "FOREVER",
    "iso_duration",
    "TraceContext",
    "trace_context",
]
