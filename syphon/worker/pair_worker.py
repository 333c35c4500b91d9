"""One pair, as a worker serves it: its backlog queues, the watch over them, and a carrier for each.

A doorbell rings; the queue's carrier runs Spark jobs until the queue is quiet; the doorbell is armed again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from syphon.backlog import plan, provision, queue_names, secondary_administration
from syphon.bus import Administration, Pair, namespace_of
from syphon.config import PairSettings, PipelineSettings
from syphon.model import Faulted, SyphonError
from syphon.spark import JobResult, Jobs
from syphon.transfer import Listener, PumpOptions

from .backoffs import Backoffs
from .pauses import Pauses

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0


class PairWorker:
    """A pair on duty. `settings` may be replaced while it runs: the next job goes by the new ones."""

    def __init__(
        self,
        settings: PairSettings,
        pipeline: PipelineSettings,
        jobs: Jobs,
        over: threading.Event,
        makes_queues: bool,
        pauses: Pauses,
    ) -> None:
        self.settings = settings
        self.pauses = pauses
        self.waiting = Backoffs(settings.name, pauses)
        self.watch: Listener | None = None
        """None until the backlog queues are known to be there."""
        self.carriers: dict[str, QueueWorker] = {}
        self.trouble: SyphonError | None = None
        """Why the backlog queues are not known yet."""
        self.failure: BaseException | None = None
        """What must end the worker: no right to the namespace, say, or a thread of ours that died."""
        self.pipeline = pipeline
        self.jobs = jobs
        self.over = over
        self._makes_queues = makes_queues
        threading.Thread(target=self._open, name=f"open {settings.name}", daemon=True).start()

    @property
    def is_working(self) -> bool:
        return any(carrier.is_working for carrier in self.carriers.values())

    def is_paused(self, queue: str) -> bool:
        return self.pauses.holds_queue(self.settings.name, queue)

    def stop(self) -> None:
        """No more rings, and both sides closed."""
        if self.watch is not None:
            self.watch.stop()

    def heard(self, done: JobResult) -> None:
        """A job has ended: what it found out about the pair."""
        self.waiting.learn(done.waiting)
        counters = done.counters
        if counters.moved:
            log.info(
                "%s: %d forwarded from %s, %d dead-lettered, %d left",
                self.settings.name,
                counters.forwarded,
                done.sheets[0].queue,
                counters.dead_lettered,
                counters.left,
            )
        for sheet in done.lost:
            log.warning(
                "%s: a slot on %s was killed; of %d messages it had received, what was not completed comes again",
                self.settings.name,
                sheet.queue,
                sheet.counters.received,
            )
        if done.fault is not None and self.watch is not None:
            self.watch.fault(done.fault)

    # --- opening -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Finds or makes the backlog queues, for as long as it takes: an outage is no reason to give up (C3)."""
        pause = FIRST_PAUSE
        while not self.over.is_set():
            try:
                self._listen_to(self._queues())
                self.trouble = None
                return
            except Faulted as error:
                self.failure = error
                return
            except SyphonError as error:
                self.trouble = error
                log.warning("%s: %s; next try in %.0f s", self.settings.name, error, pause)
                self.over.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except BaseException as error:
                self.failure = error
                raise

    def _queues(self) -> Sequence[str]:
        if not self._makes_queues:
            return queue_names(self.settings)
        return provisioned(self.settings, self._rest)

    def _rest(self, seconds: float) -> None:
        self.over.wait(seconds)

    def _listen_to(self, queues: Sequence[str]) -> None:
        self.carriers = {queue: QueueWorker(self, queue) for queue in queues}
        self.watch = Listener(
            self.settings.name,
            self._namespaces(queues[0]),
            queues,
            on_message=lambda queue: self.carriers[queue].ring(),
            is_worth_a_job=self.waiting.is_worth_a_job,
            long_poll=self.pipeline.long_poll / 1000,
            is_paused=self.is_paused,
        )
        self.watch.start()
        log.info("%s: listening to %d backlog queues of %s", self.settings.name, len(queues), self.watch.name)

    def _namespaces(self, first_queue: str) -> Pair:
        settings = self.settings
        return Pair(namespace_of(settings.primary, settings.home_entity), namespace_of(settings.secondary, first_queue))


class QueueWorker:
    """One backlog queue. Its thread sleeps until the doorbell rings."""

    def __init__(self, duty: PairWorker, queue: str) -> None:
        self.queue = queue
        self.is_working = False
        self.trouble = ""
        """Why its last job came to nothing, if it did."""
        self._duty = duty
        self._rung = threading.Event()
        self._pause = FIRST_PAUSE
        threading.Thread(target=self._run, name=f"carry {queue}", daemon=True).start()

    def ring(self) -> None:
        self.is_working = True
        self._rung.set()

    def _run(self) -> None:
        try:
            while True:
                self._rung.wait()
                self._rung.clear()
                self._carry()
                self.is_working = False
                if self._duty.watch is not None and not self._duty.over.is_set():
                    self._duty.watch.arm(self.queue)
        except BaseException as error:
            self._duty.failure = error
            self.is_working = False

    def _carry(self) -> None:
        """Jobs, for as long as there is more than a lease can carry: each with twice the slots."""
        duty, slots = self._duty, 1
        while not duty.over.is_set() and not duty.is_paused(self.queue):
            settings = duty.settings
            options = PumpOptions.for_pair(settings, lease=duty.pipeline.lease / 1000)
            done = duty.jobs.carry(settings, self.queue, [options] * slots, duty.waiting.now(), settings.rate)
            duty.heard(done)
            if done.error:
                self._suffer(done.error)
                return
            self._pause, self.trouble = FIRST_PAUSE, ""
            if not done.has_more:
                return
            slots = min(2 * slots, duty.jobs.most_slots)

    def _suffer(self, why: str) -> None:
        self.trouble = why
        log.warning("%s: %s; next try in %.0f s", self.queue, why, self._pause)
        self._duty.over.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)


def provisioned(pair: PairSettings, sleep: Callable[[float], None]) -> Sequence[str]:
    """The backlog queues of a pair, made where they were not there (P1 to P5)."""
    administration: Administration | None = None
    try:
        administration = secondary_administration(pair)
        return provision(administration, plan(administration, queue_names(pair)), sleep=sleep).names
    finally:
        if administration is not None:
            administration.close()
