"""The ledger: what happened to every message, as Parquet; its schema, its writer, and the report on it."""

from .html import html_page
from .queries import query_report
from .report import DestinationReport, Hour, Period, ReasonCount, Repeat, Report, Shortfall, Spread, report_as_json
from .schema import TRANSFERS, Attempt, Origin, transfer_rows
from .store import Ledger
from .writer import LedgerWriter, unpersist_rows

__all__ = [
    "Attempt",
    "DestinationReport",
    "Hour",
    "Ledger",
    "LedgerWriter",
    "Origin",
    "Period",
    "ReasonCount",
    "Repeat",
    "Report",
    "Shortfall",
    "Spread",
    "TRANSFERS",
    "html_page",
    "query_report",
    "report_as_json",
    "transfer_rows",
    "unpersist_rows",
]
