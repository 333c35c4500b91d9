"""The observer: takes a snapshot of the worker once per second, which any thread may read.

The worker's own loop calls it, so it also knows whether that loop turns. More clients do not mean more snapshots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from syphon import __version__
from syphon.backlog import queue_names
from syphon.config import Config, PairSettings
from syphon.control import ControlServer, QueueTotals, RateLimit, Totals
from syphon.ledger import LedgerWriter
from syphon.model import QueueKey, SyphonError, earliest
from syphon.servicebus import Namespace
from syphon.time_budget import HUNG_AFTER, OBSERVE_EVERY, STARTS_WITHIN
from syphon.transfer import WaitingMessages
from syphon.worker import PairFault, PairWorker, Pauses, SparkView, Worker

from .backlog_counts import BacklogCounts, QueueActivity
from .canary import Canaries, CanaryRecord
from .destination_history import DestinationHistory
from .diagnosis import has_outage, outlook, problems
from .history import LastSuccess, RateMeter, ThroughputHistory
from .logs import RecentEvents
from .snapshot import (
    BacklogQueueState,
    CanaryStatus,
    DestinationState,
    DestinationStatus,
    FaultStatus,
    PairStatus,
    QueueStatus,
    SideState,
    SideStatus,
    SparkStatus,
    StatusTotals,
    WorkerState,
    WorkerStatus,
    moment,
)

STARTING = "starting: the worker is not up yet"
STARTING_QUEUES = "starting: the worker finds or creates the backlog queues"
NOT_YET = "not connected yet"
NO_TOTALS = QueueTotals()


@dataclass(frozen=True)
class ObservedWorker:
    """The parts of a worker that the observer reads, once they exist."""

    worker: Worker
    control_server: ControlServer
    ledger_writer: LedgerWriter


class Observer:
    """Keeps the status of the worker."""

    def __init__(
        self,
        config: Config,
        pauses: Pauses,
        events: RecentEvents,
        last_success: LastSuccess | None = None,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        settings_file: str = "FILE",
    ) -> None:
        self._config = config
        self._settings_file = settings_file
        self._pauses = pauses
        self._events = events
        self._now = now
        self._wall = wall
        self._started = wall()
        self._history = ThroughputHistory(self._started)
        self.last_success = last_success or LastSuccess()
        self._pairs = [PairView(pair, self.last_success, wall, now) for pair in config.pairs]
        self._observed: ObservedWorker | None = None
        self._began = self._turned_at = self._snapshot_at = now()
        self.queue_totals: Mapping[QueueKey, QueueTotals] = {}
        """The totals of each queue at the last snapshot."""
        self.backlog_counts = BacklogCounts(config.pairs, self._activity)
        self.canaries = Canaries(config.pairs, self._open_queues)
        self.status = self._snapshot()

    def attach(self, worker: Worker, control_server: ControlServer, ledger_writer: LedgerWriter) -> None:
        """Sets the worker to observe from now on."""
        self._observed = ObservedWorker(worker, control_server, ledger_writer)

    def current(self) -> WorkerStatus:
        """The last snapshot. Until a worker is attached, no loop turns, so this call takes one if it is due."""
        now = self._now()
        if self._observed is None and now - self._snapshot_at >= OBSERVE_EVERY:
            self._snapshot_at = now
            self.status = self._snapshot()
        return self.status

    def loop_turned(self) -> None:
        """Record a turn of the worker's loop, and take a snapshot if it is due."""
        now = self._turned_at = self._now()
        if now - self._snapshot_at >= OBSERVE_EVERY:
            self._snapshot_at = now
            self.status = self._snapshot()

    def trouble(self) -> str:
        """Why the worker is not healthy, or an empty text. Only its loops count; an unreachable namespace does not."""
        now = self._now()
        if self._observed is None:
            spent = now - self._began
            return f"starting: the worker is not up after {spent:.0f} s" if spent > STARTS_WITHIN else ""
        worker = self._observed.worker
        if now - self._turned_at > HUNG_AFTER:
            return f"the worker's loop has not turned for {now - self._turned_at:.0f} s"
        for pair in worker.pairs:
            listener = None if pair.fault is not None or worker.is_stopping else pair.listener
            silent = 0.0 if listener is None else now - listener.heard_at
            if silent > HUNG_AFTER:
                return f"the listener of {pair.settings.name} has not turned for {silent:.0f} s"
        return ""

    # --- a snapshot ----------------------------------------------------------------------------------------------

    def _snapshot(self) -> WorkerStatus:
        observed = self._observed
        self.queue_totals = observed.control_server.queue_totals() if observed is not None else {}
        workers = {pair.settings.name: pair for pair in observed.worker.pairs} if observed is not None else {}
        pairs = [self._pair_status(view, workers.get(view.name)) for view in self._pairs]
        total, state, at = _totals(self.queue_totals), self._state(), self._wall()
        ledger_error = (observed.ledger_writer.error or None) if observed else None
        spark = None if observed is None else _spark_status(observed.worker.spark.view, at, self._now())
        summary = outlook(state, pairs, moment(at), spark)
        self._history.add(at, total.forwarded, total.dead_lettered, summary.left, has_outage(pairs))
        return WorkerStatus(
            version=__version__,
            state=state,
            started=moment(self._started),
            at=moment(at),
            outlook=summary,
            problems=problems(pairs, ledger_error, moment(at), spark, self._settings_file),
            not_ready=_not_ready(pairs) if observed else [STARTING],
            spark=spark,
            ledger=self._config.pipeline.ledger,
            ledger_error=ledger_error,
            paused=self._pauses.all(),
            totals=total,
            throughput=self._history.throughput(),
            pairs=pairs,
            events=self._events.newest_first(),
        )

    def _state(self) -> WorkerState:
        if self._observed is None:
            return WorkerState.STARTING
        return WorkerState.STOPPING if self._observed.worker.is_stopping else WorkerState.WORKING

    def _pair_status(self, view: PairView, worker: PairWorker | None) -> PairStatus:
        queue_totals = {key: totals for key, totals in self.queue_totals.items() if key.pair == view.name}
        observed = self._observed
        limit = observed.control_server.rate_limit(view.name) if observed is not None else None
        found = view.status(worker, queue_totals, self._pauses, self.backlog_counts, limit)
        return found.model_copy(update={"canary": self._canary(view)})

    def _canary(self, view: PairView) -> CanaryStatus | None:
        canary = view.settings.canary
        if canary is None:
            return None
        record = self.canaries.records.get(view.name, CanaryRecord())
        last = record.last
        return CanaryStatus(
            destination=canary.destination,
            arrived=record.arrived,
            lost=record.lost,
            failed=record.failed,
            last_seconds=record.seconds,
            last_ended=None if last is None else moment(record.at),
            is_lost=last is not None and not last.has_arrived,
            error=None if last is None or last.failure is None else str(last.failure),
        )

    def _open_queues(self, name: str) -> list[str]:
        """The backlog queues of a pair that a probe may take: none if its way is known to be closed."""
        pair = next(pair for pair in self.status.pairs if pair.name == name)
        canary = pair.canary.destination if pair.canary is not None else ""
        is_closed = pair.paused or not (pair.primary.connected and pair.secondary.connected)
        if is_closed or self._pauses.holds_destination(name, canary):
            return []
        closed = (BacklogQueueState.STARTING, BacklogQueueState.PAUSED)
        return [queue.name for queue in pair.queues if queue.state not in closed]

    def _activity(self) -> dict[QueueKey, QueueActivity]:
        """What the worker has done with each queue, once it knows which queues there are."""
        return {
            QueueKey(pair.name, queue.name): _activity_of(queue.totals)._replace(
                is_busy=_is_busy(queue, pair), is_held_up=_is_held_up(queue, pair)
            )
            for pair in self.status.pairs
            for queue in pair.queues
            if queue.state is not BacklogQueueState.STARTING
        }


@dataclass(slots=True)
class SideView:
    """Remembers the state of one side, and since when it has been in it."""

    seen: tuple[SideState, bool] = (SideState.STARTING, False)
    since: float = field(default_factory=time.time)

    def look(
        self,
        host: str,
        side: Namespace | None,
        closed: tuple[SideState, str] | None,
        trouble: SyphonError | None,
        not_yet: str,
        wall: float,
    ) -> SideStatus:
        """`closed` is the state of a side that has no namespace because its pair has faulted, with the reason."""
        connected, error = False, trouble
        if side is not None:
            state, connected, error = SideState(side.status), side.is_reachable, side.reason or side.error
        elif closed is not None:
            (state, not_yet), error = closed, None
        else:
            state = SideState.STARTING if trouble is None else SideState.OPENED
        if (state, connected) != self.seen:
            self.seen, self.since = (state, connected), wall
        reason = None if connected else str(error) if error is not None else not_yet
        return SideStatus(host=host, state=state, connected=connected, reason=reason, since=moment(self.since))


class PairView:
    """The status of one pair, with what a single snapshot cannot show."""

    def __init__(
        self, settings: PairSettings, last_success: LastSuccess, wall: Callable[[], float], now: Callable[[], float]
    ) -> None:
        self.name = settings.name
        self._now = now
        self.settings = settings
        self._last_success = last_success
        self._wall = wall
        self._queues = queue_names(settings)
        self._sides = {"primary": SideView(since=wall()), "secondary": SideView(since=wall())}
        self._history = DestinationHistory()
        self._rates: dict[str, RateMeter] = {}
        self._dead_letter_rate = RateMeter()
        self._forwarded = 0
        self._skipped_read = 0

    def status(
        self,
        worker: PairWorker | None,
        queue_totals: Mapping[QueueKey, QueueTotals],
        pauses: Pauses,
        backlog_counts: BacklogCounts,
        limit: RateLimit | None = None,
    ) -> PairStatus:
        wall, totals = self._wall(), _totals(queue_totals)
        if totals.forwarded > self._forwarded:
            self._forwarded = totals.forwarded
            self._last_success.succeeded(self.name, wall)
        primary = self._side("primary", worker)
        destinations = self._history.update(
            wall,
            queue_totals,
            worker.backoffs.backing_off() if worker else (),
            {**self._named(primary, pauses, backlog_counts), **(self._skipped(worker) if worker else {})},
            pauses.destinations(self.name),
        )
        last_success = self._last_success.of(self.name)
        if not primary.connected and primary.state is not SideState.STARTING:
            destinations = [_as_unknown(found) for found in destinations]
        queues = [
            self._queue(QueueKey(self.name, queue), primary, worker, queue_totals, pauses, backlog_counts)
            for queue in (list(worker.queues) if worker is not None and worker.queues else self._queues)
        ]
        return PairStatus(
            name=self.name,
            primary=primary,
            secondary=self._side("secondary", worker),
            fault=None if worker is None else _fault(worker.fault, wall, self._now()),
            paused=pauses.holds_pair(self.name),
            rate_limit=self.settings.rate if limit is None else limit.per_second,
            rate_limit_set_by=None if limit is None else limit.set_by,
            per_second=round(sum(queue.per_second for queue in queues), 1),
            dead_lettered_per_second=round(self._dead_letter_rate.at(totals.dead_lettered), 1),
            last_success=None if last_success is None else moment(last_success),
            totals=totals,
            queues=queues,
            destinations=destinations,
        )

    def _skipped(self, worker: PairWorker) -> Mapping[tuple[str, str], WaitingMessages]:
        """Messages that started no job since the last snapshot, and all those that the listener knows to be waiting."""
        backoffs, listener = worker.backoffs, worker.listener
        first, self._skipped_read = self._skipped_read, backoffs.skipped_count
        found = backoffs.skipped(first, self._skipped_read)
        if listener is not None:
            for queue in worker.queues:
                for path, waiting in listener.waiting(queue).items():
                    if waiting.messages:
                        found[queue, path] = waiting
        return found

    def _named(
        self, primary: SideStatus, pauses: Pauses, backlog_counts: BacklogCounts
    ) -> Mapping[tuple[str, str], WaitingMessages]:
        """The destinations that the oldest messages of queues name which are held up."""
        return {
            (key.queue, found.destination): WaitingMessages(1, found.enqueued_at)
            for key, found in dict(backlog_counts.oldest).items()
            if key.pair == self.name and found.destination is not None
            # Else slots report what they see. What was peeked may have been forwarded since.
            if not primary.connected or pauses.holds_queue(*key)
        }

    def _side(self, role: Literal["primary", "secondary"], worker: PairWorker | None) -> SideStatus:
        listener, fault = (worker.listener, worker.fault) if worker is not None else (None, None)
        # Until its queues are known, the worker asks the secondary's administration, and does not ask the primary.
        trouble = worker.trouble if role == "secondary" and worker is not None else None
        not_yet = STARTING if worker is None else STARTING_QUEUES if listener is None else NOT_YET
        side = getattr(listener.pair, role) if listener is not None else None
        closed = _closed(role, fault) if fault is not None else None
        return self._sides[role].look(getattr(self.settings, role).host, side, closed, trouble, not_yet, self._wall())

    def _queue(
        self,
        key: QueueKey,
        primary: SideStatus,
        worker: PairWorker | None,
        queue_totals: Mapping[QueueKey, QueueTotals],
        pauses: Pauses,
        backlog_counts: BacklogCounts,
    ) -> QueueStatus:
        found = queue_totals.get(key, NO_TOTALS)
        totals = _status_totals(found.totals)
        queue = worker.queues.get(key.queue) if worker is not None else None
        trouble = queue.trouble if queue is not None else ""
        listener, fault = (worker.listener, worker.fault) if worker is not None else (None, None)
        if listener is not None:
            trouble = trouble or listener.trouble(key.queue)
        elif fault is not None:
            trouble = f"the pair has faulted: {fault.cause.text}"
        if worker is not None and queue is not None and queue.is_working:
            trouble = trouble or worker.spark.view.error  # its messages wait for Spark
        state = BacklogQueueState.LISTENING
        if pauses.holds_queue(*key):
            state = BacklogQueueState.PAUSED
        elif trouble or (worker is not None and worker.trouble is not None):
            state = BacklogQueueState.TROUBLED
        elif queue is None:
            state = BacklogQueueState.STARTING
        elif queue.is_working:
            state = BacklogQueueState.WORKING
        elif not primary.connected:
            state = BacklogQueueState.WAITING
        count, activity = backlog_counts.counts.get(key), _activity_of(totals)
        left = None if count is None else count.remaining(activity)
        at_least = found.totals.in_flight + self._history.left(key.queue)
        peeked = backlog_counts.oldest.get(key)
        if peeked is not None and activity.moved > peeked.then.moved:
            peeked = None  # slots report what they see
        oldest = earliest(
            self._history.oldest(key.queue),
            _oldest_in_flight(found),
            None if peeked is None else peeked.enqueued_at or None,
        )
        return QueueStatus(
            name=key.queue,
            state=state,
            reason=trouble or (None if queue is not None else "the worker does not listen to it yet"),
            slots=sum(attempt.is_running for attempt in found.live),
            in_flight=found.totals.in_flight,
            held_sessions=sum(attempt.queue.held_sessions for attempt in found.live if attempt.is_running),
            per_second=round(self._rates.setdefault(key.queue, RateMeter()).at(totals.forwarded), 1),
            left=None if left is None else max(at_least, left),
            counted=None if count is None else moment(count.at),
            arriving_per_second=None if count is None or count.arriving is None else round(count.arriving, 1),
            used=None if count is None or count.used is None else round(count.used, 4),
            dead_letters=None if count is None else count.dead_letters(activity),
            oldest=None if oldest is None else moment(oldest / 1000),
            totals=totals,
        )


def _activity_of(totals: StatusTotals) -> QueueActivity:
    return QueueActivity(totals.forwarded + totals.dead_lettered, totals.dead_lettered, is_busy=False)


def _is_held_up(queue: QueueStatus, pair: PairStatus) -> bool:
    """Whether nothing of a queue is received, so that no slot knows what is in it."""
    is_away = not pair.primary.connected and pair.primary.state is not SideState.STARTING
    return is_away or queue.state is BacklogQueueState.PAUSED


def _is_busy(queue: QueueStatus, pair: PairStatus) -> bool:
    """Whether a queue has work or messages. While the primary is unreachable, senders put messages into all."""
    if queue.state is BacklogQueueState.WORKING or not pair.primary.connected:
        return True
    return queue.oldest is not None or bool(queue.left)


def _oldest_in_flight(totals: QueueTotals) -> int | None:
    """When the oldest message in flight had come into the backlog, in milliseconds since 1970."""
    fronts = (attempt.queue.stats.front for attempt in totals.live if attempt.is_running)
    return min((front for front in fronts if front is not None), default=None)


def _as_unknown(destination: DestinationStatus) -> DestinationStatus:
    """A destination that was available when the primary was last reached."""
    if destination.state is not DestinationState.AVAILABLE:
        return destination
    return destination.model_copy(update={"state": DestinationState.UNKNOWN, "reason": "the primary is unreachable"})


def _not_ready(pairs: Sequence[PairStatus]) -> list[str]:
    """Why no pair works; empty if one does. The others have their own status, metrics and alerts."""
    works = any(pair.primary.connected and pair.secondary.connected for pair in pairs)
    return [] if works else not_connected(pairs)


def not_connected(pairs: Sequence[PairStatus]) -> list[str]:
    """The sides that are not connected, and why."""
    return [
        f"{pair.name}: {role} {side.host}: {side.reason}"
        for pair in pairs
        for role, side in (("primary", pair.primary), ("secondary", pair.secondary))
        if not side.connected
    ]


def _spark_status(view: SparkView, wall: float, now: float) -> SparkStatus:
    def seen(when: float | None) -> datetime | None:
        return None if when is None else moment(wall + when - now)

    return SparkStatus(
        state=view.state,
        since=moment(wall + view.since - now),
        error=view.error or None,
        failing_since=seen(view.failing_since),
        next_attempt=seen(view.next_attempt),
    )


def _closed(role: str, fault: PairFault) -> tuple[SideState, str]:
    """The state of a side of a faulted pair, as long as the pair is not set up again."""
    if role == fault.cause.side:
        return SideState.FAULTED, fault.cause.text
    return SideState.CLOSED, f"closed, because the {fault.cause.side} has faulted"


def _fault(fault: PairFault | None, wall: float, now: float) -> FaultStatus | None:
    if fault is None:
        return None
    return FaultStatus(
        side=fault.cause.side,
        reason=fault.cause.text,
        since=moment(wall - (now - fault.since)),
        next_attempt=moment(wall + fault.next_set_up - now) if fault.next_set_up > now else None,
    )


def _totals(queue_totals: Mapping[QueueKey, QueueTotals]) -> StatusTotals:
    counted = [_status_totals(totals.totals) for totals in queue_totals.values()]
    return StatusTotals(**{name: sum(getattr(each, name) for each in counted) for name in StatusTotals.model_fields})


def _status_totals(totals: Totals) -> StatusTotals:
    return StatusTotals(**{name: getattr(totals, name) for name in StatusTotals.model_fields})
