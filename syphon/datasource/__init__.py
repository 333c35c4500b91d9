"""Service Bus as tables and streams of Spark: the data source `servicebus`, the backlog and the ledger (docs/spark.md).

Public are `register_source`, `ServiceBusDataSource`, `backlog` and `ledger`. Only `source`, the readers and `write`
need Spark 4; `inspect` uses the modules below them.
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
    from .dataframes import backlog, ledger
    from .registration import register_source
    from .source import ServiceBusDataSource, SparkTooOld

_MODULES = {
    "backlog_query": (
        "BadQuery",
        "VIEW",
        "answer_query",
        "asking",
    ),
    "backlog_rows": (
        "DeadLetterPreview",
        "DestinationSummary",
        "backlog_frame",
        "dead_letter_previews",
        "larger_than",
        "looking",
        "summary",
    ),
    "dataframes": (
        "backlog",
        "ledger",
    ),
    "registration": ("register_source",),
    "source": (
        "ServiceBusDataSource",
        "SparkTooOld",
    ),
}
__all__ = [
    "BadQuery",
    "DeadLetterPreview",
    "DestinationSummary",
    "ServiceBusDataSource",
    "SparkTooOld",
    "VIEW",
    "answer_query",
    "asking",
    "backlog",
    "backlog_frame",
    "dead_letter_previews",
    "larger_than",
    "ledger",
    "looking",
    "register_source",
    "summary",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
