"""The ledger: what happened to every message, as Parquet; its schema, its writer, and the report on it."""

from .check import LedgerFinding, check_ledger
from .html import html_page
from .local_reader import LocalReader
from .parquet import packed_file
from .queries import query_report
from .report import (
    DestinationReport,
    Hour,
    OpenJobReport,
    Period,
    ReasonCount,
    Renamed,
    Repeat,
    Report,
    Shortfall,
    Spread,
)
from .rows import Attempt, OpenJob, Origin
from .spark_reader import SparkReader
from .store import Ledger, LedgerUnreadable, check_ledger_path
from .without_pandas import avoid_loading_pandas
from .writer import LedgerWriter

__all__ = [
    "Attempt",
    "DestinationReport",
    "Hour",
    "Ledger",
    "LedgerFinding",
    "LedgerUnreadable",
    "LedgerWriter",
    "LocalReader",
    "OpenJob",
    "OpenJobReport",
    "Origin",
    "Period",
    "ReasonCount",
    "Renamed",
    "Repeat",
    "Report",
    "Shortfall",
    "SparkReader",
    "Spread",
    "avoid_loading_pandas",
    "check_ledger",
    "check_ledger_path",
    "html_page",
    "packed_file",
    "query_report",
]
