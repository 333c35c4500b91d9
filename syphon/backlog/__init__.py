"""Backlog queues and backlog messages: names, provisioning, checks, aliasing, restoring, previews, dead letters."""

from .alias import NotForBacklog, to_backlog
from .aliases import PATH_LIMIT
from .broker_stamps import BrokerStamps, stamps_of
from .check import Finding, PreflightCheck, preflight_checks, secondary_administration
from .dead_letter_edit import NO_EDIT, BadEdit, LetterEdit, message_id_of, with_message_id
from .dead_letter_file import BadLine, FiledLetter, fingerprint, letter_line, read_line
from .dead_letters import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterSearch,
    Group,
    NotPutBack,
    dead_letter_path,
    grouped,
    put_back,
    read_dead_letters,
)
from .duplicate_windows import LONGEST_WINDOW, DuplicateWindows
from .preview import MessagePreview, PreviewRules, expiry_warning, preview_message
from .provisioning import Dropped, Found, Made, Missing, NoBacklogQueue, Provisioned, Unknown, plan, provision
from .queue_selection import NoQueueSelected, SelectedQueue, by_pair, queue_names, select_queues
from .queues import (
    DOCUMENTED,
    BacklogQueue,
    BacklogQueueDescription,
    Difference,
    QueueName,
    backlog_queues,
    not_allowed,
    not_allowed_text,
    parse_queue_name,
    primary_label,
)
from .restoration import Restored, Unrestorable, UnrestorableReason, destination_of, restore
from .sender_trace import TraceContext, trace_context
from .times import FOREVER, iso_duration

__all__ = [
    "BadEdit",
    "BadLine",
    "FiledLetter",
    "LONGEST_WINDOW",
    "LetterEdit",
    "NO_EDIT",
    "BacklogQueue",
    "BrokerStamps",
    "DOCUMENTED",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterSearch",
    "Difference",
    "Dropped",
    "DuplicateWindows",
    "FOREVER",
    "Finding",
    "Found",
    "NoBacklogQueue",
    "Group",
    "Made",
    "MessagePreview",
    "Missing",
    "NoQueueSelected",
    "NotForBacklog",
    "NotPutBack",
    "PATH_LIMIT",
    "PreflightCheck",
    "PreviewRules",
    "Provisioned",
    "BacklogQueueDescription",
    "QueueName",
    "Restored",
    "SelectedQueue",
    "TraceContext",
    "Unknown",
    "Unrestorable",
    "UnrestorableReason",
    "backlog_queues",
    "by_pair",
    "dead_letter_path",
    "destination_of",
    "fingerprint",
    "grouped",
    "letter_line",
    "iso_duration",
    "message_id_of",
    "not_allowed",
    "not_allowed_text",
    "parse_queue_name",
    "expiry_warning",
    "plan",
    "preflight_checks",
    "preview_message",
    "primary_label",
    "provision",
    "put_back",
    "queue_names",
    "read_dead_letters",
    "read_line",
    "restore",
    "secondary_administration",
    "select_queues",
    "stamps_of",
    "to_backlog",
    "trace_context",
    "with_message_id",
]
