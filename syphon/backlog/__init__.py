"""Backlog queues and backlog messages: names, provisioning, checks, aliasing, restoring, previews, dead letters.

What needs the settings file is loaded when it is first used: an application that sends has no such file.
"""

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

from .aliasing import NotForBacklog, to_backlog
from .backlog_message import PATH_LIMIT, BrokerStamps, TraceContext, stamps_of, trace_context
from .dotnet_times import FOREVER, iso_duration
from .preview import MessagePreview, PreviewRules, expiry_warning, preview_message
from .provisioning import NoBacklogQueue, Provisioned, ProvisionedQueue, QueueState, plan, provision
from .queues import (
    DOCUMENTED,
    BacklogQueue,
    BacklogQueueDescription,
    Difference,
    NoQueueSelected,
    QueueName,
    SelectedQueue,
    backlog_queues,
    by_pair,
    not_allowed,
    not_allowed_text,
    parse_queue_name,
    primary_label,
    queue_names,
    select_queues,
)
from .restoration import Restored, Unrestorable, UnrestorableReason, destination_of, restore

if TYPE_CHECKING:
    from .check import Finding, PreflightCheck, preflight_checks, secondary_administration, stranded_backlogs
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
else:
    _MODULES = {
        "check": ("Finding", "PreflightCheck", "preflight_checks", "secondary_administration", "stranded_backlogs"),
        "dead_letter_edit": ("NO_EDIT", "BadEdit", "LetterEdit", "message_id_of", "with_message_id"),
        "dead_letter_file": ("BadLine", "FiledLetter", "fingerprint", "letter_line", "read_line"),
        "dead_letters": (
            "DeadLetter",
            "DeadLetterFilter",
            "DeadLetterSearch",
            "Group",
            "NotPutBack",
            "dead_letter_path",
            "grouped",
            "put_back",
            "read_dead_letters",
        ),
    }
    __getattr__ = lazy_exports(__name__, _MODULES)

__all__ = [
    "BadEdit",
    "BadLine",
    "FiledLetter",
    "LetterEdit",
    "NO_EDIT",
    "BacklogQueue",
    "BrokerStamps",
    "DOCUMENTED",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterSearch",
    "Difference",
    "FOREVER",
    "Finding",
    "NoBacklogQueue",
    "Group",
    "MessagePreview",
    "NoQueueSelected",
    "NotForBacklog",
    "NotPutBack",
    "PATH_LIMIT",
    "PreflightCheck",
    "PreviewRules",
    "Provisioned",
    "ProvisionedQueue",
    "QueueState",
    "BacklogQueueDescription",
    "QueueName",
    "Restored",
    "SelectedQueue",
    "TraceContext",
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
    "stranded_backlogs",
    "select_queues",
    "stamps_of",
    "to_backlog",
    "trace_context",
    "with_message_id",
]
