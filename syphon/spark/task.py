"""A slot: one pump on one backlog queue, as a task of a Spark job runs it.

Spark ships this module to executors. A slot opens its own pair of namespaces, moves messages until its queue is quiet
or its lease ends, reports to the driver about once a second, and yields one row per transfer. Messages never leave the
process: neither into the JVM, nor into a shuffle, nor into a log (D2, D3).

Spark's Python daemon preloads this module, so nothing here may import pyspark, pyarrow or pandas at module level.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from syphon.bus import NamespaceStatus, Pair, SideFault, namespace_of
from syphon.config import PairSettings
from syphon.ledger import Origin, transfer_rows
from syphon.model import MOST_DESTINATIONS, EntityPath, Faulted, Outcome, Stats, SyphonError
from syphon.transfer import DestinationBackoff, Pump, PumpOptions, wall_clock

from .control_protocol import REPORT_PATH, ControlAddress, SlotOrder, SlotReport

if TYPE_CHECKING:
    import pyarrow as pa

Task: TypeAlias = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""A function that Spark can run with `mapInArrow`."""
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)
"""Raised when a report does not arrive, or its answer is not valid."""
REPORT_EVERY = 1.0
SILENCE = 5.0
"""Seconds without an answer from the driver after which a slot stops: its work would be on no record."""
MOST_BACKING_OFF = 500
"""Destinations in a report that back off: a report must not exceed the size that the control server accepts."""
ROWS = 2000
"""Outcomes in one batch of rows."""


class DriverUnreachable(SyphonError):
    """The task cannot reach the control server on the driver."""


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The work of one slot."""

    pair: PairSettings
    queue: str
    job: str
    options: PumpOptions
    control: ControlAddress
    rate: float | None = None
    """The rate until the driver orders another one."""
    backing_off: tuple[DestinationBackoff, ...] = ()
    """Destinations that accept nothing now, as the driver knows from earlier slots."""


def slot_task(assignments: list[SlotAssignment]) -> Task:
    """The task of a job: each row of its input is the number of an assignment."""

    def run_slots(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from Slot(assignments[number], number, attempt).rows()

    return run_slots


def warm_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields no rows, and loads everything that rows are made with: the next job finds this process ready.

    It reads its input to the end, as slots do: Spark throws away a Python worker that does not.
    """
    for _ in batches:
        yield transfer_rows([], Origin("", "", 0, 0))


class Slot:
    """Carries out an assignment."""

    def __init__(self, assignment: SlotAssignment, number: int, attempt: int) -> None:
        self._origin = Origin(assignment.pair.name, assignment.job, number, attempt)
        self._outcomes: list[Outcome] = []
        pair = assignment.pair
        self._pair = Pair(
            namespace_of(pair.primary, pair.primary_entity),
            namespace_of(pair.secondary, assignment.queue),
        )
        self._paused: tuple[str, ...] = ()
        self._pump = Pump(self._pair.secondary, self._pair.primary, self._record, assignment.options)
        self._pump.serve(assignment.queue)
        self._stats = Stats(send=self._pump.destinations.send_times)
        self._pump.limit_rate(assignment.rate)
        for destination in assignment.backing_off:
            self._pump.back_off(destination)
        report = SlotReport(
            pair=pair.name,
            queue=assignment.queue,
            job=assignment.job,
            slot=number,
            attempt=attempt,
            started_at=wall_clock(),
            stats=self._stats,
        )
        self._reporter = Reporter(assignment.control, self._pump, report)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Moves messages, and yields what happened to each."""
        self._reporter.start()
        self._apply_pauses()
        error: SyphonError | None = None
        try:
            for _ in self._pump.turns():
                self._pair.check()
                self._apply_pauses()
                if len(self._outcomes) >= ROWS:
                    yield self._next_rows()
        except SyphonError as caught:
            # The driver gets the error and decides; Spark would only start the same task again.
            error = caught
        except BaseException:
            # A bug, or Spark reads no more rows: it drops the rows of this attempt, which must not count as finished.
            self._close()
            self._reporter.end(finished=False)
            raise
        # The side that faulted first knows the reason; the other side only followed.
        fault = self._fault(self._pair.fault or error) if isinstance(error, Faulted) else None
        self._close()
        self._reporter.end(finished=True, error="" if error is None else str(error), fault=fault)
        while self._outcomes:
            yield self._next_rows()

    def _close(self) -> None:
        for side in self._pair.sides:
            side.close()

    def _apply_pauses(self) -> None:
        """Tells the pump which destinations are paused. It runs in the pump's thread; the reporter has another one."""
        if self._reporter.paused != self._paused:
            self._paused = self._reporter.paused
            self._pump.pause(frozenset(map(EntityPath.of, self._paused)))

    def _record(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._stats.note(outcome)

    def _next_rows(self) -> pa.RecordBatch:
        taken = self._outcomes[:ROWS]
        del self._outcomes[:ROWS]
        return transfer_rows(taken, self._origin)

    def _fault(self, error: SyphonError) -> SideFault:
        """Names the side that faulted; the driver applies the rule of the pair (C1) and ends the worker."""
        primary = self._pair.primary.status is NamespaceStatus.FAULTED
        return SideFault.of("primary" if primary else "secondary", error)


class Reporter:
    """Reports the progress of a pump to the driver, and passes the orders of the driver to the pump."""

    def __init__(self, control: ControlAddress, pump: Pump, report: SlotReport) -> None:
        self._control = control
        self._pump = pump
        self._slot_report = report
        self._over = threading.Event()
        self.paused: tuple[str, ...] = ()
        """The paused destinations of the last order."""
        self._heard_at = time.monotonic()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        # The first report goes out before the pump takes its first message: a job that is over must take none, and
        # work that the driver cannot hear of must not be done. Spark retries the task, and then fails the job.
        try:
            self._apply(self._post())
        except NO_ANSWER as error:
            self._disconnect()
            where = f"{self._control.host}:{self._control.port}"
            raise DriverUnreachable(f"The driver does not answer at {where}: {type(error).__name__} {error}") from None
        self._thread.start()

    def end(self, finished: bool, error: str = "", fault: SideFault | None = None) -> None:
        """Sends the last report of this attempt."""
        self._over.set()
        self._thread.join()
        report = self._slot_report
        report.finished, report.fault, report.error = finished, fault, error
        report.ended = self._pump.queues[report.queue].ended
        self._exchange()
        self._disconnect()

    def _run(self) -> None:
        while not self._over.wait(REPORT_EVERY):
            self._exchange()

    def _exchange(self) -> None:
        try:
            order = self._post()
        except NO_ANSWER:
            self._disconnect()
            if time.monotonic() - self._heard_at > SILENCE:
                self._pump.stop()
            return
        self._apply(order)

    def _apply(self, order: SlotOrder) -> None:
        self._heard_at = time.monotonic()
        self.paused = order.paused
        self._pump.limit_rate(order.rate)
        self._pump.traces.enable(order.traces)
        if order.stop:
            self._pump.stop()

    def _post(self) -> SlotOrder:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._control.host, self._control.port, timeout=SILENCE / 2)
        headers = {"Authorization": f"Bearer {self._control.secret}", "Content-Type": "application/json"}
        self._connection.request("POST", REPORT_PATH, self._updated_report().model_dump_json().encode(), headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"the driver answered {response.status}")
        return SlotOrder.model_validate_json(body)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _updated_report(self) -> SlotReport:
        report = self._slot_report
        served, counters = self._pump.queues[report.queue], self._pump.counters
        report.counters, report.in_hand, report.busy = counters.counters(), counters.in_hand, served.busy
        report.backing_off = tuple(self._pump.backing_off()[:MOST_BACKING_OFF])
        report.traces = self._pump.traces.take()
        report.rejecting = tuple(self._pump.rejecting()[:MOST_DESTINATIONS])
        return report
