"""Spark on demand: a worker starts Spark when a pair has messages, and stops it when there is nothing to do (D20, X8).

    Stopped ──a pair waits for a slot──► Starting ──► Running ──no job for idle_shutdown──► Stopping ──► Stopped
                                          ▲    │         │                                  (a waiting pair: Starting)
                 the delay is over        │    ▼         ▼
                                          └─ BackingOff: Spark did not start, or was lost

Pairs ask the slot budget for slots, and get none while Spark does not run. So no ring is lost, whatever Spark does: its
queue waits until there is a slot. One thread starts and stops Spark; the others only read what it has published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Protocol

from syphon.config import PairSettings
from syphon.control import HandOver
from syphon.model import RetryPolicy, SyphonError, duration, first_line
from syphon.servicebus import RUNTIME, Runtime
from syphon.spark import JobResult, SparkLost
from syphon.time_budget import (
    FIRST_SPARK_RETRY,
    LONGEST_SPARK_RETRY,
    LOST_JOBS_END_WITHIN,
    STARTS_WITHIN,
    WORKER_TURN,
)
from syphon.transfer import DestinationBackoff, PumpOptions

from .slots import SlotBudget

log = logging.getLogger(__name__)


class SparkState(StrEnum):
    """What Spark does."""

    STOPPED = "stopped"
    """There is nothing to do: no JVM runs. Spark starts with the next message."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    BACKING_OFF = "backing_off"
    """Spark did not start, or was lost. Messages stay in the backlog until the next attempt."""

    @property
    def words(self) -> str:
        """The state as people read it."""
        return "idle (stopped)" if self is SparkState.STOPPED else self.value.replace("_", " ")


class SparkEvent(Enum):
    """What happens to Spark."""

    WANTED = auto()
    """A pair waits for a slot, and no delay remains."""
    STARTED = auto()
    NOT_STARTED = auto()
    IDLE = auto()
    """No job has run for long enough."""
    ENDED = auto()
    """Its processes are gone."""
    LOST = auto()


TRANSITIONS: Mapping[tuple[SparkState, SparkEvent], SparkState] = {
    (SparkState.STOPPED, SparkEvent.WANTED): SparkState.STARTING,
    (SparkState.STARTING, SparkEvent.STARTED): SparkState.RUNNING,
    (SparkState.STARTING, SparkEvent.NOT_STARTED): SparkState.BACKING_OFF,
    (SparkState.RUNNING, SparkEvent.IDLE): SparkState.STOPPING,
    (SparkState.RUNNING, SparkEvent.LOST): SparkState.BACKING_OFF,
    (SparkState.STOPPING, SparkEvent.ENDED): SparkState.STOPPED,
    (SparkState.BACKING_OFF, SparkEvent.WANTED): SparkState.STARTING,
}
"""All other events are mistakes."""


class RunningSpark(Protocol):
    """Spark while it runs."""

    @property
    def most_slots(self) -> int:
        """How many slots it runs at once."""

    @property
    def is_ours(self) -> bool:
        """Whether the worker has started it. Others are used as they are, and never stopped."""

    @property
    def failure(self) -> SyphonError | None:
        """Why it is lost; None while it is not."""

    def run(
        self,
        pair: PairSettings,
        queues: Sequence[HandOver],
        options: Sequence[PumpOptions],
        backing_off: Sequence[DestinationBackoff] = (),
        *,
        rate: float | None = None,
        job: str = "",
    ) -> JobResult:
        """Runs a job, as `Jobs.run` does. It never raises SparkLost: the result says it."""

    def stop(self) -> None:
        """Ends it, unless another program has started it."""


class SparkStarter(Protocol):
    """Starts Spark, and ends what hangs."""

    def start(self) -> RunningSpark:
        """Starts Spark, which may take minutes on a cluster. Raises what prevents it."""

    def kill(self) -> None:
        """Ends a start, or a JVM that does not stop. Called by other threads."""


@dataclass(frozen=True, slots=True)
class SparkView:
    """The state of Spark at one moment. Times are monotonic."""

    state: SparkState
    since: float
    error: str = ""
    """Why it did not start, or was lost; empty when it has started since."""
    failing_since: float | None = None
    next_attempt: float | None = None
    """None unless it backs off."""


class SparkLifecycle:
    """Owns Spark for a worker."""

    def __init__(
        self,
        starter: SparkStarter,
        idle_shutdown: float,
        *,
        is_needed: Callable[[], bool] = lambda: False,
        runtime: Runtime = RUNTIME,
    ) -> None:
        """`idle_shutdown`: seconds without a job until Spark stops; 0: never. `is_needed`: something else needs it."""
        self.budget = SlotBudget()
        """The slots of all pairs; none while Spark does not run."""
        self.failure: SyphonError | None = None
        """The error that must end the worker."""
        self._starter = starter
        self._idle_shutdown = idle_shutdown
        self._is_needed = is_needed
        self._now = runtime.now
        self.view = SparkView(SparkState.STOPPED, self._now())
        self._spark: RunningSpark | None = None
        self._used_at = self._now()
        self._retries = RetryPolicy(first=FIRST_SPARK_RETRY, longest=LONGEST_SPARK_RETRY)
        self._failures = 0
        self._over = runtime.event()
        self._thread = runtime.thread(self._run, "Spark")

    def start(self) -> None:
        """Starts the thread; Spark only if it must always run."""
        self._thread.start()

    def run(
        self,
        pair: PairSettings,
        queues: Sequence[HandOver],
        options: Sequence[PumpOptions],
        backing_off: Sequence[DestinationBackoff] = (),
        *,
        rate: float | None = None,
        job: str = "",
    ) -> JobResult:
        """Runs a job on the Spark that runs. The caller has a slot of the budget."""
        spark = self._spark
        if spark is None:
            return JobResult((), f"Spark was lost before the job began: {self.view.error}")
        result = spark.run(pair, queues, options, backing_off, rate=rate, job=job)
        if not result.spark_error:
            self._failures = 0
            with suppress(Exception):  # Spark may have been lost since
                self.budget.resize(spark.most_slots)
        return result

    def end(self) -> None:
        """Starts Spark no more. A start that is running fails."""
        self._over.set()
        if self.view.state is SparkState.STARTING:
            self._starter.kill()

    def stop(self, within: Callable[[], float]) -> None:
        """Ends Spark, if it runs. It takes as long as `within` says at most, and a moment."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(within())
        spark = self._spark
        if spark is not None and not self._thread.is_alive():
            self._end(spark)
        self._starter.kill()

    def check(self) -> None:
        """Ends a start that hangs. For the worker's own thread, because that of Spark waits for it."""
        if self.view.state is SparkState.STARTING and self._now() - self.view.since > STARTS_WITHIN:
            self._starter.kill()

    # --- its thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._turn()
                self._over.wait(WORKER_TURN)
        except BaseException as error:
            self.failure = SyphonError(f"{type(error).__name__}: {error}")
            log.debug("the thread of Spark", exc_info=True)

    def _turn(self) -> None:
        spark, now, view = self._spark, self._now(), self.view
        if spark is not None:
            self._watch(spark, now)
        elif running := self.budget.running:
            if now - view.since > LOST_JOBS_END_WITHIN:
                self.failure = SparkLost(f"{view.error} {running} of its jobs do not end. Restart syphon.")
        elif self._is_wanted and now >= (view.next_attempt or now):
            self._start()

    @property
    def _is_wanted(self) -> bool:
        return self._idle_shutdown == 0 or self.budget.is_wanted or self._is_needed()

    def _watch(self, spark: RunningSpark, now: float) -> None:
        """Notices that Spark is lost, or has had nothing to do for long enough."""
        if (lost := spark.failure) is not None:
            self.budget.close()
            self._end(spark)
            self._fail(SparkEvent.LOST, lost)
        elif self.budget.running or self._is_wanted:
            self._used_at = now
        elif spark.is_ours and now - self._used_at >= self._idle_shutdown and self.budget.close_if_unused():
            self._happened(SparkEvent.IDLE)
            log.info("stopping Spark: no job for %s; the next message starts it again", duration(self._idle_shutdown))
            self._end(spark)
            self._happened(SparkEvent.ENDED)
            log.info("Spark has stopped")

    def _start(self) -> None:
        self._happened(SparkEvent.WANTED)
        log.info("starting Spark")
        began = self._now()
        try:
            spark = self._starter.start()
        except Exception as error:
            if not self._over.is_set():
                self._fail(SparkEvent.NOT_STARTED, error)
            return
        self._spark = spark
        self._used_at = self._now()
        self.view = SparkView(TRANSITIONS[self.view.state, SparkEvent.STARTED], self._used_at)
        log.info("Spark runs, after %.1f s", self._used_at - began)
        self.budget.open(spark.most_slots)

    def _end(self, spark: RunningSpark) -> None:
        self._spark = None
        try:
            spark.stop()
        except Exception:
            log.debug("error while Spark was stopped", exc_info=True)

    def _fail(self, event: SparkEvent, error: Exception) -> None:
        """Backs off. The error stays in view until Spark has started again."""
        text = str(error) if isinstance(error, SyphonError) else f"{type(error).__name__}: {first_line(str(error))}"
        delay, now = self._retries.delay(self._failures), self._now()
        self._failures += 1
        since = now if self.view.failing_since is None else self.view.failing_since
        self.view = SparkView(TRANSITIONS[self.view.state, event], now, text, since, now + delay)
        log.error("%s Messages stay in the backlog; starting Spark again in %s.", _sentence(text), duration(delay))

    def _happened(self, event: SparkEvent) -> None:
        view = self.view
        self.view = SparkView(TRANSITIONS[view.state, event], self._now(), view.error, view.failing_since)


def _sentence(text: str) -> str:
    return text.rstrip(" .") + "."
