"""Service Bus as tables and streams of Spark: the data source `servicebus`, the backlog and the ledger (docs/spark.md).

Public are `register_source`, `ServiceBusDataSource`, `backlog` and `ledger`. Only `source`, `read` and `write` need
Spark 4; `inspect` uses the modules below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .backlog_query import VIEW as VIEW
    from .backlog_query import BadQuery as BadQuery
    from .backlog_query import answer_query as answer_query
    from .backlog_query import asking as asking
    from .dataframes import DeadLetterPreview as DeadLetterPreview
    from .dataframes import DestinationSummary as DestinationSummary
    from .dataframes import backlog as backlog
    from .dataframes import backlog_frame as backlog_frame
    from .dataframes import dead_letter_previews as dead_letter_previews
    from .dataframes import larger_than as larger_than
    from .dataframes import ledger as ledger
    from .dataframes import looking as looking
    from .dataframes import summary as summary
    from .source import ServiceBusDataSource as ServiceBusDataSource
    from .source import SparkTooOld as SparkTooOld
    from .source import register_source as register_source
else:
    _MODULES = {
        "backlog_query": ("BadQuery", "VIEW", "answer_query", "asking"),
        "dataframes": (
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
