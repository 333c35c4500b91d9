"""What a backlog is: how its queues are called and described, and what a message in one looks like."""

from .aliases import PATH_LIMIT
from .aliasing import NotForBacklog, to_backlog
from .broker_stamps import BrokerStamps, stamps_of
from .dead_letters import DeadLetter, Group, NotPutBack, Wanted, dead_letter_path, grouped, put_back, read_dead_letters
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
from .preflight import Finding, Look, looks, queue_names, secondary_administration
from .preview import Judged, Rules, judge
from .provisioning import Dropped, Found, Made, Missing, Provisioned, Unknown, plan, provision
from .queue_selection import NothingChosen, SelectedQueue, by_pair, choose
from .restoring import Restored, Ttl, Unrestorable, UnrestorableReason, destination_of, restore
from .sender_trace import TraceContext, trace_context
from .times import FOREVER, iso_duration

__all__ = [
    "BacklogQueue",
    "BrokerStamps",
    "DOCUMENTED",
    "DeadLetter",
    "Difference",
    "Dropped",
    "FOREVER",
    "Finding",
    "Found",
    "Group",
    "Judged",
    "Look",
    "Made",
    "Missing",
    "NotForBacklog",
    "NotPutBack",
    "NothingChosen",
    "PATH_LIMIT",
    "Provisioned",
    "QueueDescription",
    "QueueName",
    "Restored",
    "Rules",
    "SelectedQueue",
    "TraceContext",
    "Ttl",
    "Unknown",
    "Unrestorable",
    "UnrestorableReason",
    "Wanted",
    "backlog_queues",
    "by_pair",
    "choose",
    "dead_letter_path",
    "destination_of",
    "grouped",
    "iso_duration",
    "judge",
    "looks",
    "never_a_destination",
    "not_allowed",
    "parse_queue_name",
    "plan",
    "primary_label",
    "provision",
    "put_back",
    "queue_names",
    "read_dead_letters",
    "restore",
    "secondary_administration",
    "stamps_of",
    "to_backlog",
    "trace_context",
]
