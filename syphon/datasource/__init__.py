"""Service Bus as tables and streams of Spark: the data source `servicebus`, the backlog and the ledger (docs/spark.md).

Public are `register_source`, `ServiceBusDataSource`, `backlog` and `ledger`. Only `source`, `read` and `write` need
Spark 4; `inspect` uses the modules below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .backlog_frames import SELECTED as SELECTED
    from .backlog_frames import DeadLetterPreview as DeadLetterPreview
    from .backlog_frames import DestinationSummary as DestinationSummary
    from .backlog_frames import backlog as backlog
    from .backlog_frames import backlog_frame as backlog_frame
    from .backlog_frames import dead_letter_previews as dead_letter_previews
    from .backlog_frames import larger_than as larger_than
    from .backlog_frames import ledger as ledger
    from .backlog_frames import looking as looking
    from .backlog_frames import summary as summary
    from .backlog_sql import VIEW as VIEW
    from .backlog_sql import BadQuery as BadQuery
    from .backlog_sql import answer_query as answer_query
    from .backlog_sql import asking as asking
    from .source import ServiceBusDataSource as ServiceBusDataSource
    from .source import SparkTooOld as SparkTooOld
    from .source import register_source as register_source
else:
    _MODULES = {
        "backlog_sql": ("BadQuery", "VIEW", "answer_query", "asking"),
        "backlog_frames": (
            "SELECTED",
            "DeadLetterPreview",
            "DestinationSummary",
            "backlog_frame",
            "dead_letter_previews",
            "larger_than",
            "looking",
            "summary",
            "backlog",
            "ledger",
        ),
        "source": ("ServiceBusDataSource", "SparkTooOld", "register_source"),
    }
    __all__ = exported_names(_MODULES)
    __getattr__ = lazy_exports(__name__, _MODULES)
