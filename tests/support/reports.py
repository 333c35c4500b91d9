"""Reports as values, for tests that show one without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from syphon.ledger.report_values import (
    Band,
    DestinationReport,
    Hour,
    Messages,
    OpenJobReport,
    OrderViolation,
    ReasonCount,
    Renamed,
    Repeat,
    Report,
    Sessions,
    Shortfall,
    Spread,
    Timeline,
    TimelineStep,
    Transfers,
)
from syphon.ledger.rows import Period
from syphon.model import Counters

NOON = datetime(2026, 10, 5, 12, tzinfo=UTC)
QUEUE = "contoso/x-servicebus-transfer/0"


def a_report(destination: str = "orders", reason: str = "MessageTooLarge", message_id: str = "m-1") -> Report:
    """A report with an entry in every list. The arguments are texts that come with messages."""
    example = f"{reason}: more of it, {reason}"
    line = ReasonCount(reason, destination, 7, NOON, NOON, example)
    return Report(
        ledger="/var/lib/syphon/ledger",
        period=Period(),
        pair=None,
        pairs=["contoso"],
        first=NOON,
        last=NOON + timedelta(minutes=2),
        first_enqueued=NOON - timedelta(hours=2),
        last_enqueued=NOON - timedelta(hours=1),
        transfers=Transfers(
            received=1_221, forwarded=1_200, dead_lettered=7, left=9, possible_duplicates=2, bytes=1_500_000
        ),
        messages=Messages(1_199, 7, 3, 1, 1, 6),
        in_backlog=Spread(90, 4_000, 90_000),
        waits=[Band(60, 0), Band(300, 1_000), Band(3_600, 0), Band(None, 199)],
        timeline=Timeline(60, [TimelineStep(NOON, 1_150, 7, 0), TimelineStep(NOON + timedelta(minutes=1), 0, 0, 0)]),
        destinations=[
            DestinationReport(destination, 1_209, 1_199, 7, 3, 2, 1, 1_500_000, Spread(1, 2, 3), Spread(0.1, 0.2, 3))
        ],
        renames=[Renamed(destination, "orders-v2", 1_209, 1_199)],
        hours=[Hour(NOON, destination, 1_200, 7, 9)],
        dead_letters=[line],
        left=[line],
        repeats=[Repeat("contoso", QUEUE, 42, message_id, destination, 2)],
        sessions=Sessions(1_204, 1),
        order_violations=[OrderViolation("contoso", destination, message_id, 40, 2)],
        shortfalls=[Shortfall("contoso", QUEUE, "job-3", 1, 0, NOON, 5, 5, 3, reason)],
        open_jobs=[an_open_job(destination)],
        unreadable_files=["file:/var/lib/syphon/ledger/part-1.parquet"],
    )


def an_open_job(queue: str = QUEUE, may_be_running: bool = False) -> OpenJobReport:
    return OpenJobReport(
        "contoso", "job-5", 2, NOON, NOON, "worker-1", 4711, {queue: Counters(12, 10, 1, 0)}, may_be_running
    )


def an_empty_report() -> Report:
    return Report(
        "/ledger",
        Period(),
        None,
        [],
        None,
        None,
        None,
        None,
        Transfers(),
        Messages(0, 0, 0, 0, 0, 0),
        None,
        [],
        Timeline(60, []),
        [],
        [],
        [],
        [],
        [],
        [],
        Sessions(0, 0),
        [],
        [],
        [],
        [],
    )
