"""The worker: it listens to the backlog queues of its pairs and carries home what comes, until it is told to stop.

A pair that faults ends the worker, after the five seconds of the rule (C1 to C3). Stopping is a sequence: no more
rings; slots finish or give back what is in hand; both sides of every pair are closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from syphon.config import Config
from syphon.model import Faulted, SyphonError
from syphon.spark import ControlServer, Jobs

from .pair_worker import PairWorker
from .pauses import Pauses

log = logging.getLogger(__name__)

TURN = 0.2
GRACE = 25.0
"""Seconds that slots get to end once the worker stops: their own grace, and a little for Spark."""
FAULT_GRACE = 5.0
"""The same when a side has ended: then the rule has faulted the other one, too."""


class Worker:
    """Serves all pairs of a configuration."""

    def __init__(
        self, config: Config, jobs: Jobs, desk: ControlServer, makes_queues: bool = True, pauses: Pauses | None = None
    ) -> None:
        self._over = threading.Event()
        self._jobs = jobs
        self._desk = desk
        pauses = pauses or Pauses()
        self.duties = [
            PairWorker(pair, config.pipeline, jobs, self._over, makes_queues, pauses) for pair in config.pairs
        ]
        self.reload(config)

    def run(self, turned: Callable[[], None] = lambda: None) -> SyphonError | None:
        """Works until it is stopped, or something cannot go on: then that is returned. `turned` feeds a watchdog."""
        reason: SyphonError | None = None
        while not self._over.is_set() and reason is None:
            turned()
            self._over.wait(TURN)
            reason = self._why_not_go_on()
        return self._leave(reason, turned)

    @property
    def is_stopping(self) -> bool:
        return self._over.is_set()

    def stop(self) -> None:
        """Asks it to end. Safe in a signal handler."""
        self._over.set()

    def reload(self, config: Config) -> None:
        """Takes over rates and filters. Pairs, namespaces and queues stay as they are until the next start.

        A job that goes by other filters ends early, and the next one goes by these.
        """
        fresh = {pair.name: pair for pair in config.pairs}
        for duty in self.duties:
            found = fresh.get(duty.settings.name, duty.settings)
            before = duty.settings.destinations
            duty.settings = duty.settings.model_copy(update={"destinations": found.destinations, "rate": found.rate})
            self._desk.limit(found.name, found.rate)
            if found.destinations != before:
                self._desk.supersede(found.name)

    # --- ending --------------------------------------------------------------------------------------------------

    def _why_not_go_on(self) -> SyphonError | None:
        for duty in self.duties:
            watch = duty.watch
            broken = duty.failure or (watch.failure if watch is not None else None)
            if broken is not None:
                return broken if isinstance(broken, SyphonError) else SyphonError(f"{type(broken).__name__}: {broken}")
            if watch is not None and any(side.has_ended for side in watch.pair.sides):
                return Faulted(f"The pair {watch.name} has faulted, and the worker ends with it: {watch.pair.fault}")
        return None

    def _leave(self, reason: SyphonError | None, turned: Callable[[], None]) -> SyphonError | None:
        """Each step has its reason: rings end first, so that no job begins; slots next, while both sides are open."""
        self._over.set()
        turned()
        self._desk.stop_all()
        for duty in self.duties:
            if duty.watch is not None:
                duty.watch.silence()
        deadline = time.monotonic() + (GRACE if reason is None else FAULT_GRACE)
        while time.monotonic() < deadline and any(duty.is_working for duty in self.duties):
            turned()
            time.sleep(TURN / 4)
        for duty in self.duties:
            if duty.is_working:
                log.warning("%s: not everything in hand was finished; it comes again", duty.settings.name)
            duty.stop()
        return reason
