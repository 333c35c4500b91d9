"""One backlog queue of a running worker: its thread sleeps until the doorbell of the queue rings, then runs Spark jobs.

The parts know each other in one direction only: a queue worker knows the jobs of its pair, and the two functions that
it calls when it is done or finds a fault. It knows neither its pair worker nor the listener.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from syphon.bus import SideFault
from syphon.config import PairSettings, PipelineSettings
from syphon.spark import JobResult, Jobs
from syphon.transfer import PumpOptions

from .backoffs import Backoffs
from .pauses import Pauses

log = logging.getLogger(__name__)

FIRST_RETRY, LONGEST_RETRY = 2.0, 120.0
"""Seconds between tries while something fails: they double from the first to the longest."""


class PairJobs:
    """Runs jobs on the queues of one pair by its present settings, and remembers which destinations back off."""

    def __init__(self, settings: PairSettings, pipeline: PipelineSettings, jobs: Jobs, pauses: Pauses) -> None:
        self._settings = settings
        self._pipeline = pipeline
        self._jobs = jobs
        self._pauses = pauses
        self.backoffs = Backoffs(settings.name, pauses)

    @property
    def settings(self) -> PairSettings:
        return self._settings

    def reload(self, settings: PairSettings) -> bool:
        """Takes over the rate and the destinations. The next job uses them. Returns whether the destinations differ."""
        changed = settings.destinations != self._settings.destinations
        update = {"destinations": settings.destinations, "rate": settings.rate}
        self._settings = self._settings.model_copy(update=update)
        return changed

    @property
    def most_slots(self) -> int:
        return self._jobs.most_slots

    def is_paused(self, queue: str) -> bool:
        return self._pauses.holds_queue(self._settings.name, queue)

    def run(self, queue: str, slots: int) -> JobResult:
        """Runs one job on a queue, logs its result, and remembers the destinations that back off."""
        settings = self._settings
        options = PumpOptions.for_pair(settings, lease=self._pipeline.lease / 1000)
        result = self._jobs.run(settings, queue, [options] * slots, self.backoffs.now(), settings.rate)
        self.backoffs.learn(result.backing_off)
        counters = result.counters
        if counters.moved:
            log.info(
                "%s: %d forwarded from %s, %d dead-lettered, %d left",
                settings.name,
                counters.forwarded,
                queue,
                counters.dead_lettered,
                counters.left,
            )
        for report in result.killed:
            log.warning(
                "%s: a slot on %s was killed; of the %d messages it had received, those not completed come again",
                settings.name,
                queue,
                report.counters.received,
            )
        return result


class QueueWorker:
    """Moves the messages of one backlog queue whenever its doorbell rings."""

    def __init__(
        self,
        queue: str,
        jobs: PairJobs,
        stopping: threading.Event,
        done: Callable[[str], None],
        faulted: Callable[[SideFault], None],
    ) -> None:
        """`done` is called with the queue when its jobs have ended; `faulted` when a job found a faulted side."""
        self.queue = queue
        self.is_working = False
        self.trouble = ""
        """Why the last job failed; empty if it did not."""
        self.failure: BaseException | None = None
        """The error that ended the thread: the worker must end with it."""
        self._jobs = jobs
        self._stopping = stopping
        self._done = done
        self._faulted = faulted
        self._rung = threading.Event()
        self._retry = FIRST_RETRY
        self._thread = threading.Thread(target=self._run, name=f"queue {queue}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """The doorbell of the queue has rung: there are messages."""
        self.is_working = True
        self._rung.set()

    def _run(self) -> None:
        try:
            while True:
                self._rung.wait()
                self._rung.clear()
                self._move_messages()
                self.is_working = False
                if not self._stopping.is_set():
                    self._done(self.queue)
        except BaseException as error:
            self.failure = error
            self.is_working = False

    def _move_messages(self) -> None:
        """Runs jobs until the queue is quiet. While a lease is too short for it, each job has twice the slots."""
        slots = 1
        while not self._stopping.is_set() and not self._jobs.is_paused(self.queue):
            result = self._jobs.run(self.queue, slots)
            if result.fault is not None:
                self._faulted(result.fault)
            if result.error:
                self._wait_after(result.error)
                return
            self._retry, self.trouble = FIRST_RETRY, ""
            if not result.has_more:
                return
            slots = min(2 * slots, self._jobs.most_slots)

    def _wait_after(self, error: str) -> None:
        self.trouble = error
        log.warning("%s: %s; next try in %.0f s", self.queue, error, self._retry)
        self._stopping.wait(self._retry)
        self._retry = min(2 * self._retry, LONGEST_RETRY)
