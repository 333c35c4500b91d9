"""The ledger: what happened to every message, as Parquet; its schema, its writer, and the report on it."""

from .ledger import Ledger, LedgerUnreadable, LedgerUnwritable, check_ledger, check_ledger_path
from .parquet import avoid_loading_pandas, packed_file
from .parquet_process import ParquetProcess
from .reader import LocalReader, SparkReader
from .report_html import html_page
from .report_query import query_report
from .report_values import (
    DestinationReport,
    Hour,
    OpenJobReport,
    OrderViolation,
    ReasonCount,
    Renamed,
    Repeat,
    Report,
    Shortfall,
    Spread,
)
from .rows import Attempt, OpenJob, Period
from .runs import RunRecord
from .writer import LedgerWriter

__all__ = [
    "Attempt",
    "DestinationReport",
    "Hour",
    "Ledger",
    "LedgerUnreadable",
    "LedgerUnwritable",
    "LedgerWriter",
    "LocalReader",
    "OpenJob",
    "OpenJobReport",
    "OrderViolation",
    "ParquetProcess",
    "Period",
    "ReasonCount",
    "Renamed",
    "Repeat",
    "Report",
    "RunRecord",
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
