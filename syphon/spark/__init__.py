"""The transfer on Spark: the session, jobs, the task that Spark runs, and the control server that tasks report to.

Its names are loaded when they are first asked for. A task on an executor imports this package, too, and an executor has
neither the control server's libraries nor a use for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .backlog_rows import (
        VIEW,
        BadQuery,
        DeadLetterPreview,
        DestinationSummary,
        asking,
        backlog_frame,
        dead_letter_previews,
        larger_than,
        looking,
        summary,
    )
    from .control_protocol import SlotReport
    from .control_server import ControlServer, Traced
    from .jobs import JobResult, Jobs
    from .session import cores_of, spark_session
    from .totals import QueueTotals, Totals

_MODULES = {
    "backlog_rows": (
        "BadQuery",
        "DeadLetterPreview",
        "DestinationSummary",
        "VIEW",
        "asking",
        "backlog_frame",
        "dead_letter_previews",
        "larger_than",
        "looking",
        "summary",
    ),
    "control_protocol": ("SlotReport",),
    "control_server": (
        "ControlServer",
        "Traced",
    ),
    "jobs": (
        "JobResult",
        "Jobs",
    ),
    "session": (
        "cores_of",
        "spark_session",
    ),
    "totals": (
        "QueueTotals",
        "Totals",
    ),
}
__all__ = [
    "BadQuery",
    "ControlServer",
    "DeadLetterPreview",
    "DestinationSummary",
    "JobResult",
    "Jobs",
    "QueueTotals",
    "SlotReport",
    "Totals",
    "Traced",
    "VIEW",
    "asking",
    "backlog_frame",
    "cores_of",
    "dead_letter_previews",
    "larger_than",
    "looking",
    "spark_session",
    "summary",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
