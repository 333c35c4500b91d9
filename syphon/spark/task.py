"""A slot: one pump that serves backlog queues of one pair, as a task of a Spark job runs it (D15).

Spark ships this module to executors. A slot opens its own pair of namespaces, moves messages of the queues that the
driver hands to it until they are quiet or its lease ends, and reports to the driver about once per second. Its outcomes
are packed as small files of the ledger: the driver gets them with its reports, and the last ones as the task's result.
Messages never leave the process: neither into the JVM, nor into a
shuffle, nor into a log (D2, D3).

Spark's Python daemon preloads this module, so nothing here may import pyspark, pyarrow or pandas at module level:
Arrow is loaded when the first rows are packed, after messages have moved.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias

from syphon.config import PairSettings
from syphon.control import (
    ControlAddress,
    ControlClient,
    DriverUnreachable,
    HandOver,
    HttpControlClient,
    QueueReport,
    Reporter,
    SlotOrder,
    SlotReport,
    Traffic,
    UnattendedControl,
)
from syphon.ledger import packed_file
from syphon.model import MOST_DESTINATIONS, AttemptKey, Durations, EntityPath, Faulted, Outcome, Stats, SyphonError
from syphon.servicebus import RUNTIME, NamespaceStatus, Pair, Runtime, SideFault, namespace_of
from syphon.time_budget import COUNTED_AFTER, ROWS_SENT_EVERY, SATURATED_AFTER
from syphon.transfer import Congestion, DestinationBackoff, Pump, PumpOptions, QueueTransfer

Task: TypeAlias = Callable[[Iterable[int]], Iterator[bytes]]
"""What a task of a Spark job does: it gets the numbers of its slots, and yields files of the ledger."""
MOST_BACKING_OFF = 500
"""Destinations in a report that back off: a report must not exceed the size that the control server accepts."""
ROWS = 20_000
"""Outcomes in one packed file."""
COUNTED_AT_ONCE = 1000
"""Outcomes that wait to be counted, at most; if there are fewer, they are counted after `COUNTED_AFTER` seconds."""
YOUNG_OBJECTS = 20_000
"""New objects after which Python collects garbage in a slot, 700 by default. A pump holds tens of thousands of objects,
and makes hardly any garbage that must be collected."""
MOST_OF_A_CORE = 0.85


@dataclass(frozen=True, slots=True)
class SlotAssignment:
    """The work of one slot."""

    pair: PairSettings
    queues: tuple[HandOver, ...]
    """The queues that it serves first. The driver may hand it others later."""
    job: str
    options: PumpOptions
    control: ControlAddress | None
    """None if slots report with the results of their tasks."""
    rate: float | None = None
    """The rate until the driver orders another one."""
    backing_off: tuple[DestinationBackoff, ...] = ()
    """Unavailable destinations, as the driver knows from earlier slots."""


def slot_task(assignments: list[SlotAssignment]) -> Task:
    """The task of a job: its input are numbers of assignments."""

    def run_slots(numbers: Iterable[int]) -> Iterator[bytes]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt, task = (context.attemptNumber(), context.taskAttemptId()) if context is not None else (0, None)
        with _rare_garbage_collection():
            for number in numbers:
                yield from Slot(assignments[number], number, attempt, task=task).rows()

    return run_slots


def warm_up(numbers: Iterable[int]) -> Iterator[bytes]:
    """Moves no messages, and loads everything that rows are made with: the next job finds this process ready.

    It reads its input to the end, as slots do: Spark discards a Python worker that does not.
    """
    for _ in numbers:
        packed_file([], AttemptKey("", "", 0, 0))
    yield from ()


def reach_task(address: ControlAddress) -> Task:
    """A task that reports to the driver, and moves no messages. It yields why the driver does not answer, if so."""

    def report(numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            report_of = partial(SlotReport, pair="", job="", slot=number, attempt=0, started_at=0)
            reporter = Reporter(HttpControlClient(address), report_of, on_silence=lambda: None)
            try:
                reporter.start()
                reporter.end()
            except DriverUnreachable as error:
                yield str(error).encode()

    return report


@contextmanager
def _rare_garbage_collection() -> Iterator[None]:
    """Lets Python collect garbage less often, and never in what the process had loaded before its first slot."""
    thresholds = gc.get_threshold()
    _freeze_once()
    gc.set_threshold(YOUNG_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@cache
def _freeze_once() -> None:
    # Not with each slot: garbage of earlier tasks would never be found.
    gc.freeze()


@dataclass(slots=True)
class Load:
    """Whether a slot has more to do than it can: its window is full, or it uses most of a core, for some seconds."""

    since: float
    cpu: float
    full_since: float | None = None
    uses_a_core: bool = False

    def turned(self, window_is_full: bool, now: float, cpu: float) -> None:
        """Counts one turn of the pump. Only in the pump's thread: `cpu` is the time that this thread has used."""
        if not window_is_full:
            self.full_since = None
        elif self.full_since is None:
            self.full_since = now
        if now - self.since >= SATURATED_AFTER:
            self.uses_a_core = (cpu - self.cpu) / (now - self.since) > MOST_OF_A_CORE
            self.since, self.cpu = now, cpu

    def is_saturated(self, now: float) -> bool:
        return self.uses_a_core or (self.full_since is not None and now - self.full_since >= SATURATED_AFTER)


def _traffic(congestion: Congestion, now: float) -> Traffic:
    return Traffic(
        per_second=congestion.per_second(now),
        busy_answers=congestion.busy_answers,
        batch=congestion.refused_batch,
        is_binding=congestion.is_binding(now),
    )


class Slot:
    """Carries out an assignment."""

    def __init__(
        self,
        assignment: SlotAssignment,
        number: int,
        attempt: int,
        *,
        task: int | None = None,
        namespaces: Pair | None = None,
        control: ControlClient | None = None,
        runtime: Runtime = RUNTIME,
    ) -> None:
        """`task` is Spark's number of the attempt. The others are for a simulation, which has its own (D18)."""
        pair = assignment.pair
        self._origin = AttemptKey(pair.name, assignment.job, number, attempt)
        self._outcomes: list[Outcome] = []
        """What happened to messages, and is not packed yet."""
        self._counted = 0
        """How many of these are in the statistics."""
        self._counted_at = 0.0
        self._unconfirmed: list[bytes] = []
        """Rows that were sent to the driver, which has not confirmed them."""
        self._pair = namespaces or Pair(
            namespace_of(pair.primary, pair.primary_entity),
            namespace_of(pair.secondary, assignment.queues[0].queue),
        )
        self._runtime = runtime
        self._pump = Pump(
            self._pair.secondary,
            self._pair.primary,
            self._outcomes.append,
            assignment.options,
            runtime.now,
            wait=runtime.wait,
            wall=runtime.wall,
        )
        self._pump.limit_rate(assignment.rate)
        for destination in assignment.backing_off:
            self._pump.back_off(destination)
        self._stats: dict[str, Stats] = {}
        self._accepted: dict[str, int] = {}
        """The number of the last hand-over of each queue."""
        self._paused: tuple[str, ...] = ()
        self._retries = 0
        """The operator's requests to retry destinations that it has followed."""
        self._followed: SlotOrder | None = None
        self._load = Load(runtime.now(), runtime.cpu())
        self._sending = self._receiving = Traffic()
        self._report = SlotReport(
            pair=pair.name, job=assignment.job, slot=number, attempt=attempt, task=task, started_at=runtime.wall()
        )
        self._unattended: UnattendedControl | None = None
        if control is None and assignment.control is not None:
            control = HttpControlClient(assignment.control)
        elif control is None:
            control = self._unattended = UnattendedControl(
                self._report, assignment.queues, assignment.rate, pair.rate_share
            )
        self._reporter = Reporter(
            control,
            self._updated_report,
            self._pump.stop,
            assignment.options.linger > 0,
            runtime,
        )
        for handed in assignment.queues:
            self._serve(handed)

    def rows(self) -> Iterator[bytes]:
        """Moves messages, and yields what happened to them, packed, as far as the driver has not confirmed it."""
        sent_at = self._runtime.now()
        with closing(self.turns()) as turns:
            for _ in turns:
                is_due = self._runtime.now() - sent_at >= ROWS_SENT_EVERY
                if len(self._outcomes) >= ROWS or (is_due and self._outcomes):
                    sent_at, file = self._runtime.now(), self._next_rows()
                    if not self._reporter.send_rows(file):
                        yield file
        yield from self._unconfirmed
        while self._outcomes:
            yield self._next_rows()
        yield from () if self._unattended is None else self._unattended.result()

    def turns(self) -> Generator[None, None, None]:
        """Moves messages one turn of the pump at a time, and keeps what happened to them."""
        self._reporter.start()
        error: SyphonError | None = None
        try:
            try:
                self._follow(self._reporter.order)
                for _ in self._pump.turns():
                    self._turned()
                    yield
            except SyphonError as caught:
                # The driver gets the error and decides; Spark would only start the same task again.
                error = caught
            self._count(self._runtime.now())
        except BaseException:
            # A bug, or Spark reads no more rows: it drops the rows of this attempt, which must not count as finished.
            self._close()
            self._reporter.end()
            raise
        # The side that faulted first knows the reason; the other side only followed.
        fault = self._fault(self._pair.fault or error) if isinstance(error, Faulted) else None
        self._close()
        self._report.finished, self._report.fault = True, fault
        self._report.error = "" if error is None else str(error)
        self._unconfirmed = self._reporter.end()

    def _turned(self) -> None:
        """Does what is due between two turns of the pump."""
        self._pair.check()
        if self._pair.fault is not None:
            # Reported at once: to abandon the messages in flight may take longer than the worker has (X9).
            self._report.fault = self._fault(self._pair.fault)
        self._follow(self._reporter.order)
        now = self._runtime.now()
        self._load.turned(self._pump.window_is_full, now, self._runtime.cpu())
        if len(self._outcomes) - self._counted >= COUNTED_AT_ONCE or now - self._counted_at >= COUNTED_AFTER:
            self._count(now)
            # Here and not with the report, which another thread makes.
            self._sending = _traffic(self._pump.destinations.congestion, now)
            self._receiving = _traffic(self._pump.source_congestion, now)

    def _close(self) -> None:
        for side in self._pair.sides:
            side.close()

    # --- orders, in the pump's thread ----------------------------------------------------------------------------

    def _follow(self, order: SlotOrder) -> None:
        """Follows the newest order. Orders arrive in the reporter's thread; only this one uses the pump."""
        self._pump.limit_rate(order.rate)
        if order is not self._followed:
            self._followed = order
            self._pump.destinations.congestion.follow(order.send_limit, order.send_busy_heard)
            self._pump.source_congestion.follow(order.receive_limit, order.receive_busy_heard)
        self._pump.traces.enable(order.traces)
        if order.stop:
            self._pump.stop()
            return
        if order.paused != self._paused:
            self._paused = order.paused
            self._pump.pause(frozenset(map(EntityPath.of, order.paused)))
        if order.retries > self._retries:
            for path in order.retried:
                self._pump.retry(EntityPath.of(path))
            self._retries = order.retries
        for queue in order.released:
            if queue in self._pump.queues and self._pump.queues[queue].is_served:
                self._pump.release(queue)
        for handed in order.queues:
            self._serve(handed)
        for queue in order.killed:
            if queue in self._pump.queues:
                self._pump.queues[queue].unsettled.follows_a_kill = True

    def _serve(self, handed: HandOver) -> None:
        if handed.number <= self._accepted.get(handed.queue, 0) or not self._pump.accepting:
            return
        # How long destinations take to answer is counted for the whole slot: it is kept with its first queue.
        send = Durations() if self._stats else self._pump.destinations.send_times
        self._stats.setdefault(handed.queue, Stats(send=send))
        for backoff in handed.failing:
            self._pump.back_off(backoff)
        self._pump.serve(handed.queue, deferred=handed.deferred, waiting=handed.waiting)
        # Last: the reporter's thread must not report the end of the service before as that of this one.
        self._accepted[handed.queue] = handed.number

    # --- outcomes and reports ------------------------------------------------------------------------------------

    def _count(self, now: float) -> None:
        """Adds the new outcomes to the statistics. Many at once cost less than one by one."""
        new = self._outcomes[self._counted :]
        self._counted, self._counted_at = len(self._outcomes), now
        for queue, outcomes in groupby(new, attrgetter("queue")):
            self._stats[queue].count_all(list(outcomes))

    def _next_rows(self) -> bytes:
        self._count(self._runtime.now())
        taken = self._outcomes[:ROWS]
        del self._outcomes[:ROWS]
        self._counted -= len(taken)
        return packed_file(taken, self._origin)

    def _fault(self, error: SyphonError) -> SideFault:
        """Names the side that faulted; the driver applies the rule of the pair (C1) and ends the worker."""
        primary = self._pair.primary.status is NamespaceStatus.FAULTED
        return SideFault.of("primary" if primary else "secondary", error)

    def _updated_report(self) -> SlotReport:
        """Brings the report up to date. The reporter's thread calls it."""
        pump, report = self._pump, self._report
        report.reported_at = self._runtime.wall()
        report.retries = self._retries  # first: the back-offs that follow may be newer, but not older
        report.queues = tuple(self._queue_report(queue) for queue in list(pump.queues.values()))
        report.backing_off = tuple(pump.backing_off()[:MOST_BACKING_OFF])
        report.rejecting = tuple(pump.rejecting()[:MOST_DESTINATIONS])
        report.recovered = tuple(pump.destinations.recovered()[:MOST_BACKING_OFF])
        report.traces = pump.traces.take()
        report.is_accepting, report.is_primary_connected = pump.accepting, pump.is_primary_connected
        report.primary_error = str(pump.primary_error or "")
        report.sending, report.receiving = self._sending, self._receiving
        report.is_saturated = self._load.is_saturated(self._runtime.now())
        return report

    def _queue_report(self, queue: QueueTransfer) -> QueueReport:
        return QueueReport(
            queue=queue.queue,
            number=self._accepted.get(queue.queue, 0),
            is_served=queue.is_served,
            ended=queue.ended,
            counters=queue.counters.counters(),
            in_flight=queue.counters.in_flight,
            held_sessions=0 if queue.order is None else queue.order.held_sessions,
            stats=self._stats[queue.queue],
            error="" if queue.error is None else str(queue.error),
        )
