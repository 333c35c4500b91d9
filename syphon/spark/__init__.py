"""The transfer on Spark: sessions, doorbells, jobs, the ledger and what can be asked of it."""

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
from .control_server import ControlServer, QueueTotals, Traced
from .jobs import JobResult, Jobs
from .session import cores_of, spark_session
from .totals import Totals

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
