"""Backlog queues and backlog messages: names, provisioning, checks, aliasing, restoring, previews, dead letters.

What needs the settings file is loaded when it is first used: an application that sends has no such file.
"""

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

from .aliases import PATH_LIMIT
from .aliasing import NotForBacklog, to_backlog
from .backlog_message import BrokerStamps, TraceContext, stamps_of, trace_context
from .dotnet_times import FOREVER
from .provisioning import NoBacklogQueue, Provisioned, ProvisionedQueue, ProvisionState, plan, provision
from .queues import (
    NoQueueSelected,
    QueueName,
    SelectedQueue,
    backlog_queues,
    by_pair,
    not_allowed,
    not_allowed_text,
    primary_label,
    queue_names,
    select_queues,
)

if TYPE_CHECKING:
    from .carry import carried_over
    from .check import (
        ExpectedOutage,
        Finding,
        PreflightCheck,
        preflight_checks,
        secondary_administration,
        stranded_backlogs,
    )
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
    )
    from .preview import MessagePreview, PreviewRules, expiry_warning, preview_message
    from .restoration import Restored, Unrestorable, UnrestorableReason, destination_of, restore
else:
    _MODULES = {
        "carry": ("carried_over",),
        "check": (
            "ExpectedOutage",
            "Finding",
            "PreflightCheck",
            "preflight_checks",
            "secondary_administration",
            "stranded_backlogs",
        ),
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
        ),
        "preview": ("MessagePreview", "PreviewRules", "expiry_warning", "preview_message"),
        "restoration": ("Restored", "Unrestorable", "UnrestorableReason", "destination_of", "restore"),
    }
    __getattr__ = lazy_exports(__name__, _MODULES)

__all__ = [
    "BadEdit",
    "BadLine",
    "FiledLetter",
    "LetterEdit",
    "NO_EDIT",
    "BrokerStamps",
    "DeadLetter",
    "DeadLetterFilter",
    "DeadLetterSearch",
    "FOREVER",
    "ExpectedOutage",
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
    "ProvisionState",
    "QueueName",
    "Restored",
    "SelectedQueue",
    "TraceContext",
    "Unrestorable",
    "UnrestorableReason",
    "backlog_queues",
    "by_pair",
    "carried_over",
    "dead_letter_path",
    "destination_of",
    "fingerprint",
    "grouped",
    "letter_line",
    "message_id_of",
    "not_allowed",
    "not_allowed_text",
    "expiry_warning",
    "plan",
    "preflight_checks",
    "preview_message",
    "primary_label",
    "provision",
    "put_back",
    "queue_names",
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
