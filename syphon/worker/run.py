"""The worker: it listens to the backlog queues of its pairs and moves their messages, until it is told to stop.

A pair that faults ends the worker, after the five seconds of the rule (C1 to C3). Stopping is a sequence: the worker
stops listening; slots finish or give back the messages in hand; both sides of every pair are closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from syphon.config import Config
from syphon.model import SyphonError
from syphon.spark import ControlServer, Jobs

from .pair_worker import PairWorker
from .pauses import Pauses
from .slot_budget import SlotBudget

log = logging.getLogger(__name__)

TURN = 0.2
GRACE = 25.0
"""Seconds for slots to end once the worker stops: their own grace, and a little for Spark."""
FAULT_GRACE = 5.0
"""The same after a fault: then the rule has faulted the other side, too."""


class Worker:
    """Serves all pairs of a configuration."""

    def __init__(
        self,
        config: Config,
        jobs: Jobs,
        control_server: ControlServer,
        makes_queues: bool = True,
        pauses: Pauses | None = None,
    ) -> None:
        self._stopping = threading.Event()
        self._control_server = control_server
        pauses = pauses or Pauses()
        budget = SlotBudget(jobs.most_slots)
        self.pairs = [
            PairWorker(pair, config.pipeline, jobs, control_server, budget, self._stopping, makes_queues, pauses)
            for pair in config.pairs
        ]
        self.reload(config)

    def start(self) -> None:
        """Begins to serve the pairs, each in threads of its own."""
        for pair in self.pairs:
            pair.start()

    def run(self, turned: Callable[[], None] = lambda: None) -> SyphonError | None:
        """Waits until the worker is stopped, or must end: then it returns the reason. `turned` feeds a watchdog."""
        reason: SyphonError | None = None
        while not self._stopping.is_set() and reason is None:
            turned()
            self._stopping.wait(TURN)
            reason = next(filter(None, (pair.failure for pair in self.pairs)), None)
        return self._leave(reason, turned)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Asks the worker to end. Safe in a signal handler."""
        self._stopping.set()

    def reload(self, config: Config) -> None:
        """Takes over rates and destinations. Pairs, namespaces and queues stay as they are until the next start.

        A running job with other destinations ends early, and the next job uses the new ones.
        """
        fresh = {pair.name: pair for pair in config.pairs}
        for pair in self.pairs:
            settings = fresh.get(pair.settings.name, pair.settings)
            pair.reload(settings)
            self._control_server.set_rate(settings.name, settings.rate)

    # --- ending --------------------------------------------------------------------------------------------------

    def _leave(self, reason: SyphonError | None, turned: Callable[[], None]) -> SyphonError | None:
        """Stops listening first, so that no job begins; then the slots, while both sides are open; then the sides."""
        self._stopping.set()
        turned()
        self._control_server.stop_all()
        for pair in self.pairs:
            pair.silence()
        deadline = time.monotonic() + (GRACE if reason is None else FAULT_GRACE)
        while time.monotonic() < deadline and any(pair.is_working for pair in self.pairs):
            turned()
            time.sleep(TURN / 4)
        for pair in self.pairs:
            if pair.is_working:
                log.warning("%s: some messages in hand were not finished; they come again", pair.settings.name)
            pair.stop()
        return reason
