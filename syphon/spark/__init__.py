"""The transfer on Spark: the session, jobs, the task that Spark runs, and the control server that tasks report to."""

from .backlog_rows import (
    VIEW,
    BadQuery,
    DestinationSummary,
    Objection,
    asking,
    backlog_frame,
    looking,
    objections,
    summary,
)
from .control_protocol import SlotReport
from .control_server import ControlServer, Traced
from .jobs import JobResult, Jobs
from .session import cores_of, spark_session
from .totals import QueueTotals, Totals

__all__ = [
    "BadQuery",
    "ControlServer",
    "DestinationSummary",
    "JobResult",
    "Jobs",
    "Objection",
    "QueueTotals",
    "SlotReport",
    "Totals",
    "Traced",
    "VIEW",
    "asking",
    "backlog_frame",
    "cores_of",
    "looking",
    "objections",
    "spark_session",
    "summary",
]
