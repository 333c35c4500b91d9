"""One pair of a running worker: it finds or creates the backlog queues, and joins the listener and the queue workers.

The listener hears that a queue has messages and rings its queue worker. The queue worker runs Spark jobs until the
queue is quiet. Then the doorbell of the queue is armed again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from syphon.backlog import plan, provision, queue_names, secondary_administration
from syphon.bus import Administration, Pair, namespace_of
from syphon.config import PairSettings, PipelineSettings
from syphon.model import Faulted, SyphonError
from syphon.spark import Jobs
from syphon.transfer import Listener

from .backoffs import Backoffs
from .pauses import Pauses
from .queue_worker import FIRST_RETRY, LONGEST_RETRY, PairJobs, QueueWorker

log = logging.getLogger(__name__)


class PairWorker:
    """Serves one pair."""

    def __init__(
        self,
        settings: PairSettings,
        pipeline: PipelineSettings,
        jobs: Jobs,
        stopping: threading.Event,
        makes_queues: bool,
        pauses: Pauses,
    ) -> None:
        self.listener: Listener | None = None
        """None until the backlog queues are known to exist."""
        self.queue_workers: dict[str, QueueWorker] = {}
        self.trouble: SyphonError | None = None
        """Why the backlog queues are not known yet."""
        self._failure: BaseException | None = None
        self._jobs = PairJobs(settings, pipeline, jobs, pauses)
        self._long_poll = pipeline.long_poll / 1000
        self._stopping = stopping
        self._makes_queues = makes_queues
        self._thread = threading.Thread(target=self._open, name=f"open {settings.name}", daemon=True)

    @property
    def settings(self) -> PairSettings:
        return self._jobs.settings

    @property
    def backoffs(self) -> Backoffs:
        return self._jobs.backoffs

    @property
    def is_working(self) -> bool:
        return any(worker.is_working for worker in self.queue_workers.values())

    @property
    def failure(self) -> SyphonError | None:
        """The error that must end the worker: a refused namespace, a faulted pair, or a thread of ours that died."""
        listener = self.listener
        causes = [self._failure, *(worker.failure for worker in self.queue_workers.values())]
        if listener is not None:
            causes.append(listener.failure)
        for cause in causes:
            if cause is not None:
                return cause if isinstance(cause, SyphonError) else SyphonError(f"{type(cause).__name__}: {cause}")
        if listener is not None and any(side.has_ended for side in listener.pair.sides):
            return Faulted(f"The pair {listener.name} has faulted, and the worker ends with it: {listener.pair.fault}")
        return None

    def start(self) -> None:
        """Begins to look for the backlog queues, and then to listen to them."""
        self._thread.start()

    def reload(self, settings: PairSettings) -> bool:
        """Takes over the rate and the destinations. The next job uses them. Returns whether the destinations differ."""
        return self._jobs.reload(settings)

    def silence(self) -> None:
        """Stops listening, so that no job begins."""
        if self.listener is not None:
            self.listener.silence()

    def stop(self) -> None:
        """Ends the listener, and closes both sides of the pair."""
        if self.listener is not None:
            self.listener.stop()

    # --- opening -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Finds or creates the backlog queues, however long it takes: an outage is no reason to give up (C3)."""
        retry = FIRST_RETRY
        while not self._stopping.is_set():
            try:
                self._listen_to(self._queues())
                self.trouble = None
                return
            except Faulted as error:
                self._failure = error
                return
            except SyphonError as error:
                self.trouble = error
                log.warning("%s: %s; next try in %.0f s", self.settings.name, error, retry)
                self._stopping.wait(retry)
                retry = min(2 * retry, LONGEST_RETRY)
            except BaseException as error:
                self._failure = error
                raise

    def _queues(self) -> Sequence[str]:
        if not self._makes_queues:
            return queue_names(self.settings)
        return provisioned(self.settings, self._rest)

    def _rest(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _listen_to(self, queues: Sequence[str]) -> None:
        listener = self._listener(queues)
        self.queue_workers = {
            queue: QueueWorker(queue, self._jobs, self._stopping, done=listener.arm, faulted=listener.fault)
            for queue in queues
        }
        self.listener = listener
        for worker in self.queue_workers.values():
            worker.start()
        listener.start()
        log.info("%s: listening to %d backlog queues of %s", self.settings.name, len(queues), listener.name)

    def _listener(self, queues: Sequence[str]) -> Listener:
        settings = self.settings
        return Listener(
            self.settings.name,
            Pair(
                namespace_of(settings.primary, settings.primary_entity, notices_return=True),
                namespace_of(settings.secondary, queues[0], notices_return=True),
            ),
            queues,
            on_message=lambda queue, _: self.queue_workers[queue].ring(),
            gate=self.backoffs,
            long_poll=self._long_poll,
            is_paused=self._jobs.is_paused,
        )


def provisioned(pair: PairSettings, sleep: Callable[[float], None]) -> Sequence[str]:
    """Creates the backlog queues of a pair that do not exist, and returns the names of all (P1 to P5)."""
    administration: Administration | None = None
    try:
        administration = secondary_administration(pair)
        return provision(administration, plan(administration, queue_names(pair)), sleep=sleep).names
    finally:
        if administration is not None:
            administration.close()
