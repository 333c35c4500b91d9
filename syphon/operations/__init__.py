"""The commands as Python functions: drain, dry run, inspect and report, with typed results.

`syphon` exports the functions themselves. Nothing here prints, asks, sets up logs or ends the process: that belongs to
the commands, which call the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syphon.lazy_exports import exported_names, lazy_exports

if TYPE_CHECKING:
    from .dead_letter_counts import EntityDeadLetters as EntityDeadLetters
    from .dead_letter_counts import dead_letters_of_namespace as dead_letters_of_namespace
    from .drain_dry_run import DryRun as DryRun
    from .drain_dry_run import dry_run as dry_run
    from .drain_dry_run import exit_code_of_error as exit_code_of_error
    from .drain_dry_run import forecast as forecast
    from .drain_run import DrainInterrupted as DrainInterrupted
    from .drain_run import DrainRun as DrainRun
    from .drain_run import drain as drain
    from .drain_run import queues_to_drain as queues_to_drain
    from .drain_summary import DestinationResult as DestinationResult
    from .drain_summary import DrainSummary as DrainSummary
    from .drain_summary import QueueResult as QueueResult
    from .drain_summary import scheduled_text as scheduled_text
    from .drain_summary import word_for as word_for
    from .drain_summary import words_for as words_for
    from .drill import AdministeredEntity as AdministeredEntity
    from .drill import Drill as Drill
    from .drill import drill_of as drill_of
    from .inspection import BacklogAnswer as BacklogAnswer
    from .inspection import BacklogOverview as BacklogOverview
    from .inspection import Reach as Reach
    from .inspection import UnseenQueue as UnseenQueue
    from .inspection import inspect as inspect
    from .inspection import json_rows as json_rows
    from .inspection import look_at_backlog as look_at_backlog
    from .inspection import query_backlog as query_backlog
    from .inspection import reach_queues as reach_queues
    from .inspection import text_rows as text_rows
    from .ledger_report import ask_ledger as ask_ledger
    from .ledger_report import check_period as check_period
    from .ledger_report import is_local as is_local
    from .ledger_report import past_runs as past_runs
    from .ledger_report import report as report
    from .move_dry_run import MoveForecast as MoveForecast
    from .move_dry_run import move_forecast as move_forecast
    from .move_run import MoveRun as MoveRun
    from .move_run import PlannedMove as PlannedMove
    from .move_run import move as move
    from .move_run import planned_move as planned_move
else:
    _MODULES = {
        "dead_letter_counts": ("EntityDeadLetters", "dead_letters_of_namespace"),
        "drain_dry_run": ("DryRun", "dry_run", "exit_code_of_error", "forecast"),
        "drain_run": ("DrainInterrupted", "DrainRun", "drain", "queues_to_drain"),
        "drain_summary": (
            "DestinationResult",
            "DrainSummary",
            "QueueResult",
            "scheduled_text",
            "word_for",
            "words_for",
        ),
        "drill": ("AdministeredEntity", "Drill", "drill_of"),
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
        "ledger_report": ("ask_ledger", "check_period", "is_local", "past_runs", "report"),
        "move_dry_run": ("MoveForecast", "move_forecast"),
        "move_run": ("MoveRun", "PlannedMove", "move", "planned_move"),
    }
    __all__ = exported_names(_MODULES)
    __getattr__ = lazy_exports(__name__, _MODULES)
