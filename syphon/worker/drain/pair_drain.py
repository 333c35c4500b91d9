"""The drain of one pair: it peeks into the backlog queues and runs jobs until every queue is proven empty (X2, D4).

Every slot of a job serves all queues that still have messages: a drain of ten queues is as fast as a drain of one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from syphon.config import PairSettings
from syphon.control import HandOver
from syphon.model import (
    DestinationBusy,
    DestinationError,
    EntityPath,
    Faulted,
    Impossible,
    SyphonError,
)
from syphon.servicebus import Peeked, SideFault
from syphon.spark import JobResult, Jobs
from syphon.time_budget import DRAIN_QUIET, LONGEST_REST, SETTLING_INTERVAL, SHORTEST_REST
from syphon.transfer import MOST_QUEUES, MovePlan, PumpOptions

from ..pausable_gate import PausableGate
from .drain_options import TransferOptions
from .emptiness import EmptinessCheck
from .queue_drain import QueueDrain
from .queue_state import DrainEvent, DrainState
from .shared_limit import LimitShare, SharedLimit

PER_SLOT = 5_000
"""Messages that justify one more slot."""
NEED_A_PERSON = (DestinationError.MISSING, DestinationError.DISABLED)
"""The errors of a destination that does not recover by itself."""
LOCKED_ELSEWHERE = (
    "its messages are locked by another receiver: a worker, perhaps (`syphon pause` lets the drain have them), or "
    "a process that was killed, whose locks expire"
)
MOST_OTHERS = 250
"""Messages outside the filter in an empty queue that is peeked again: as many as one page holds."""
LEAST_ATTEMPTS = 3
"""How many times a destination must have answered busy before its messages count as stuck: waiting for as long as the
service demands is not an attempt."""


class PairDrain:
    """Drains the queues of one pair, in its own thread."""

    def __init__(
        self,
        pair: PairSettings,
        queues: list[QueueDrain],
        options: TransferOptions,
        *,
        backoffs: PausableGate,
        limit: SharedLimit,
        stopping: threading.Event,
        now: Callable[[], float] = time.monotonic,
        lease: float = 60.0,
        move: MovePlan | None = None,
    ) -> None:
        self.pair = pair
        self.queues = queues
        self.backoffs = backoffs
        self._options = options
        self._limit = limit
        self._stopping = stopping
        self._now = now
        self._lease = lease
        self._move = move
        self._emptiness = EmptinessCheck(pair.secondary)
        self._thread: threading.Thread | None = None

    @property
    def open_queues(self) -> list[QueueDrain]:
        return [queue for queue in self.queues if not queue.state.is_final]

    @property
    def _queues_to_serve(self) -> list[QueueDrain]:
        """Queues in which the last peek has found messages."""
        return [queue for queue in self.open_queues if queue.state is not DrainState.SETTLING]

    @property
    def _is_last_round(self) -> bool:
        """Whether each queue has been empty once, or its drain has ended in another way."""
        return all(queue.has_been_empty or queue.state.is_final for queue in self.queues)

    def _peek_empty_queues(self) -> None:
        """Peeks into the queues that were empty: messages may have arrived while others were drained.

        When each queue has been empty once, these messages are left in the backlog: a drain must end although senders
        continue. A queue with many messages outside the filter is skipped: peeking past them costs too much.
        """
        is_last_round = self._is_last_round
        passed_over = SyphonError if is_last_round else Impossible  # in earlier rounds an outage is worth a retry
        for queue in self.queues:
            if queue.state is not DrainState.EMPTY or (queue.others or 0) > MOST_OTHERS:
                continue
            try:
                queue.peek(self._emptiness)
            except Faulted:
                raise
            except passed_over as error:  # it was empty, and must not hold up the others
                queue.error = str(error)
            if is_last_round and queue.empty_since is None:
                queue.happened(DrainEvent.LATE_MESSAGES)

    def peek(self) -> None:
        """Peeks into every queue once. A queue that cannot be peeked stays open."""
        for queue in self.open_queues:
            try:
                queue.peek(self._emptiness)
            except Faulted as error:
                self._fail(SideFault.of("secondary", error))
                return
            except SyphonError as error:
                queue.error = str(error)

    def start(self, jobs: Jobs) -> None:
        self._thread = threading.Thread(target=self._run, args=(jobs,), name=f"drain {self.pair.name}", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Counts the remaining messages after the drain, and closes the connection."""
        if self._thread is not None:
            self._thread.join(1.0)
        for queue in self.queues:
            queue.count_rest(self._emptiness)
        self._emptiness.close()

    # --- its own thread ------------------------------------------------------------------------------------------

    def _run(self, jobs: Jobs) -> None:
        try:
            self._drain(jobs)
        except Faulted as error:
            self._fail(SideFault.of("secondary", error))
        except SyphonError as error:
            self._end(DrainEvent.BROKEN, str(error))
        except BaseException as error:
            self._end(DrainEvent.BROKEN, f"{type(error).__name__}: {error}")
            raise
        finally:
            self._limit.leave()

    def _drain(self, jobs: Jobs) -> None:
        """Peeks and runs jobs until every queue is proven empty, or something else ends the drain."""
        while self._are_there_more():
            if self._stopping.is_set():
                return self._end(DrainEvent.TOLD_TO_STOP)
            with self._limit.share() as share:
                if share.most == 0:
                    return self._end(DrainEvent.LIMIT_REACHED)
                result = self._run_job(jobs, share)
            if result.fault is not None:
                return self._fail(result.fault)
            if result.is_cancelled:
                return self._end(DrainEvent.TOLD_TO_STOP, result.spark_error)
            if result.is_python_unusable:
                return self._end(DrainEvent.BROKEN, result.spark_error)
            for queue in self._queues_to_serve:
                is_stuck = queue.attempts and queue.is_stuck and self._has_tried_enough()
                if is_stuck or (not result.counters.moved and self._only_waits(queue)):
                    queue.happened(DrainEvent.NO_PROGRESS, self._locked_elsewhere(queue, result))
            if not result.has_more:
                self._rest(result)
        return None

    def _are_there_more(self) -> bool:
        """Peeks into the queues, and retries while the patience lasts: an unreachable secondary may come back."""
        while self.open_queues:
            try:
                self._peek_empty_queues()  # before the last open queue may end the drain
                for queue in self.open_queues:
                    queue.peek(self._emptiness)
                if self._queues_to_serve or self._stopping.is_set():
                    return bool(self.open_queues)
                self._stopping.wait(SETTLING_INTERVAL)  # all open queues are empty, and must stay so
            except Faulted:
                raise
            except SyphonError as error:
                if self._stopping.is_set() or all(queue.is_stuck for queue in self.open_queues):
                    raise
                rest = error.retry_after if isinstance(error, DestinationBusy) else SHORTEST_REST
                for queue in self.open_queues:
                    queue.happened(DrainEvent.HELD_UP, str(error))
                    if isinstance(error, DestinationBusy):
                        queue.sit_out(rest)  # the service demands it
                self._stopping.wait(rest)
        return False

    def _locked_elsewhere(self, queue: QueueDrain, result: JobResult) -> str:
        """That others hold the locks of a queue's messages, if nothing else says why a job received none of them."""
        is_received = any(attempt.queue.counters.received for attempt in result.attempts(queue.queue))
        if is_received or queue.error or not result.attempts(queue.queue) or self.backoffs.failing():
            return ""
        return LOCKED_ELSEWHERE

    def _has_tried_enough(self) -> bool:
        """Whether each throttled destination was tried several times: waiting alone is no reason to give up."""
        # Not those whose back-off is over: they have accepted messages since, or have none left.
        throttled = [backoff for backoff in self.backoffs.backing_off() if backoff.error is DestinationError.BUSY]
        return all(backoff.failures >= LEAST_ATTEMPTS for backoff in throttled)

    def _run_job(self, jobs: Jobs, share: LimitShare) -> JobResult:
        by_attempts = sorted(self._queues_to_serve, key=lambda queue: queue.attempts)
        served, others = by_attempts[:MOST_QUEUES], by_attempts[MOST_QUEUES:]
        began = self._now()
        for queue in served:
            queue.begin_attempt()
        queues = [HandOver(queue=queue.queue, deferred=queue.needs_deferred_scan) for queue in served]
        count = self._slots(jobs.most_slots) if share.most is None else 1
        options = [self._pump_options(share.most)] * count
        result = jobs.run(self.pair, queues, options, self.backoffs.failing(), rate=self._options.rate)
        self.backoffs.record(result.backing_off)
        for queue in served:
            queue.add(result)
        for queue in others:
            queue.sit_out(self._now() - began)
        share.used = result.counters.moved
        return result

    def _pump_options(self, limit: int | None) -> PumpOptions:
        given = {"limit": limit, "move": self._move, **self._options.for_pump()}
        return PumpOptions.for_pair(self.pair, lease=self._lease, quiet=DRAIN_QUIET, **given)

    def _slots(self, most: int) -> int:
        """How many slots a job gets: more for a deep backlog. The counts may be wrong; one slot is always correct."""
        if self.pair.session_order is not None:
            return 1  # others would wait for it (D21)
        most = min(most, self._options.slots or most)
        return max(1, min(most, sum(queue.expected_rest for queue in self.open_queues) // PER_SLOT))

    def _only_waits(self, queue: QueueDrain) -> bool:
        """Whether all remaining messages are for missing or disabled destinations: patience does not help them."""
        absent = {
            EntityPath.of(backoff.path).key for backoff in self.backoffs.backing_off() if backoff.error in NEED_A_PERSON
        }

        def can_move(message: Peeked) -> bool:
            destination = self.backoffs.destination_of(message.payload)
            return queue.wants(message) and (destination is None or destination.key not in absent)

        return bool(absent) and self._emptiness.count(queue.queue, can_move, 1).wanted == 0

    def _rest(self, result: JobResult) -> None:
        """Waits because the remaining messages are locked or their destinations back off, if the job left any."""
        if result.counters.received and not result.counters.left:
            return
        for queue in self._queues_to_serve:
            queue.happened(DrainEvent.HELD_UP, self._locked_elsewhere(queue, result))
        waits = [destination.seconds for destination in self.backoffs.backing_off()]
        self._stopping.wait(min(max(min(waits, default=SHORTEST_REST), SHORTEST_REST), LONGEST_REST))

    def _end(self, event: DrainEvent, error: str = "") -> None:
        for queue in self.open_queues:
            queue.happened(event, error)

    def _fail(self, fault: SideFault) -> None:
        for queue in self.open_queues:
            queue.fail(fault)
