"""The drain: it moves the messages of every backlog queue until the queue is proven empty, or a limit ends it (X2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from syphon.backlog import SelectedQueue, by_pair
from syphon.control import FAULTED, STOPPED, QueueAttempt, RateLimit, Shares, Step
from syphon.model import QueueKey
from syphon.spark import SparkLost
from syphon.transfer import MovePlan

from ..pausable_gate import PausableGate
from ..start_stop import Engine
from .drain_options import TransferOptions
from .emptiness import MessageCounts
from .pair_drain import PairDrain
from .queue_drain import QueueDrain, unreachable
from .queue_state import DrainState
from .result import DrainProgress, DrainResult, QueueProgress
from .shared_limit import SharedLimit


class Drain:
    """Drains all queues of all pairs, once."""

    def __init__(
        self,
        selected: Sequence[SelectedQueue],
        options: TransferOptions,
        counts: MessageCounts,
        lease: float = 60.0,
        move: MovePlan | None = None,
    ) -> None:
        """With `move` the queues are no backlog queues: it says where their messages go."""
        self._options = options
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._deadline = None if options.timeout is None else self._began + options.timeout
        self._engine: Engine | None = None
        self._lost: SparkLost | None = None
        self._result: DrainResult | None = None
        self.queues: list[QueueDrain] = []
        self._pair_drains: list[PairDrain] = []
        chosen = by_pair(selected)
        limit = SharedLimit(options.limit, len(chosen))
        for pair, ours in chosen:
            backoffs = PausableGate(pair.name)
            backoffs.renames = pair.destinations.renames
            backoffs.target = None if move is None else move.target
            queues = [
                QueueDrain(pair, queue, options, backoffs, counts.get(QueueKey(pair.name, queue))) for _, queue in ours
            ]
            self.queues += queues
            self._pair_drains.append(
                PairDrain(
                    pair,
                    queues,
                    options,
                    backoffs=backoffs,
                    limit=limit,
                    stopping=self._stopping,
                    lease=lease,
                    move=move,
                )
            )

    def peek(self) -> bool:
        """Peeks into every queue. Returns whether there is something to move: only then is Spark needed.

        Most drains that a timer starts find nothing, and starting Spark takes ten seconds of CPU.
        """
        for pair in self._pair_drains:
            pair.peek()
        return not self._is_over

    def run(self, engine: Engine, show: Callable[[DrainProgress], None], every: float = 0.5) -> None:
        """Drains all queues. Calls `show` every half second."""
        self._engine = engine
        if self._stopping.is_set():
            self.stop()  # it was stopped while Spark started
        for pair in self._pair_drains:
            engine.control_server.set_rate(pair.pair.name, self._options.rate, pair.pair.rate_share)
            pair.start(engine.jobs)
        while not self._is_over and engine.ending.left_for(Step.SLOTS) > 0.0:
            show(self.progress())
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.stop()
            if self._has_fault():
                self._end(FAULTED)
            self._wait(every)
        if self._lost is None and any(queue.state is DrainState.FAILED for queue in self.queues):
            self._lost = engine.watch.wait_for_failure()
        self._count_cut_off()
        show(self.progress())

    def result(self) -> DrainResult:
        """How the drain ended. Counts the remaining messages, once."""
        if self._result is None:
            self._count_rest()
            self._result = DrainResult(tuple(self.queues), time.monotonic() - self._began, self._lost)
        return self._result

    @property
    def _is_over(self) -> bool:
        return all(queue.state.is_final for queue in self.queues)

    def _has_fault(self) -> bool:
        """A slot reports a fault at once, before it has abandoned its messages in flight."""
        return any(queue.fault is not None for queue in self.queues) or any(
            attempt.slot.fault is not None for queue in self.queues for attempt in self._live(queue)
        )

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_over:
            if self._lost is None and self._engine is not None and self._engine.watch.failure is not None:
                self._lost = self._engine.watch.failure
                self._end(FAULTED)
            time.sleep(0.05)

    def _count_rest(self) -> None:
        """Counts the remaining messages while there is time. It uses a thread: a namespace may never answer."""
        ending = self._engine.ending if self._engine is not None else None
        thread = threading.Thread(target=self._finish_pairs, name="count the rest", daemon=True)
        thread.start()
        thread.join(ending.left_for(Step.SIDES) if ending is not None and ending.has_begun else None)

    def _finish_pairs(self) -> None:
        for pair in self._pair_drains:
            pair.finish()

    def _count_cut_off(self) -> None:
        """Adds the last reports of slots whose jobs were cut off: the messages they moved count."""
        for queue in self.queues:
            queue.cut_off(self._live(queue))

    def stop(self) -> None:
        """Receives no more messages, and finishes those in flight. Safe in a signal handler."""
        self._end(STOPPED)

    def _end(self, shares: Shares) -> None:
        self._stopping.set()
        if self._engine is not None:
            self._engine.ending.begin(shares)
            self._engine.control_server.stop_all()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def progress(self) -> DrainProgress:
        """The progress of the drain, including the running jobs."""
        backing_off = tuple(backoff for pair in self._pair_drains for backoff in pair.backoffs.backing_off())
        limits = self._limits()
        queues = tuple(self._progress_of(queue, limits.get(queue.pair.name, RateLimit())) for queue in self.queues)
        return DrainProgress(queues, backing_off, limits, self.is_stopping)

    def _limits(self) -> dict[str, RateLimit]:
        if self._engine is None:
            return {}
        found = {pair.pair.name: self._engine.control_server.rate_limit(pair.pair.name) for pair in self._pair_drains}
        return {name: limit for name, limit in found.items() if limit.per_second is not None}

    def _progress_of(self, queue: QueueDrain, limit: RateLimit) -> QueueProgress:
        live = self._live(queue)
        totals = queue.totals.with_live(live)
        counts = (totals.moved, totals.in_flight, totals.dead_lettered)
        state, error = queue.state, queue.error
        if state is DrainState.MOVING:
            if primary_error := _primary_error(queue, live):
                state, error = DrainState.WAITING, unreachable(primary_error)
            elif limit.is_throttled:
                state = DrainState.THROTTLED
        expected = None if self._options.is_filtered else queue.expected
        return QueueProgress(queue.pair.name, queue.queue, state, error, expected, *counts)

    def _live(self, queue: QueueDrain) -> list[QueueAttempt]:
        reports = self._engine.control_server.live_reports() if self._engine is not None else []
        return [
            QueueAttempt(report, found)
            for report in reports
            if report.pair == queue.pair.name and (found := report.of(queue.queue)) is not None
        ]


def _primary_error(queue: QueueDrain, live: list[QueueAttempt]) -> str:
    """Why the primary is unreachable, by the running job. Until it knows, what the last one found counts."""
    if any(attempt.slot.is_primary_connected for attempt in live):
        return ""
    return next((attempt.slot.primary_error for attempt in live if attempt.slot.primary_error), queue.primary_error)
