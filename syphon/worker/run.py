"""The worker: it listens to the backlog queues of its pairs and moves their messages, until it is told to stop.

Pairs are supervised one by one: one that faults is closed and set up again later, and the others go on (C1 to C3). The
worker ends when all its pairs are faulted, and when Spark's JVM ends. Stopping is a sequence, and each of its steps has
its share of the time (`Ending`): the worker stops listening; slots finish or give back the messages in hand; both sides
of every pair are closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from syphon.config import Config
from syphon.model import Faulted, NotAuthorized, SyphonError, duration
from syphon.spark import FAULTED, STOPPED, ControlServer, Ending, Jobs, SparkWatch, Step

from .pair_worker import PairFault, PairWorker
from .pauses import Pauses
from .slot_budget import SlotBudget

log = logging.getLogger(__name__)

TURN = 0.2
JVM_IS_GONE_WITHIN = 1.0
"""Seconds from the first failed call of Spark to the end of its JVM, if that is the reason."""


class Worker:
    """Serves all pairs of a configuration."""

    def __init__(
        self,
        config: Config,
        jobs: Jobs,
        control_server: ControlServer,
        makes_queues: bool = True,
        pauses: Pauses | None = None,
        ending: Ending | None = None,
        watch: SparkWatch | None = None,
    ) -> None:
        """`ending` and `watch` are those of the engine: it ends after the worker, in the time that is left."""
        self._ending = ending or Ending()
        self._watch = watch or SparkWatch(self._ending)
        self._stopping = threading.Event()
        self._control_server = control_server
        self._reported: dict[str, PairFault] = {}
        """The newest fault of each pair that the log has."""
        pauses = pauses or Pauses()
        budget = SlotBudget(lambda: jobs.most_slots)
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
            reason = (
                self._watch.failure
                or next(filter(None, (pair.failure for pair in self.pairs)), None)
                or self._check_faults()
            )
        if reason is not None and not isinstance(reason, Faulted):
            # A call of Spark that fails because its JVM has gone says less than the watch does.
            reason = self._watch.wait_for_failure(JVM_IS_GONE_WITHIN) or reason
        return self._leave(reason, turned)

    def _check_faults(self) -> Faulted | None:
        """Logs the faults of pairs. Returns why the worker must end, if none of its pairs is left."""
        faults = {pair: fault for pair in self.pairs if (fault := pair.fault) is not None}
        if len(faults) == len(self.pairs):
            return _no_pair_left(faults)
        for pair, fault in faults.items():
            name = pair.settings.name
            if self._reported.get(name) is not fault:
                self._reported[name] = fault
                log.error(
                    "The pair %s has faulted, its %s cannot be used: %s It is closed and set up again in %s; the other "
                    "pairs go on.",
                    name,
                    fault.cause.side,
                    _sentence(fault.cause.text),
                    duration(fault.retry),
                )
        return None

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Asks the worker to end. Safe in a signal handler."""
        self._ending.begin(STOPPED)
        self._stopping.set()

    def reload(self, config: Config) -> None:
        """Takes over rates and destinations. Pairs, namespaces and queues stay as they are until the next start.

        A running job with other destinations ends early, and the next job uses the new ones. A pair that is faulted is
        set up again at once.
        """
        fresh = {pair.name: pair for pair in config.pairs}
        for pair in self.pairs:
            settings = fresh.get(pair.settings.name, pair.settings)
            pair.reload(settings)
            pair.set_up_now()
            self._control_server.set_rate(settings.name, settings.rate, settings.rate_share)

    # --- ending --------------------------------------------------------------------------------------------------

    def _leave(self, reason: SyphonError | None, turned: Callable[[], None]) -> SyphonError | None:
        """Stops listening first, so that no job begins; then the slots, while both sides are open; then the sides."""
        self._ending.begin(STOPPED if reason is None else FAULTED)
        self._stopping.set()
        turned()
        self._control_server.stop_all()
        for pair in self.pairs:
            pair.silence()
        while self._ending.left_for(Step.SLOTS) and any(pair.is_working for pair in self.pairs):
            turned()
            time.sleep(TURN / 4)
        for pair in self.pairs:
            if pair.is_working:
                log.warning("%s: some messages in hand were not finished; they come again", pair.settings.name)
        self._close_pairs()
        return reason

    def _close_pairs(self) -> None:
        """Closes both sides of every pair, all at once: many pairs have no more time than one."""
        threads = [threading.Thread(target=pair.stop, name="close pair", daemon=True) for pair in self.pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self._ending.left_for(Step.SIDES))


def _no_pair_left(faults: Mapping[PairWorker, PairFault]) -> Faulted:
    """Why a worker ends whose pairs are all faulted. A worker that was refused from the start is not authorized."""
    is_refused = all(fault.cause.denied and not pair.has_worked for pair, fault in faults.items())
    causes = [f"the {fault.cause.side} of {pair.settings.name}: {fault.cause.text}" for pair, fault in faults.items()]
    (name, *others) = (pair.settings.name for pair in faults)
    what = (
        "All pairs have faulted, and the worker ends" if others else f"The pair {name} has faulted, and the worker ends"
    )
    return (NotAuthorized if is_refused else Faulted)(f"{what}: {' '.join(map(_sentence, causes))}")


def _sentence(text: str) -> str:
    return text.rstrip(" .") + "."
