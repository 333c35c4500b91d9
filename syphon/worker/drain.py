"""The drain: every backlog queue is carried until it is proven empty, or until a limit is reached (X2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from syphon.backlog import SelectedQueue, by_pair
from syphon.bus import SideFault
from syphon.spark import ControlServer, Jobs, Totals
from syphon.transfer import DestinationBackoff

from .backoffs import Backoffs
from .emptiness import EmptinessCheck
from .message_counts import Hints
from .queue_drain import DrainOptions, QueueDrain, QueueState
from .shared_limit import SharedLimit

__all__ = ["Drain", "DrainOptions", "DrainResult", "QueueDrain", "QueueState"]


@dataclass(frozen=True, slots=True)
class DrainResult:
    """How a drain ended."""

    queues: tuple[QueueDrain, ...]
    seconds: float
    waiting: tuple[DestinationBackoff, ...] = ()

    @property
    def account(self) -> Totals:
        return Totals.total(queue.account for queue in self.queues)

    @property
    def remaining(self) -> int | None:
        """Messages still in the backlog that were asked for; None if nobody could look."""
        counts = [queue.remaining for queue in self.queues]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def fault(self) -> SideFault | None:
        return next((queue.fault for queue in self.queues if queue.fault is not None), None)

    @property
    def is_empty(self) -> bool:
        return all(queue.state in (QueueState.EMPTY, QueueState.NOT_THERE) for queue in self.queues)

    @property
    def absent(self) -> tuple[str, ...]:
        """Pairs none of whose queues is there: nobody can say whether that is an empty backlog, or the wrong place."""
        there = {queue.pair.name for queue in self.queues if queue.state is not QueueState.NOT_THERE}
        return tuple(dict.fromkeys(queue.pair.name for queue in self.queues if queue.pair.name not in there))


class Drain:
    """All queues of all pairs, once."""

    def __init__(
        self, assignments: Sequence[SelectedQueue], jobs: Jobs, desk: ControlServer, options: DrainOptions, hints: Hints
    ) -> None:
        self._desk = desk
        self._over = threading.Event()
        self._began = time.monotonic()
        self._deadline = None if options.timeout is None else self._began + options.timeout
        self._lookouts = []
        self.queues: list[QueueDrain] = []
        allowance = SharedLimit(options.limit, len(assignments))
        for pair, ours in by_pair(assignments):
            desk.limit(pair.name, options.rate)
            lookout, waiting = EmptinessCheck(pair.secondary), Backoffs(pair.name)
            self._lookouts.append(lookout)
            for _, queue in ours:
                hint = hints.get((pair.name, queue))
                self.queues.append(
                    QueueDrain(pair, queue, jobs, options, lookout, waiting, allowance, self._over, hint)
                )

    def run(self, show: Callable[[], None], every: float = 0.5) -> DrainResult:
        """Drains; `show` is called now and then, to tell how it is getting on."""
        for queue in self.queues:
            queue.start()
        while not all(queue.state.is_final for queue in self.queues):
            show()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self.stop()
            if any(queue.fault is not None for queue in self.queues):
                self.stop()
            self._wait(every)
        for queue in self.queues:
            queue.join(1.0)
            queue.look_back()
        for lookout in self._lookouts:
            lookout.close()
        show()
        return DrainResult(tuple(self.queues), time.monotonic() - self._began, tuple(self.waiting()))

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not all(queue.state.is_final for queue in self.queues):
            time.sleep(0.05)

    def stop(self) -> None:
        """Takes no more messages, finishes what is in hand. Safe in a signal handler."""
        self._over.set()
        self._desk.stop_all()

    @property
    def is_stopping(self) -> bool:
        return self._over.is_set()

    def live(self, queue: QueueDrain) -> Totals:
        """A queue's account with what is under way."""
        return queue.account.plus(
            sheet for sheet in self._desk.sheets() if sheet.queue == queue.queue and sheet.pair == queue.pair.name
        )

    def waiting(self) -> list[DestinationBackoff]:
        """The destinations that take nothing now."""
        lists = {id(queue.waiting): queue.waiting for queue in self.queues}.values()
        return [destination for each in lists for destination in each.now()]
