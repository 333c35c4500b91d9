"""The drain: it moves the messages of every backlog queue until the queue is proven empty, or a limit ends it (X2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from syphon.backlog import SelectedQueue, by_pair
from syphon.bus import SideFault
from syphon.spark import ControlServer, Jobs, QueueAttempt, Totals
from syphon.transfer import DestinationBackoff

from .backoffs import Backoffs
from .message_counts import MessageCounts
from .pair_drain import PairDrain
from .queue_drain import DrainOptions, DrainState, QueueDrain
from .shared_limit import SharedLimit

__all__ = ["Drain", "DrainOptions", "DrainResult", "QueueDrain", "DrainState"]


@dataclass(frozen=True, slots=True)
class DrainResult:
    """How a drain ended."""

    queues: tuple[QueueDrain, ...]
    seconds: float

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

    def __init__(self, selected: Sequence[SelectedQueue], options: DrainOptions, counts: MessageCounts) -> None:
        self._options = options
        self._stopping = threading.Event()
        self._began = time.monotonic()
        self._deadline = None if options.timeout is None else self._began + options.timeout
        self._control_server: ControlServer | None = None
        self.queues: list[QueueDrain] = []
        self._pairs: list[PairDrain] = []
        chosen = by_pair(selected)
        limit = SharedLimit(options.limit, len(chosen))
        for pair, ours in chosen:
            backoffs = Backoffs(pair.name)
            queues = [QueueDrain(pair, queue, options, backoffs, counts.get((pair.name, queue))) for _, queue in ours]
            self.queues += queues
            self._pairs.append(PairDrain(pair, queues, options, backoffs, limit, self._stopping))

    def look(self) -> bool:
        """Peeks into every queue. Returns whether there is something to move: only then is Spark needed."""
        for pair in self._pairs:
            pair.look()
        return not self._is_over

    def run(self, jobs: Jobs, control_server: ControlServer, show: Callable[[], None], every: float = 0.5) -> None:
        """Drains all queues. It calls `show` every half second, so that progress can be shown."""
        self._control_server = control_server
        if self._stopping.is_set():
            control_server.stop_all()  # it was stopped while Spark started
        for pair in self._pairs:
            control_server.set_rate(pair.pair.name, self._options.rate)
            pair.start(jobs)
        while not self._is_over:
            show()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.stop()
            if any(queue.fault is not None for queue in self.queues):
                self.stop()
            self._wait(every)
        show()

    def result(self) -> DrainResult:
        """How it ended. Counts what is left."""
        for pair in self._pairs:
            pair.finish()
        return DrainResult(tuple(self.queues), time.monotonic() - self._began)

    @property
    def _is_over(self) -> bool:
        return all(queue.state.is_final for queue in self.queues)

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._is_over:
            time.sleep(0.05)

    def stop(self) -> None:
        """Takes no more messages, and finishes those in hand. Safe in a signal handler."""
        self._stopping.set()
        if self._control_server is not None:
            self._control_server.stop_all()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def live(self, queue: QueueDrain) -> Totals:
        """The totals of a queue, with the job that runs now."""
        reports = self._control_server.live_reports() if self._control_server is not None else []
        return queue.totals.with_live(
            QueueAttempt(report, found)
            for report in reports
            if report.pair == queue.pair.name and (found := report.of(queue.queue)) is not None
        )

    def backing_off(self) -> list[DestinationBackoff]:
        """The destinations that accept nothing now."""
        return [destination for pair in self._pairs for destination in pair.backoffs.now()]


def _sum(counts: Iterable[int | None]) -> int | None:
    every = list(counts)
    return None if None in every else sum(count for count in every if count is not None)
