"""The dispatcher of a pair: which slot serves which of its backlog queues (D15).

The dispatcher hands a queue that rings to a running slot, whatever else that slot does: its pump shares the window
fairly. If no slot runs, it starts a Spark job with one slot. It starts another slot only when every slot is saturated.
When the lease of a slot expires, a successor starts before the slot stops, so that its queues are always served. Idle
slots end by themselves.

One thread turns the dispatcher. Other threads only add events to it: a ring, the end of a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from syphon.control import HandOver, QueueReport, SlotControl, SlotReport
from syphon.model import Counters, EntityPath, SyphonError, duration, plural
from syphon.servicebus import SideFault
from syphon.spark import JobResult, new_job
from syphon.time_budget import FIRST_JOB_RETRY, LONGEST_JOB_RETRY, SHORT_LEASE, SLOT_STARTS_WITHIN
from syphon.transfer import MOST_QUEUES, DestinationBackoff, Ended, Ring, WaitingMessages

from .pausable_gate import PausableGate
from .slots import RunningSlot, SlotBudget, SlotEvent, SlotState


@dataclass(slots=True)
class QueueWork:
    """One backlog queue, as seen by the dispatcher."""

    name: str
    number: int = 0
    """How many times it was handed to a slot."""
    slots: int = 0
    """How many slots serve it."""
    ring: Ring | None = None
    """It has rung, and no slot serves it yet."""
    has_received: bool = False
    """Whether a slot has received a message of it since it was last listened to."""
    trouble: str = ""
    """Why its last service failed; empty if it did not."""
    arm_at: float | None = None
    """When to listen to it again, after a failure."""
    retry: float = FIRST_JOB_RETRY

    @property
    def is_working(self) -> bool:
        return self.slots > 0 or self.ring is not None


log = logging.getLogger(__name__)

MOST_FAILING = 500
"""Failing destinations that are handed to a slot with a queue: an order must stay small."""


class Listening(Protocol):
    """What a dispatcher needs of the pair's listener."""

    def arm(self, queue: str, scan: bool = False) -> None: ...

    def waiting(self, queue: str) -> Mapping[str, WaitingMessages]: ...

    def fault(self, fault: SideFault) -> None: ...

    def reached_primary(self) -> None: ...

    def missed_primary(self) -> None: ...


RunJob = Callable[[str, tuple[HandOver, ...], tuple[DestinationBackoff, ...]], JobResult]
"""Runs one job with one slot on some queues, until it ends."""
Background = Callable[[Callable[[], None]], None]
"""Runs a function concurrently: in a thread, or in a simulated one."""


class Dispatcher:
    """Hands the queues of one pair to slots."""

    def __init__(
        self,
        pair: str,
        queues: tuple[str, ...],
        listening: Listening,
        control: SlotControl,
        *,
        run_job: RunJob,
        backoffs: PausableGate,
        budget: SlotBudget,
        lease: float,
        is_paused: Callable[[str], bool],
        background: Background,
        one_slot_per_queue: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.queues = {queue: QueueWork(queue) for queue in queues}
        self.failure: BaseException | None = None
        """The error that must end the worker."""
        self._pair = pair
        self._listening = listening
        self._control = control
        self._run_job = run_job
        self._backoffs = backoffs
        self._budget = budget
        self._lease = lease
        self._is_paused = is_paused
        self._background = background
        self._one_slot_per_queue = one_slot_per_queue
        self._now = now
        self._slots: dict[str, RunningSlot] = {}
        self._events: deque[Callable[[], None]] = deque()
        self._is_stopping = False
        self.news = threading.Event()
        """Set when there is an event: the owner then turns the dispatcher. Without events it does so regularly."""

    # --- for other threads ---------------------------------------------------------------------------------------

    def ring(self, queue: str, ring: Ring) -> None:
        """A queue has messages."""
        self.queues[queue].ring = ring
        self.news.set()

    def renew(self) -> None:
        """Replaces every slot: the settings of the pair have changed."""
        self._events.append(self._renew)
        self.news.set()

    def stop(self) -> None:
        """Starts no more jobs."""
        self._is_stopping = True

    def end(self) -> None:
        """Starts no more jobs, and stops the running slots."""
        self.stop()
        self.renew()

    @property
    def is_working(self) -> bool:
        return bool(self._slots)

    # --- its own thread ------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Processes events and reports, and hands queues to slots."""
        self.news.clear()
        while self._events:
            self._events.popleft()()
        for slot in list(self._slots.values()):
            self._read(slot)
        if not self._is_stopping:
            self._hand_out()
            self._relieve()
            self._renew_leases()
        self._arm_again()

    def _read(self, slot: RunningSlot) -> None:
        """Reads the newest report of a slot."""
        report = self._control.report_of(slot.job)
        if report is None or (slot.report is not None and report.position <= slot.report.position):
            return
        slot.receive(report, self._now())
        self._record_backoffs(report)
        if report.fault is not None:  # before the slot has abandoned its messages in flight
            self._listening.fault(report.fault)
        if report.is_primary_connected:
            slot.misses_primary = False
            self._listening.reached_primary()
        for handed in list(slot.queues.values()):
            found = report.of(handed.queue)
            if found is not None and found.number >= handed.number:
                # Without a reason the task attempt has died, and Spark retries it or fails the job.
                if not found.is_served and (found.ended is not None or found.error):
                    self._service_ended(slot, found)
            elif not report.is_accepting:
                self._take_back(slot, handed.queue)  # the slot was ending when the order arrived
                self.queues[handed.queue].ring = Ring.NEW

    def _record_backoffs(self, report: SlotReport) -> None:
        """Records which destinations back off, and forgets those that have accepted a message since.

        A slot that has not heard of a retry still reports the back-off that it ends.
        """
        retried = self._control.unheard_retries(report)
        failing = {EntityPath.of(backoff.path).key for backoff in report.backing_off}
        recovered = {EntityPath.of(path).key for path in report.recovered}
        for backoff in self._backoffs.failing():
            key = EntityPath.of(backoff.path).key
            stats = (queue.stats.destinations.get(key) for queue in report.queues)
            has_worked = key in recovered or any(found is not None and found.forwarded for found in stats)
            if key not in failing and has_worked:
                self._backoffs.forget(backoff.path)
        self._backoffs.record(each for each in report.backing_off if EntityPath.of(each.path).key not in retried)

    def _service_ended(self, slot: RunningSlot, report: QueueReport) -> None:
        """Listens to a queue again whose service a slot has ended, or lets another slot serve it."""
        work = self.queues[report.queue]
        received_before = slot.before.get(report.queue, Counters()).received
        # Of all slots that served it: the last one may have received nothing, and another one have deferred messages,
        # or an attempt that was killed before it reported them.
        was_killed = slot.report is not None and slot.report.attempt > 0
        work.has_received = work.has_received or was_killed or report.counters.received > received_before
        self._take_back(slot, report.queue)
        if report.error:
            if not work.is_working:
                self._fail(work, report.error)
            return
        work.retry, work.trouble = FIRST_JOB_RETRY, ""
        if work.is_working:
            return
        if report.ended is Ended.PRIMARY_UNREACHABLE:
            slot.misses_primary = True
            self._listening.missed_primary()
            work.arm_at = self._now() + FIRST_JOB_RETRY
        elif report.ended is Ended.LEASE or (slot.is_leaving and report.ended is Ended.STOPPED):
            work.ring = Ring.NEW
        else:
            # Nothing received: others hold the locks of the remaining messages. Only a receive notices their expiry.
            self._listening.arm(report.queue, scan=work.has_received)
            work.has_received = False

    def _take_back(self, slot: RunningSlot, queue: str) -> None:
        del slot.queues[queue]
        self.queues[queue].slots -= 1
        self._control.take_back(slot.job, queue)

    def _fail(self, work: QueueWork, error: str) -> None:
        work.trouble = error
        log.warning("%s: cannot serve %s: %s; retrying in %.0f s", self._pair, work.name, error.rstrip("."), work.retry)
        work.arm_at = self._now() + work.retry
        work.retry = min(2 * work.retry, LONGEST_JOB_RETRY)

    def _arm_again(self) -> None:
        for work in self.queues.values():
            if work.arm_at is not None and self._now() >= work.arm_at:
                work.arm_at, work.has_received = None, False
                self._listening.arm(work.name, scan=True)

    # --- handing out ---------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        waiting = [work for work in self.queues.values() if self._wants_a_slot(work)]
        if not waiting:
            self._budget.withdraw(self._pair)
            return
        slot = self._slot_with_room()
        if slot is not None:
            for work in waiting[: MOST_QUEUES - len(slot.queues)]:
                self._hand_over(slot, work)
        elif any(self._is_starting(slot) for slot in self._slots.values()):
            return  # it will serve them
        elif self._start(waiting[:MOST_QUEUES]) is None and not self._slots:
            self._budget.ask(self._pair)

    def _is_starting(self, slot: RunningSlot) -> bool:
        """Whether a slot will report soon. If it takes longer, Spark has no place for it."""
        return slot.report is None and self._now() - slot.started_at < SLOT_STARTS_WITHIN

    def _wants_a_slot(self, work: QueueWork) -> bool:
        if work.ring is not None and work.slots:
            work.ring = None  # a slot already serves it
        elif work.ring is not None and self._is_paused(work.name):
            work.ring = None
            self._listening.arm(work.name)  # it rings again after `syphon resume`
        return work.ring is not None

    def _slot_with_room(self) -> RunningSlot | None:
        """The slot that gets the queues that have rung, if one has room.

        A saturated slot is better than a new one, which takes seconds to start: each queue has its share of the window.
        So is a slot whose successor has not started yet.
        """
        able = [slot for slot in self._slots.values() if slot.has_room]
        return min(able, key=lambda slot: (slot.is_leaving, slot.is_saturated, len(slot.queues)), default=None)

    def _hand_over(self, slot: RunningSlot, work: QueueWork) -> None:
        handed = self._next_hand_over(work)
        slot.queues[work.name] = handed
        found = slot.report.of(work.name) if slot.report is not None else None
        slot.before[work.name] = found.counters if found is not None else Counters()
        self._control.hand_over(slot.job, handed)

    def _next_hand_over(self, work: QueueWork) -> HandOver:
        work.ring = None
        work.number += 1
        work.slots += 1
        failing = self._backoffs.failing()[:MOST_FAILING]
        waiting = {EntityPath.of(backoff.path).key for backoff in failing}.union(self._listening.waiting(work.name))
        return HandOver(queue=work.name, number=work.number, waiting=tuple(sorted(waiting)), failing=failing)

    def _start(self, works: list[QueueWork]) -> RunningSlot | None:
        """Starts a job with one slot on these queues; None if no more slots may run."""
        if not works or not self._budget.take(self._pair):
            return None
        handed = {work.name: self._next_hand_over(work) for work in works}
        job = new_job()
        slot = self._slots[job] = RunningSlot(job, self._now(), dict(handed))
        backing_off = self._backoffs.backing_off()

        def run() -> None:
            result: JobResult | BaseException
            try:
                result = self._run_job(job, tuple(handed.values()), backing_off)
            except BaseException as error:  # it must end the worker; raised in this thread, it would be lost
                result = error
            self._events.append(lambda: self._job_ended(slot, result))
            self.news.set()

        self._background(run)
        return slot

    def _relieve(self) -> None:
        """Starts another slot if every slot is saturated, unless it would wait for the others (D21)."""
        if self._one_slot_per_queue:
            return
        running = [slot for slot in self._slots.values() if not slot.is_leaving]
        reports = [slot.report for slot in running if slot.report is not None and slot.report.is_saturated]
        if running and len(reports) == len(running):
            busy = {queue.queue for report in reports for queue in report.queues if queue.is_served and queue.in_flight}
            self._start([self.queues[queue] for queue in sorted(busy)])

    # --- the end of slots ----------------------------------------------------------------------------------------

    def _renew_leases(self) -> None:
        for slot in list(self._slots.values()):
            age = 0.0 if slot.began_at is None else self._now() - slot.began_at
            if slot.state is SlotState.HANDING_OVER and self._is_taken_over(slot):
                self._tell_to_stop(slot, SlotEvent.SUCCESSOR_SERVES)
            elif slot.state is not SlotState.SERVING:
                continue
            elif age > SHORT_LEASE and self._budget.makes_room(self._pair):
                slot.makes_room = True
                self._tell_to_stop(slot)
            elif age > self._lease:
                self._replace(slot)

    def _is_taken_over(self, slot: RunningSlot) -> bool:
        successor = slot.successor
        return successor is not None and (successor.job not in self._slots or not self._is_starting(successor))

    def _replace(self, slot: RunningSlot) -> None:
        """Ends a slot. Another one takes over its queues first, if one may start."""
        slot.successor = self._start([self.queues[queue] for queue in slot.queues])
        if slot.successor is None:
            self._tell_to_stop(slot)
        else:
            slot.happened(SlotEvent.SUCCESSOR_STARTED)

    def _tell_to_stop(self, slot: RunningSlot, event: SlotEvent = SlotEvent.TOLD_TO_STOP) -> None:
        slot.happened(event)
        self._control.stop_job(slot.job)

    def _renew(self) -> None:
        for slot in self._slots.values():
            self._tell_to_stop(slot)

    def _job_ended(self, slot: RunningSlot, result: JobResult | BaseException) -> None:
        del self._slots[slot.job]
        self._budget.release(self._pair, slot.makes_room)
        if isinstance(result, BaseException):
            self.failure = (
                result if isinstance(result, SyphonError) else SyphonError(f"{type(result).__name__}: {result}")
            )
            return
        self._log(result, self._now() - slot.started_at)
        if result.fault is not None:
            self._listening.fault(result.fault)
        last = result.reports[-1] if result.reports else None
        if last is not None:
            self._record_backoffs(last)
        for handed in list(slot.queues.values()):
            found = last.of(handed.queue) if last is not None else None
            if result.error:
                self._take_back(slot, handed.queue)
                if not self.queues[handed.queue].is_working:
                    self._fail(self.queues[handed.queue], result.error)
            elif found is not None and found.number >= handed.number:
                self._service_ended(slot, found)
            else:
                self._take_back(slot, handed.queue)
                self.queues[handed.queue].ring = Ring.NEW  # it was never served

    def _log(self, result: JobResult, seconds: float) -> None:
        counters = result.counters
        if counters.moved:
            served = {queue.queue for report in result.reports for queue in report.queues if queue.counters.moved}
            log.info(
                "%s: job ended after %s: %s forwarded from %s, %s dead-lettered%s",
                self._pair,
                duration(round(seconds)),
                f"{counters.forwarded:,}",
                next(iter(served)) if len(served) == 1 else plural(len(served), "queue"),
                f"{counters.dead_lettered:,}",
                # Not how many messages are left: one that was delivered several times counts as often.
                f", {counters.left:,} abandoned or deferred" if counters.left else "",
            )
        for report in result.killed:
            log.warning(
                "%s: a slot was killed; messages it had not completed (of %d received) will be redelivered",
                self._pair,
                report.counters.received,
            )
