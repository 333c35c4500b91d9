"""The commands as Python functions: drain, dry run, inspect and report, with typed results.

`syphon` exports the functions themselves. Nothing here prints, asks, sets up logs or ends the process: that belongs to
the commands, which call the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from .arguments import ConfigLike, settings_of
    from .drain_dry_run import DryRun, dry_run, forecast
    from .drain_run import DrainInterrupted, DrainRun, drain, queues_to_drain
    from .drain_summary import Account, DestinationResult, DrainSummary, QueueResult
    from .give_up import word_for, words_for
    from .inspection import (
        BacklogAnswer,
        BacklogOverview,
        Reach,
        UnseenQueue,
        inspect,
        json_rows,
        look_at_backlog,
        query_backlog,
        reach_queues,
        text_rows,
    )
    from .ledger_report import ask_ledger, check_period, is_local, report

_MODULES = {
    "arguments": (
        "ConfigLike",
        "settings_of",
    ),
    "drain_dry_run": (
        "DryRun",
        "dry_run",
        "forecast",
    ),
    "drain_run": (
        "DrainInterrupted",
        "DrainRun",
        "drain",
        "queues_to_drain",
    ),
    "drain_summary": (
        "Account",
        "DestinationResult",
        "DrainSummary",
        "QueueResult",
    ),
    "give_up": (
        "word_for",
        "words_for",
    ),
    "inspection": (
        "BacklogAnswer",
        "BacklogOverview",
        "Reach",
        "UnseenQueue",
        "inspect",
        "json_rows",
        "look_at_backlog",
        "query_backlog",
        "reach_queues",
        "text_rows",
    ),
    "ledger_report": (
        "ask_ledger",
        "check_period",
        "is_local",
        "report",
    ),
}
__all__ = [
    "Account",
    "BacklogAnswer",
    "BacklogOverview",
    "ConfigLike",
    "DestinationResult",
    "DrainInterrupted",
    "DrainRun",
    "DrainSummary",
    "DryRun",
    "QueueResult",
    "Reach",
    "UnseenQueue",
    "ask_ledger",
    "check_period",
    "drain",
    "dry_run",
    "forecast",
    "inspect",
    "is_local",
    "json_rows",
    "look_at_backlog",
    "query_backlog",
    "queues_to_drain",
    "reach_queues",
    "report",
    "settings_of",
    "text_rows",
    "word_for",
    "words_for",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, _MODULES)
