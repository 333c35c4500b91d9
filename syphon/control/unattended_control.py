"""The control of a slot that cannot reach its driver: it answers the slot itself, and its reports travel with the
result of the slot's task (`SlotReporting.AT_END`).

A managed platform may let executors reach no port of the driver. Then no order reaches a slot, and nothing is known of
it before its task ends, or ever if it is killed. So its lease is short.
"""

from __future__ import annotations

from collections.abc import Iterable

from .protocol import HandOver, QueueReport, SlotOrder, SlotReport
from .slot_control import SlotControl


class UnattendedControl:
    """Answers the reports of one attempt, with a rate and with congestion control of its own, and keeps them."""

    def __init__(self, first: SlotReport, queues: tuple[HandOver, ...], rate: float | None, share: float) -> None:
        """`first` is a report of the attempt that says who it is; `share` is `PairSettings.rate_share`."""
        self._control = SlotControl()
        self._control.open_job(first.job, queues)
        self._control.set_rate(first.pair, rate, share)
        self._last = first
        # Of earlier attempts nothing is known, but that they were killed.
        served = tuple(QueueReport(queue=handed.queue) for handed in queues)
        self._killed = [first.model_copy(update={"attempt": each, "queues": served}) for each in range(first.attempt)]

    def post(self, report: SlotReport) -> SlotOrder:
        self._last = report
        order = self._control.receive(report)
        return (
            order.model_copy(update={"killed": tuple(each.queue for each in order.queues)}) if self._killed else order
        )

    def result(self) -> list[bytes]:
        """The rows that the slot has reported, and its last report: they become the result of its task."""
        rows = self._control.rows_of(self._last.job)
        reports = [each.model_copy(update={"rows": ()}) for each in (*self._killed, self._last)]
        return [*rows, *(each.model_dump_json().encode() for each in reports)]

    def close(self) -> None:
        """There is no connection to close."""


def split_result(files: Iterable[bytes]) -> tuple[list[bytes], list[SlotReport]]:
    """The rows in the results of tasks, and the reports of unattended slots."""
    rows, reports = list[bytes](), list[SlotReport]()
    for file in files:
        if file.startswith(b"{"):  # a file of rows begins with PAR1
            reports.append(SlotReport.model_validate_json(file))
        else:
            rows.append(file)
    return rows, reports
