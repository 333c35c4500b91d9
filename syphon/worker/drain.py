"""The drain: it moves the messages of every backlog queue until the queue is proven empty, or a limit ends it (X2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syphon.backlog import SelectedQueue, by_pair
from syphon.bus import SideFault
from syphon.model import QueueKey
from syphon.spark import FAULTED, STOPPED, ControlServer, Ending, Jobs, JvmWatch, Shares, SparkLost, Step, Totals
from syphon.transfer import DestinationBackoff

from .backoffs import Backoffs
from .message_counts import EmptinessCheck, MessageCounts
from .queue_drain import DrainOptions, DrainState, QueueDrain
from .shared_limit import SharedLimit

if TYPE_CHECKING:
    from .empty_backlog import EmptyQueue

JVM_IS_GONE_WITHIN = 1.0
"""Seconds from the first failed call of Spark to the end of its JVM, if that is the reason."""

__all__ = ["Drain", "DrainOptions", "DrainResult", "QueueDrain", "DrainState"]


@dataclass(frozen=True, slots=True)
class DrainResult:
    """How a drain ended."""

    queues: tuple[QueueDrain | EmptyQueue, ...]
    seconds: float
    backing_off: tuple[DestinationBackoff, ...] = ()
    lost: SparkLost | None = None
    """Why Spark was lost before the drain had ended, if it was."""

    @property
    def totals(self) -> Totals:
        return Totals.total(queue.totals for queue in self.queues)

    @property
    def remaining(self) -> int | None:
        """Messages that were asked for and are still in the backlog; None if a queue could not be peeked."""
        return _sum(queue.remaining for queue in self.queues)

    @property
    def others(self) -> int | None:
        """Messages in the backlog that were not asked for; None if a queue could not be peeked."""
        return _sum(queue.others for queue in self.queues)

    @property
    def has_no_match(self) -> bool:
        """The filter matched no message, although there are messages in the backlog."""
        return self.is_empty and not self.totals.moved and bool(self.others)

    @property
    def fault(self) -> SideFault | None:
        return next((queue.fault for queue in self.queues if queue.fault is not None), None)

    @property
    def is_empty(self) -> bool:
        return all(queue.state in (DrainState.EMPTY, DrainState.NOT_THERE) for queue in self.queues)

    @property
    def absent(self) -> tuple[str, ...]:
        """Pairs that have none of their queues: the backlog may be empty, or this may be the wrong namespace."""
        there = {queue.pair.name for queue in self.queues if queue.state is not DrainState.NOT_THERE}
        return tuple(dict.fromkeys(queue.pair.name for queue in self.queues if queue.pair.name not in there))


class Drain:
    """Drains all queues of all pairs, once."""

    def __init__(
        self,
        selected: Sequence[SelectedQueue],
        jobs: Jobs,
        control_server: ControlServer,
        options: DrainOptions,
        counts: MessageCounts,
        ending: Ending | None = None,
        watch: JvmWatch | None = None,
    ) -> None:
        self._ending = ending or Ending()
        self._watch = watch or JvmWatch(None, self._ending)
        self._lost: SparkLost | None = None
        self._control_server = control_server
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._deadline = None if options.timeout is None else self._began + options.timeout
        self._checks = []
        self.queues: list[QueueDrain] = []
        limit = SharedLimit(options.limit, len(selected))
        for pair, ours in by_pair(selected):
            control_server.set_rate(pair.name, options.rate)
            emptiness, backoffs = EmptinessCheck(pair.secondary), Backoffs(pair.name)
            self._checks.append(emptiness)
            for _, queue in ours:
                expected = counts.get((pair.name, queue))
                self.queues.append(
                    QueueDrain(pair, queue, jobs, options, emptiness, backoffs, limit, self._stopping, expected)
                )

    def run(self, show: Callable[[], None], every: float = 0.5) -> DrainResult:
        """Drains all queues. It calls `show` every half second, so that progress can be shown."""
        for queue in self.queues:
            queue.start()
        while not self._is_done():
            show()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.stop()
            if self._has_fault():
                self._end(FAULTED)
            self._wait(every)
        if self._lost is None and any(queue.state is DrainState.FAILED for queue in self.queues):
            self._lost = self._watch.wait_for_failure(JVM_IS_GONE_WITHIN)
        self._count_rests()
        self._count_cut_off()
        show()
        backing_off = tuple(self.backing_off())
        return DrainResult(tuple(self.queues), time.monotonic() - self._began, backing_off, self._lost)

    def _has_fault(self) -> bool:
        """A slot reports a fault at once, before it has given back what it has in hand."""
        return any(queue.fault is not None for queue in self.queues) or any(
            report.fault is not None for report in self._control_server.live_reports()
        )

    def _is_done(self) -> bool:
        """All queues have ended, or their time to end is over."""
        return all(queue.state.is_final for queue in self.queues) or self._ending.left_for(Step.SLOTS) == 0.0

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_done():
            if self._lost is None and (lost := self._watch.failure) is not None:
                self._lost = lost
                self._end(FAULTED)
            time.sleep(0.05)

    def _count_rests(self) -> None:
        """Counts what is left, as long as there is time. It runs in a thread: a namespace may not answer."""
        thread = threading.Thread(target=self._count_each, name="count the rest", daemon=True)
        thread.start()
        thread.join(self._ending.left_for(Step.SIDES) if self._ending.has_begun else None)

    def _count_each(self) -> None:
        for queue in self.queues:
            if queue.state.is_final:
                queue.join(1.0)
            queue.count_rest()
        for check in self._checks:
            check.close()

    def _count_cut_off(self) -> None:
        """Adds the last reports of slots whose jobs were cut off: what they had moved has moved."""
        for queue in self.queues:
            key = QueueKey(queue.pair.name, queue.queue)
            reports = [report for report in self._control_server.live_reports() if report.queue_key == key]
            queue.totals = queue.totals.with_ended(reports)
            queue.fault = queue.fault or next((report.fault for report in reports if report.fault), None)

    def stop(self) -> None:
        """Takes no more messages, and finishes those in hand. Safe in a signal handler."""
        self._end(STOPPED)

    def _end(self, shares: Shares) -> None:
        self._ending.begin(shares)
        self._stopping.set()
        self._control_server.stop_all()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def live(self, queue: QueueDrain) -> Totals:
        """The totals of a queue, with the job that runs now."""
        key = QueueKey(queue.pair.name, queue.queue)
        return queue.totals.with_live(
            report for report in self._control_server.live_reports() if report.queue_key == key
        )

    def backing_off(self) -> list[DestinationBackoff]:
        """The destinations that accept nothing now."""
        lists = {id(queue.backoffs): queue.backoffs for queue in self.queues}.values()
        return [destination for each in lists for destination in each.now()]


def _sum(counts: Iterable[int | None]) -> int | None:
    every = list(counts)
    return None if None in every else sum(count for count in every if count is not None)
