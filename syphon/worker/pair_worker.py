"""One pair of a running worker: it finds or creates the backlog queues, and connects the listener to the dispatcher.

The listener notices that a queue has messages, and rings. The dispatcher hands the queue to a slot, which serves it
until no message arrives for `quiet` seconds. Then the doorbell of the queue is armed again.

A pair that faults is closed (C1, C2), and set up again later with a new listener and a new dispatcher. Other pairs are
not affected.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syphon.backlog import plan, provision, queue_names, secondary_administration
from syphon.config import PairSettings, PipelineSettings
from syphon.control import ControlServer, HandOver
from syphon.model import EntityPath, Faulted, SyphonError, duration
from syphon.servicebus import RUNTIME, Administration, Pair, Runtime, SideFault, namespace_of
from syphon.spark import JobResult
from syphon.time_budget import (
    BACKSTOP,
    DISPATCHER_TURN,
    FIRST_JOB_RETRY,
    FIRST_SET_UP_DELAY,
    LINGER,
    LONGEST_JOB_RETRY,
    LONGEST_SET_UP_DELAY,
    PROVEN_AFTER,
)
from syphon.transfer import DestinationBackoff, Listener, PumpOptions

from .dispatcher import Dispatcher, QueueWork
from .pausable_gate import PausableGate
from .pauses import Pauses
from .spark_lifecycle import SparkLifecycle

log = logging.getLogger(__name__)

MOST_OUTCOMES = 200_000
"""Outcomes after which a slot ends: it holds them in memory until then."""


@dataclass(slots=True, eq=False)
class PairFault:
    """Why a pair is closed, and when it is set up again. Times are monotonic."""

    cause: SideFault
    since: float
    """When it first faulted, before any failed attempt to set it up again."""
    retry: float
    """Seconds from the last attempt to the next, unless a reload comes first."""
    next_set_up: float
    """In the past: the pair is being set up."""


def open_pair(settings: PairSettings, queue: str) -> Pair:
    """Both sides of a pair, for its listener."""
    return Pair(
        namespace_of(settings.primary, settings.primary_entity, notices_return=True),
        namespace_of(settings.secondary, queue, notices_return=True),
    )


OpenPair = Callable[[PairSettings, str], Pair]


class PairWorker:
    """Serves one pair."""

    def __init__(
        self,
        settings: PairSettings,
        pipeline: PipelineSettings,
        spark: SparkLifecycle,
        control_server: ControlServer,
        *,
        stopping: threading.Event,
        makes_queues: bool,
        pauses: Pauses,
        runtime: Runtime = RUNTIME,
        open_pair: OpenPair = open_pair,
    ) -> None:
        """`runtime` and `open_pair` are for a simulation, which has its own (D18)."""
        self.settings = settings
        self.listener: Listener | None = None
        """None until the backlog queues are known to exist, and while the pair is closed after a fault. Only the thread
        of the pair sets it; other threads read it once, because it may become None at any time."""
        self.trouble: SyphonError | None = None
        """Why the backlog queues are not known yet."""
        self.fault: PairFault | None = None
        """The fault of the pair, until it works again."""
        self.has_worked = False
        """Whether both sides have ever accepted our credentials."""
        self.backoffs = PausableGate(settings.name, pauses, runtime.now)
        self.backoffs.renames = settings.destinations.renames
        self._dispatcher: Dispatcher | None = None
        self._failure: BaseException | None = None
        self._pipeline = pipeline
        self.spark = spark
        self._control_server = control_server
        self._budget = spark.budget
        self._stopping = stopping
        self._makes_queues = makes_queues
        self._pauses = pauses
        self._runtime = runtime
        self._now = runtime.now
        self._open_pair = open_pair
        self._over = runtime.event()
        self._hurry = runtime.event()
        self._retry = FIRST_SET_UP_DELAY
        self._thread = runtime.thread(self._run, f"pair {settings.name}")

    @property
    def queues(self) -> dict[str, QueueWork]:
        """The backlog queues, once they are known."""
        return self._dispatcher.queues if self._dispatcher is not None else {}

    @property
    def is_working(self) -> bool:
        return self._dispatcher is not None and self._dispatcher.is_working

    @property
    def failure(self) -> SyphonError | None:
        """The error that must end the worker, whatever other pairs do: Spark is lost, or a thread of ours died."""
        listener, dispatcher = self.listener, self._dispatcher
        causes = [self._failure]
        if listener is not None:
            causes.append(listener.failure)
        if dispatcher is not None:
            causes.append(dispatcher.failure)
        for cause in causes:
            if cause is not None:
                return cause if isinstance(cause, SyphonError) else SyphonError(f"{type(cause).__name__}: {cause}")
        return None

    def start(self) -> None:
        """Starts the thread that finds the backlog queues and listens to them."""
        self._thread.start()

    def reload(self, settings: PairSettings) -> None:
        """Applies a new rate and new destinations. Slots with other destinations end early, and new ones start.

        If renames have changed, the listener scans the messages that wait for a destination again.
        """
        renamed = settings.destinations.renames != self.settings.destinations.renames
        changed = settings.destinations != self.settings.destinations
        taken_over = {name: getattr(settings, name) for name in ("destinations", "rate", "rate_share")}
        self.settings = self.settings.model_copy(update=taken_over)
        self.backoffs.renames = settings.destinations.renames
        if changed and self._dispatcher is not None:
            self._dispatcher.renew()
        if renamed and (listener := self.listener) is not None:
            listener.rescan()

    def set_up_now(self) -> None:
        """Sets a faulted pair up again without further delay: the operator may have removed the cause."""
        self._hurry.set()

    def retry(self, destination: EntityPath | None = None) -> list[str]:
        """Ends the back-off of a destination, or of all. Returns the paths of those that were not accepting messages.

        A throttled destination keeps the quiet that the service asks for, and a paused one its pause.
        """
        name = self.settings.name
        live = (report for report in self._control_server.live_reports() if report.pair == name and not report.finished)
        failing = [*self.backoffs.backing_off(), *(each for report in live for each in report.rejecting)]
        chosen = {
            EntityPath.of(each.path): each.path
            for each in failing
            if not each.is_throttled and not self._pauses.holds_destination(name, each.path)
        }
        if destination is not None:
            chosen = {path: text for path, text in chosen.items() if path == destination}
        for path, text in chosen.items():
            self._control_server.retry(name, path)  # first: reports of slots that have not heard of it count no more
            self.backoffs.retry(text)
            log.info("%s: retrying %s at once, as the operator asked", name, text)
        return list(chosen.values())

    def silence(self) -> None:
        """Stops listening, so that no job begins."""
        if (listener := self.listener) is not None:
            listener.silence()
        if self._dispatcher is not None:
            self._dispatcher.stop()

    def stop(self) -> None:
        """Ends the listener, and closes both sides of the pair."""
        self._over.set()
        if (listener := self.listener) is not None:
            listener.stop()

    # --- its thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                cause = self._open() or self._serve()
                if cause is None:
                    return
                self._record_fault(cause)
                self._close()
                self._wait_for_set_up()
        except BaseException as error:
            self._failure = error
            log.debug("the thread of the pair %s", self.settings.name, exc_info=True)

    def _run_job(
        self, job: str, queues: tuple[HandOver, ...], backing_off: tuple[DestinationBackoff, ...]
    ) -> JobResult:
        lease = self._pipeline.lease / 1000 + BACKSTOP
        options = PumpOptions.for_pair(self.settings, lease=lease, linger=LINGER, most_outcomes=MOST_OUTCOMES)
        return self.spark.run(self.settings, queues, [options], backing_off, rate=self.settings.rate, job=job)

    def _serve(self) -> SideFault | None:
        """Turns the dispatcher until the pair faults, or until the worker stops: then it returns None."""
        listener, dispatcher, connected_at = self.listener, self._dispatcher, None
        while listener is not None and dispatcher is not None and not self._over.is_set():
            dispatcher.turn()
            if listener.pair.has_been_connected:
                self.has_worked = True
                connected_at = connected_at or self._now()
            if (cause := listener.pair.side_fault) is not None:
                return cause
            if connected_at is not None and self._now() >= connected_at + PROVEN_AFTER:
                self._record_recovery()
            dispatcher.news.wait(DISPATCHER_TURN)
        return None

    # --- a fault -------------------------------------------------------------------------------------------------

    def _record_fault(self, cause: SideFault) -> None:
        now, before = self._now(), self.fault
        self.fault = PairFault(cause, before.since if before else now, self._retry, now + self._retry)
        self._retry = min(2 * self._retry, LONGEST_SET_UP_DELAY)
        self._hurry.clear()

    def _record_recovery(self) -> None:
        fault, self.fault, self._retry = self.fault, None, FIRST_SET_UP_DELAY
        if fault is not None:
            lasted = duration(round(self._now() - fault.since))
            log.info("%s: the pair has recovered after %s", self.settings.name, lasted)

    def _close(self) -> None:
        """Stops the slots of the pair, then closes the other side. The listener faults it after five seconds (C1)."""
        listener, dispatcher = self.listener, self._dispatcher
        if listener is None or dispatcher is None:
            return
        listener.silence()
        dispatcher.end()
        self._budget.withdraw(self.settings.name)  # it may be waiting for a slot of another pair
        while dispatcher.is_working and not listener.pair.has_ended and not self._over.is_set():
            dispatcher.turn()
            dispatcher.news.wait(DISPATCHER_TURN)
        listener.stop()
        self.listener = None

    def _wait_for_set_up(self) -> None:
        """Waits until the pair is due to be set up again, or the worker stops.

        It always waits until the slots have ended: those of the next set-up would share the queues with them.
        """
        dispatcher, fault = self._dispatcher, self.fault
        while fault is not None and not self._over.is_set():
            if self._hurry.is_set():
                fault.next_set_up = min(fault.next_set_up, self._now())
            if dispatcher is not None and dispatcher.is_working:
                dispatcher.turn()
                dispatcher.news.wait(DISPATCHER_TURN)
            elif self._now() >= fault.next_set_up or self._stopping.is_set():
                return
            else:
                self._hurry.wait(DISPATCHER_TURN)

    # --- opening -------------------------------------------------------------------------------------------------

    def _open(self) -> SideFault | None:
        """Finds or creates the backlog queues, and retries forever while there is an outage (C3).

        Returns the fault if the secondary cannot be used.
        """
        retry = FIRST_JOB_RETRY
        while not self._stopping.is_set():
            try:
                self._listen_to(self._queues())
                self.trouble = None
                return None
            except Faulted as error:
                self.trouble = None
                return SideFault.of("secondary", error)
            except SyphonError as error:
                self.trouble = error
                log.warning("%s: %s; retrying in %.0f s", self.settings.name, str(error).rstrip("."), retry)
                self._stopping.wait(retry)
                retry = min(2 * retry, LONGEST_JOB_RETRY)
        return None

    def _queues(self) -> Sequence[str]:
        if not self._makes_queues:
            return queue_names(self.settings)
        return provisioned(self.settings, self._rest)

    def _rest(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _listen_to(self, queues: Sequence[str]) -> None:
        settings = self.settings
        listener = Listener(
            settings.name,
            self._open_pair(settings, queues[0]),
            queues,
            on_message=lambda queue, ring: dispatcher.ring(queue, ring),
            gate=self.backoffs,
            long_poll=self._pipeline.long_poll / 1000,
            is_paused=self._is_paused,
            runtime=self._runtime,
        )
        dispatcher = Dispatcher(
            settings.name,
            tuple(queues),
            listener,
            self._control_server,
            run_job=self._run_job,
            backoffs=self.backoffs,
            budget=self._budget,
            lease=self._pipeline.lease / 1000,
            is_paused=self._is_paused,
            background=self._in_a_thread,
            one_slot_per_queue=settings.session_order is not None,
            now=self._now,
        )
        dispatcher.news = self._runtime.event()
        self.listener, self._dispatcher = listener, dispatcher
        listener.start()
        log.info("%s: listening on %d backlog queues in %s", settings.name, len(queues), settings.secondary.host)

    def _is_paused(self, queue: str) -> bool:
        return self._pauses.holds_queue(self.settings.name, queue)

    def _in_a_thread(self, function: Callable[[], None]) -> None:
        self._runtime.thread(function, "spark job").start()


def provisioned(pair: PairSettings, sleep: Callable[[float], None]) -> Sequence[str]:
    """Creates the missing backlog queues of a pair, and returns the names of all (P1 to P5)."""
    administration: Administration | None = None
    try:
        administration = secondary_administration(pair)
        return provision(administration, plan(administration, queue_names(pair)), sleep=sleep).names
    finally:
        if administration is not None:
            administration.close()
