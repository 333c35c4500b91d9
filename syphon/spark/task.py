"""A slot: one pump on one backlog queue, as a task of a Spark job runs it.

This is what is shipped to executors. A slot opens its own pair of namespaces, carries messages until its queue is
quiet or its lease is over, reports to the driver about once a second, and yields one row per transfer. Messages
themselves never leave the process: not into the JVM, not into a shuffle, not into a log (D2, D3).
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from syphon.bus import Pair, SideFault, Status, namespace_of
from syphon.config import PairSettings
from syphon.ledger import Origin, transfer_rows
from syphon.model import MOST_DESTINATIONS, EntityPath, Faulted, Outcome, Stats, SyphonError
from syphon.transfer import DestinationBackoff, Pump, PumpOptions, wall_clock

from .control_protocol import ControlAddress, SlotOrder, SlotReport

if TYPE_CHECKING:
    import pyarrow as pa

Task: TypeAlias = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""What Spark runs."""
UNHEARD = (OSError, http.client.HTTPException, ValueError)
"""What a report that does not arrive, or an answer that makes no sense, raises."""
REPORT_EVERY = 1.0
SILENCE = 5.0
"""Seconds without an answer from the driver after which a slot stops: nobody would hear of what it does."""
MOST_WAITING = 500
"""Destinations of which the driver is told that they wait: a sheet has to fit the desk, whatever messages name."""
ROWS = 2000
"""Outcomes that become rows together."""


class DriverUnreachable(SyphonError):
    """The driver's desk cannot be reached from where the task runs."""


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """What one slot is to do."""

    pair: PairSettings
    queue: str
    job: str
    options: PumpOptions
    desk: ControlAddress
    rate: float | None = None
    """Until the driver says otherwise."""
    waiting: tuple[DestinationBackoff, ...] = ()
    """Destinations that are to be left alone, as the driver knows from earlier slots."""


def slots(assignments: list[SlotAssignment]) -> Task:
    """The function that Spark runs: a row of its input is the number of an assignment."""

    def carry(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from Slot(assignments[number], number, attempt).rows()

    return carry


def warm_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """No rows, and everything loaded that rows are made with: the next job finds this process ready.

    It reads its input to the end, as slots do: a worker that does not is thrown away.
    """
    for _ in batches:
        yield transfer_rows([], Origin("", "", 0, 0))


class Slot:
    """An assignment, being carried out."""

    def __init__(self, assignment: SlotAssignment, number: int, attempt: int) -> None:
        self._origin = Origin(assignment.pair.name, assignment.job, number, attempt)
        self._outcomes: list[Outcome] = []
        pair = assignment.pair
        self._pair = Pair(
            namespace_of(pair.primary, pair.home_entity),
            namespace_of(pair.secondary, assignment.queue),
        )
        self._paused: tuple[str, ...] = ()
        self._census = Stats()
        self._pump = Pump(assignment.queue, self._pair.secondary, self._pair.primary, self._record, assignment.options)
        self._census.send = self._pump.destinations.send_times
        self._pump.rate = assignment.rate
        for destination in assignment.waiting:
            self._pump.back_off(destination)
        sheet = SlotReport(
            pair=pair.name,
            queue=assignment.queue,
            job=assignment.job,
            slot=number,
            attempt=attempt,
            started_at=wall_clock(),
            stats=self._census,
        )
        self._reporter = Reporter(assignment.desk, self._pump, sheet)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Carries messages home, and tells what became of each."""
        self._reporter.start()
        self._obey()
        error: SyphonError | None = None
        try:
            for _ in self._pump.turns():
                self._pair.check()
                self._obey()
                if len(self._outcomes) >= ROWS:
                    yield self._taken()
        except SyphonError as caught:
            # Told to the driver, which knows what to do; Spark would only start the same task again.
            error = caught
        except BaseException:
            # A mistake of ours, or nobody reads on. Spark drops this attempt's rows, so it must not count as finished.
            self._close()
            self._reporter.end(finished=False)
            raise
        # The side that faulted first says why, not the one that had to follow.
        fault = self._fault(self._pair.fault or error) if isinstance(error, Faulted) else None
        self._close()
        self._reporter.end(finished=True, error="" if error is None else str(error), fault=fault)
        while self._outcomes:
            yield self._taken()

    def _close(self) -> None:
        for side in self._pair.sides:
            side.close()

    def _obey(self) -> None:
        """Takes over which destinations are paused. In the pump's thread: the reporter has another one."""
        if self._reporter.paused != self._paused:
            self._paused = self._reporter.paused
            self._pump.pause(frozenset(map(EntityPath.of, self._paused)))

    def _record(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        self._census.note(outcome)

    def _taken(self) -> pa.RecordBatch:
        taken = self._outcomes[:ROWS]
        del self._outcomes[:ROWS]
        return transfer_rows(taken, self._origin)

    def _fault(self, error: SyphonError) -> SideFault:
        """Which side it is; the driver applies the pair's rule (C1), and ends the worker."""
        primary = self._pair.primary.status is Status.FAULTED
        return SideFault.of("primary" if primary else "secondary", error)


class Reporter:
    """Tells the driver how a pump is getting on, and the pump what the driver wants."""

    def __init__(self, desk: ControlAddress, pump: Pump, sheet: SlotReport) -> None:
        self._desk = desk
        self._pump = pump
        self._sheet = sheet
        self._over = threading.Event()
        self.paused: tuple[str, ...] = ()
        """Destinations that are to be left alone, as last heard."""
        self._heard_at = time.monotonic()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._report, name="reporter", daemon=True)

    def start(self) -> None:
        # The first report is made before the first message is taken: a job that is over takes none, and where nobody
        # hears of it nothing is done at all. Spark tries the task again, and tells the driver if that does not help.
        try:
            self._obey(self._post())
        except UNHEARD as error:
            self._hang_up()
            where = f"{self._desk.host}:{self._desk.port}"
            raise DriverUnreachable(f"The driver does not answer at {where}: {type(error).__name__} {error}") from None
        self._thread.start()

    def end(self, finished: bool, error: str = "", fault: SideFault | None = None) -> None:
        """The last words of this attempt."""
        self._over.set()
        self._thread.join()
        sheet = self._sheet
        sheet.finished, sheet.fault, sheet.error, sheet.ended = finished, fault, error, self._pump.counters.ended
        self._exchange()
        self._hang_up()

    def _report(self) -> None:
        while not self._over.wait(REPORT_EVERY):
            self._exchange()

    def _exchange(self) -> None:
        try:
            order = self._post()
        except UNHEARD:
            self._hang_up()
            if time.monotonic() - self._heard_at > SILENCE:
                self._pump.stop()
            return
        self._obey(order)

    def _obey(self, order: SlotOrder) -> None:
        self._heard_at = time.monotonic()
        self._pump.rate, self.paused = order.rate, order.paused
        self._pump.traces.are_wanted = order.traces
        if order.stop:
            self._pump.stop()

    def _post(self) -> SlotOrder:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._desk.host, self._desk.port, timeout=SILENCE / 2)
        headers = {"Authorization": f"Bearer {self._desk.secret}", "Content-Type": "application/json"}
        self._connection.request("POST", "/sheet", self._filled_in().model_dump_json().encode(), headers)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise http.client.HTTPException(f"the driver answered {response.status}")
        return SlotOrder.model_validate_json(body)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _filled_in(self) -> SlotReport:
        tally, sheet = self._pump.counters, self._sheet
        sheet.counters, sheet.in_hand, sheet.busy = tally.counters(), tally.in_hand, tally.busy
        sheet.waiting = tuple(self._pump.backing_off()[:MOST_WAITING])
        sheet.traces = self._pump.traces.take()
        sheet.closed = tuple(self._pump.rejecting()[:MOST_DESTINATIONS])
        return sheet
