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
        looking,
        summary,
    )
    from .control_protocol import SlotReport
    from .control_server import ControlServer, Traced
    from .ending import FAULTED, STOPPED, Ending, Shares, Step
    from .jobs import JobResult, Jobs
    from .jvm_watch import JvmWatch, SparkLost
    from .session import check_session, cores_of, jvm_of, spark_session
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
        "looking",
        "summary",
    ),
    "control_protocol": ("SlotReport",),
    "control_server": (
        "ControlServer",
        "Traced",
    ),
    "ending": (
        "Ending",
        "FAULTED",
        "STOPPED",
        "Shares",
        "Step",
    ),
    "jobs": (
        "JobResult",
        "Jobs",
    ),
    "jvm_watch": (
        "JvmWatch",
        "SparkLost",
    ),
    "session": (
        "check_session",
        "cores_of",
        "jvm_of",
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
    "Ending",
    "FAULTED",
    "JobResult",
    "Jobs",
    "JvmWatch",
    "QueueTotals",
    "STOPPED",
    "Shares",
    "SlotReport",
    "SparkLost",
    "Step",
    "Totals",
    "Traced",
    "VIEW",
    "asking",
    "backlog_frame",
    "check_session",
    "cores_of",
    "dead_letter_previews",
    "jvm_of",
    "looking",
    "spark_session",
    "summary",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
