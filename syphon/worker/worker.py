"""The worker: it listens to the backlog queues of its pairs and moves their messages until it is stopped.

The worker supervises each pair separately: it closes a pair that faults and sets it up again later, and the others
continue (C1 to C3). The worker ends when all pairs have faulted. To stop, the worker first stops listening; then slots
forward or abandon the messages in flight; then both sides of every pair are closed. Each step has its share of the time
(`Ending`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from syphon.config import Config
from syphon.control import FAULTED, STOPPED, ControlServer, Ending, Step
from syphon.model import Faulted, NotAuthorized, SyphonError, duration
from syphon.servicebus import RUNTIME, Runtime
from syphon.time_budget import WORKER_TURN

from .pair_worker import OpenPair, PairFault, PairWorker, open_pair
from .pauses import Pauses
from .spark_lifecycle import SparkLifecycle

log = logging.getLogger(__name__)


class Worker:
    """Serves all pairs of a configuration."""

    def __init__(
        self,
        config: Config,
        spark: SparkLifecycle,
        control_server: ControlServer,
        *,
        makes_queues: bool = True,
        pauses: Pauses | None = None,
        ending: Ending | None = None,
        runtime: Runtime = RUNTIME,
        open_pair: OpenPair = open_pair,
    ) -> None:
        """`ending` belongs to the engine: it stops after the worker, in the remaining time.

        `runtime` and `open_pair` are for a simulation, which has its own (D18).
        """
        self._ending = ending or Ending()
        self.spark = spark
        self._runtime = runtime
        self._stopping = runtime.event()
        self._control_server = control_server
        self._reported: dict[str, PairFault] = {}
        """The last fault of each pair that was logged."""
        pauses = pauses or Pauses()
        self.pairs = [
            PairWorker(
                pair,
                config.pipeline,
                spark,
                control_server,
                stopping=self._stopping,
                makes_queues=makes_queues,
                pauses=pauses,
                runtime=runtime,
                open_pair=open_pair,
            )
            for pair in config.pairs
        ]
        self.reload(config)

    def start(self) -> None:
        """Starts to serve the pairs, each in its own threads. Spark starts when the first of them has messages."""
        self.spark.start()
        for pair in self.pairs:
            pair.start()

    def run(self, turned: Callable[[], None] = lambda: None) -> SyphonError | None:
        """Waits until the worker is stopped, or must end; then returns the reason. `turned` feeds a watchdog."""
        reason: SyphonError | None = None
        while not self._stopping.is_set() and reason is None:
            turned()
            self._stopping.wait(WORKER_TURN)
            self.spark.check()
            reason = (
                self.spark.failure
                or next(filter(None, (pair.failure for pair in self.pairs)), None)
                or self._check_faults()
            )
        return self._shut_down(reason, turned)

    def _check_faults(self) -> Faulted | None:
        """Logs the faults of pairs. Returns why the worker must end, if all its pairs have faulted."""
        faults = {pair: fault for pair in self.pairs if (fault := pair.fault) is not None}
        if len(faults) == len(self.pairs):
            return _no_pair_left(faults)
        for pair, fault in faults.items():
            name = pair.settings.name
            if self._reported.get(name) is not fault:
                self._reported[name] = fault
                log.error(
                    "The pair %s has faulted, its %s is unusable: %s Reopening it in %s; the other pairs continue.",
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
        """Tells the worker to stop. Safe in a signal handler."""
        self._ending.begin(STOPPED)
        self._stopping.set()

    def reload(self, config: Config) -> None:
        """Applies new rates and destinations. Pairs, namespaces and queues stay as they are until the next start.

        A running job with other destinations ends early, and the next job uses the new ones. A faulted pair is set up
        again at once.
        """
        fresh = {pair.name: pair for pair in config.pairs}
        for pair in self.pairs:
            settings = fresh.get(pair.settings.name, pair.settings)
            pair.reload(settings)
            pair.set_up_now()
            self._control_server.set_rate(settings.name, settings.rate, settings.rate_share)

    def limit_rate(self, pair: PairWorker, rate: float | None) -> None:
        """Limits the messages per second of a pair until the worker reloads its settings or ends; None: no limit."""
        settings = pair.settings.model_copy(update={"rate": rate})
        pair.reload(settings)
        self._control_server.set_rate(settings.name, rate, settings.rate_share)
        how = "as fast as the service accepts" if rate is None else f"at most {rate:,.10g} messages per second"
        log.info("%s: the operator has set the rate: %s", settings.name, how)

    # --- stopping ------------------------------------------------------------------------------------------------

    def _shut_down(self, reason: SyphonError | None, turned: Callable[[], None]) -> SyphonError | None:
        """Stops listening first, so that no job begins; then the slots, while both sides are open; then the sides."""
        self._ending.begin(STOPPED if reason is None else FAULTED)
        self._stopping.set()
        turned()
        self.spark.end()
        self._control_server.stop_all()
        for pair in self.pairs:
            pair.silence()
        pause = self._runtime.event()
        while self._ending.left_for(Step.SLOTS) and any(pair.is_working for pair in self.pairs):
            turned()
            pause.wait(WORKER_TURN / 4)
        for pair in self.pairs:
            if pair.is_working:
                log.warning("%s: some messages were still in flight; they are redelivered", pair.settings.name)
        self._close_pairs()
        return reason

    def _close_pairs(self) -> None:
        """Closes both sides of all pairs in parallel: many pairs have no more time than one."""
        threads = [self._runtime.thread(pair.stop, "close pair") for pair in self.pairs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self._ending.left_for(Step.SIDES))


def _no_pair_left(faults: Mapping[PairWorker, PairFault]) -> Faulted:
    """Why a worker ends whose pairs have all faulted. A worker that was refused from the start is not authorized."""
    is_refused = all(fault.cause.denied and not pair.has_worked for pair, fault in faults.items())
    causes = [f"the {fault.cause.side} of {pair.settings.name}: {fault.cause.text}" for pair, fault in faults.items()]
    (name, *others) = (pair.settings.name for pair in faults)
    what = "All pairs have faulted, the worker exits" if others else f"The pair {name} has faulted, the worker exits"
    return (NotAuthorized if is_refused else Faulted)(f"{what}: {' '.join(map(_sentence, causes))}")


def _sentence(text: str) -> str:
    return text.rstrip(" .") + "."
