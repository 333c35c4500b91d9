"""Spark: the transfer on it, and Service Bus as its tables and streams.

The transfer has the session, jobs, the task that Spark runs, and the control server that tasks report to. Public, for
programs that use Spark, are `register_source`, `ServiceBusDataSource`, `backlog` and `ledger` (docs/spark.md).

Its names are loaded when they are first asked for. A task on an executor imports this package, too, and an executor has
neither the control server's libraries nor a use for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .backlog_query import VIEW, BadQuery, answer_query, asking
    from .backlog_rows import (
        DeadLetterPreview,
        DestinationSummary,
        backlog_frame,
        dead_letter_previews,
        larger_than,
        looking,
        summary,
    )
    from .control_protocol import HandOver, QueueReport, SlotReport
    from .control_server import ControlServer
    from .dataframes import backlog, ledger
    from .ending import FAULTED, STOPPED, Ending, Shares, Step
    from .jobs import JobResult, Jobs, new_job
    from .master import CONNECT, cores_of, shown_master
    from .session import active_session, check_session, session_for_queries, spark_session
    from .session_access import SparkAccess, access_to, is_connect
    from .slot_control import RateLimit, SlotControl, Traced
    from .source.data_source import ServiceBusDataSource, SparkTooOld
    from .source.registration import register_source
    from .spark_watch import SparkLost, SparkWatch
    from .totals import QueueAttempt, QueueTotals, Totals

_MODULES = {
    "backlog_query": ("BadQuery", "VIEW", "answer_query", "asking"),
    "backlog_rows": (
        "DeadLetterPreview",
        "DestinationSummary",
        "backlog_frame",
        "dead_letter_previews",
        "larger_than",
        "looking",
        "summary",
    ),
    "control_protocol": ("HandOver", "QueueReport", "SlotReport"),
    "control_server": ("ControlServer",),
    "ending": (
        "Ending",
        "FAULTED",
        "STOPPED",
        "Shares",
        "Step",
    ),
    "dataframes": ("backlog", "ledger"),
    "jobs": (
        "JobResult",
        "Jobs",
        "new_job",
    ),
    "session_access": ("SparkAccess", "access_to", "is_connect"),
    "master": ("CONNECT", "cores_of", "shown_master"),
    "session": (
        "active_session",
        "check_session",
        "session_for_queries",
        "spark_session",
    ),
    "slot_control": (
        "RateLimit",
        "SlotControl",
        "Traced",
    ),
    "spark_watch": ("SparkLost", "SparkWatch"),
    "source.data_source": ("ServiceBusDataSource", "SparkTooOld"),
    "source.registration": ("register_source",),
    "totals": (
        "QueueAttempt",
        "QueueTotals",
        "Totals",
    ),
}
__all__ = [
    "BadQuery",
    "CONNECT",
    "ControlServer",
    "DeadLetterPreview",
    "DestinationSummary",
    "Ending",
    "FAULTED",
    "HandOver",
    "JobResult",
    "Jobs",
    "QueueAttempt",
    "QueueReport",
    "QueueTotals",
    "RateLimit",
    "STOPPED",
    "ServiceBusDataSource",
    "Shares",
    "SlotControl",
    "SlotReport",
    "SparkAccess",
    "SparkLost",
    "SparkWatch",
    "SparkTooOld",
    "Step",
    "Totals",
    "Traced",
    "VIEW",
    "access_to",
    "active_session",
    "answer_query",
    "asking",
    "backlog",
    "backlog_frame",
    "check_session",
    "cores_of",
    "dead_letter_previews",
    "is_connect",
    "larger_than",
    "ledger",
    "looking",
    "new_job",
    "register_source",
    "session_for_queries",
    "shown_master",
    "spark_session",
    "summary",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
