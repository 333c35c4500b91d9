"""The observer: looks at the worker about once a second, and keeps what it saw as one value that anybody may read.

It is called from the worker's own loop, and so it also knows whether that loop turns. However many ask, the worker is
looked at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from syphon import __version__
from syphon.backlog import queue_names
from syphon.bus import Namespace
from syphon.config import Config, PairSettings
from syphon.ledger import LedgerWriter
from syphon.model import QueueKey, SyphonError, earlier
from syphon.spark import ControlServer, QueueTotals, Totals
from syphon.worker import Backoffs, PairWorker, Pauses, TurnedAway, Worker

from .backlog_counts import Counting
from .destinations import Destinations, moment
from .events import RecentEvents
from .history import History
from .progress import Pace
from .status import PairStatus, Queue, QueueState, Side, SideState, Status, StatusTotals, WorkerState

LOOK_EVERY = 1.0
HUNG = 30.0
"""Seconds without a turn after which a loop counts as hung. None of them ever waits that long."""
STARTING = 600.0
"""Seconds after which a start counts as hung. Executors may have to be found first, and their image pulled."""
SPARK_FIRST = "starting: Spark is not up yet"
QUEUES_FIRST = "starting: the backlog queues are being found or made"
NOT_YET = "not connected yet"
NOTHING = QueueTotals()


@dataclass(frozen=True)
class Work:
    """What there is to look at, once Spark has started."""

    worker: Worker
    desk: ControlServer
    clerk: LedgerWriter


class Observer:
    """Knows how the worker is."""

    def __init__(
        self,
        config: Config,
        pauses: Pauses,
        events: RecentEvents,
        now: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config = config
        self._pauses = pauses
        self._events = events
        self._now = now
        self._wall = wall
        self._started = wall()
        self._history = History(self._started)
        self._pairs = [PairView(pair, wall) for pair in config.pairs]
        self._work: Work | None = None
        self._began = self._turned_at = self._looked_at = now()
        self.standings: Mapping[QueueKey, QueueTotals] = {}
        """What was seen last."""
        self.counting = Counting(config.pairs, self._busy_queues)
        self.status = self._look()

    def attend(self, worker: Worker, desk: ControlServer, clerk: LedgerWriter) -> None:
        """There is a worker to look at from now on."""
        self._work = Work(worker, desk, clerk)

    def current(self) -> Status:
        """What was seen last. While there is no worker, nobody but who asks looks."""
        now = self._now()
        if self._work is None and now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            self.status = self._look()
        return self.status

    def turned(self) -> None:
        """The worker's loop has turned."""
        now = self._turned_at = self._now()
        if now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            self.status = self._look()

    def trouble(self) -> str:
        """Why the worker is not well, if it is not: whether its loops turn. Namespaces have nothing to do with it."""
        now = self._now()
        if self._work is None:
            spent = now - self._began
            return f"starting: Spark is not up after {spent:.0f} s" if spent > STARTING else ""
        worker = self._work.worker
        if now - self._turned_at > HUNG:
            return f"the worker's loop has not turned for {now - self._turned_at:.0f} s"
        for duty in worker.pairs:
            silent = 0.0 if duty.listener is None or worker.is_stopping else now - duty.listener.heard_at
            if silent > HUNG:
                return f"the watch over {duty.settings.name} has not turned for {silent:.0f} s"
        return ""

    # --- a look --------------------------------------------------------------------------------------------------

    def _look(self) -> Status:
        work = self._work
        self.standings = work.desk.queue_totals() if work is not None else {}
        duties = {duty.settings.name: duty for duty in work.worker.pairs} if work is not None else {}
        pairs = [self._look_at(view, duties.get(view.name)) for view in self._pairs]
        total = _totals(self.standings)
        self._history.note(self._wall(), total.forwarded, total.dead_lettered)
        return Status(
            version=__version__,
            state=self._state(),
            started=moment(self._started),
            at=moment(self._wall()),
            not_ready=[why for pair in pairs for why in _not_ready(pair)] if work else [SPARK_FIRST],
            ledger=self._config.pipeline.ledger,
            ledger_error=(work.clerk.error or None) if work else None,
            paused=self._pauses.all(),
            totals=total,
            throughput=self._history.throughput(),
            pairs=pairs,
            events=self._events.newest_first(),
        )

    def _state(self) -> WorkerState:
        if self._work is None:
            return WorkerState.STARTING
        return WorkerState.STOPPING if self._work.worker.is_stopping else WorkerState.WORKING

    def _look_at(self, view: PairView, duty: PairWorker | None) -> PairStatus:
        standings = {key: standing for key, standing in self.standings.items() if key.pair == view.name}
        return view.look(duty, standings, self._pauses, self.counting)

    def _busy_queues(self) -> dict[QueueKey, int]:
        """Those with something to do, and those that had something left when they were last counted."""
        found = {}
        for pair in self.status.pairs:
            for queue in pair.queues:
                if queue.state is QueueState.WORKING or queue.oldest is not None or queue.left:
                    totals = queue.totals
                    found[QueueKey(pair.name, queue.name)] = totals.forwarded + totals.dead_lettered
        return found


@dataclass(slots=True)
class SideView:
    """How one side was, and since when."""

    seen: tuple[SideState, bool] = (SideState.STARTING, False)
    since: float = field(default_factory=time.time)

    def look(self, host: str, side: Namespace | None, trouble: SyphonError | None, not_yet: str, wall: float) -> Side:
        if side is not None:
            state, connected, error = SideState(side.status), side.is_connected, side.reason or side.error
        else:
            state, connected, error = SideState.STARTING if trouble is None else SideState.OPENED, False, trouble
        if (state, connected) != self.seen:
            self.seen, self.since = (state, connected), wall
        reason = None if connected else str(error) if error is not None else not_yet
        return Side(host=host, state=state, connected=connected, reason=reason, since=moment(self.since))


class PairView:
    """One pair, as it is seen time after time."""

    def __init__(self, settings: PairSettings, wall: Callable[[], float]) -> None:
        self.name = settings.name
        self._settings = settings
        self._wall = wall
        self._queues = queue_names(settings)
        self._sides = {"primary": SideView(since=wall()), "secondary": SideView(since=wall())}
        self._destinations = Destinations()
        self._paces: dict[str, Pace] = {}
        self._forwarded = 0
        self._last_success: float | None = None
        self._turned_away_read = 0

    def look(
        self, duty: PairWorker | None, standings: Mapping[QueueKey, QueueTotals], pauses: Pauses, counting: Counting
    ) -> PairStatus:
        wall, totals = self._wall(), _totals(standings)
        if totals.forwarded > self._forwarded:
            self._forwarded, self._last_success = totals.forwarded, wall
        destinations = self._destinations.look(
            wall,
            standings,
            duty.backoffs.now() if duty else (),
            self._turned_away(duty.backoffs) if duty else {},
            pauses.destinations(self.name),
        )
        queues = [
            self._queue(QueueKey(self.name, queue), duty, standings, pauses, counting)
            for queue in (list(duty.queue_workers) if duty is not None and duty.queue_workers else self._queues)
        ]
        return PairStatus(
            name=self.name,
            primary=self._side("primary", duty),
            secondary=self._side("secondary", duty),
            paused=pauses.holds_pair(self.name),
            rate_limit=(duty.settings if duty else self._settings).rate,
            per_second=round(sum(queue.per_second for queue in queues), 1),
            last_success=None if self._last_success is None else moment(self._last_success),
            totals=totals,
            queues=queues,
            destinations=destinations,
        )

    def _turned_away(self, backoffs: Backoffs) -> Mapping[tuple[str, str], TurnedAway]:
        """Messages that started no job since the last look."""
        first, self._turned_away_read = self._turned_away_read, backoffs.turned_away_count
        return backoffs.turned_away(first, self._turned_away_read)

    def _side(self, role: Literal["primary", "secondary"], duty: PairWorker | None) -> Side:
        watch = duty.listener if duty is not None else None
        # Until its queues are known, the secondary is asked through its administration, and the primary not at all.
        trouble = duty.trouble if role == "secondary" and duty is not None else None
        not_yet = SPARK_FIRST if duty is None else QUEUES_FIRST if watch is None else NOT_YET
        side = getattr(watch.pair, role) if watch is not None else None
        return self._sides[role].look(getattr(self._settings, role).host, side, trouble, not_yet, self._wall())

    def _queue(
        self,
        key: QueueKey,
        duty: PairWorker | None,
        standings: Mapping[QueueKey, QueueTotals],
        pauses: Pauses,
        counting: Counting,
    ) -> Queue:
        standing = standings.get(key, NOTHING)
        totals = _counted(standing.totals)
        carrier = duty.queue_workers.get(key.queue) if duty is not None else None
        trouble = carrier.trouble if carrier is not None else ""
        if duty is not None and duty.listener is not None:
            trouble = trouble or duty.listener.trouble(key.queue)
        state = QueueState.LISTENING
        if pauses.holds_queue(*key):
            state = QueueState.PAUSED
        elif trouble or (duty is not None and duty.trouble is not None):
            state = QueueState.TROUBLED
        elif carrier is None:
            state = QueueState.STARTING
        elif carrier.is_working:
            state = QueueState.WORKING
        count = counting.counts.get(key)
        left = None if count is None else count.after(totals.forwarded + totals.dead_lettered)
        at_least = standing.totals.in_hand + self._destinations.left(key.queue)
        oldest = earlier(self._destinations.oldest(key.queue), _front(standing))
        return Queue(
            name=key.queue,
            state=state,
            reason=trouble or (None if carrier is not None else "not listened to yet"),
            slots=sum(not sheet.finished for sheet in standing.live),
            in_flight=standing.totals.in_hand,
            per_second=round(self._paces.setdefault(key.queue, Pace()).at(totals.forwarded), 1),
            left=None if left is None else max(at_least, left),
            oldest=None if oldest is None else moment(oldest / 1000),
            totals=totals,
        )


def _front(standing: QueueTotals) -> int | None:
    """How old what is being carried is."""
    fronts = [sheet.stats.front for sheet in standing.live if not sheet.finished and sheet.stats.front is not None]
    return min(fronts, default=None)


def _not_ready(pair: PairStatus) -> list[str]:
    sides = (("primary", pair.primary), ("secondary", pair.secondary))
    return [f"{pair.name}: {role} {side.host}: {side.reason}" for role, side in sides if not side.connected]


def _totals(standings: Mapping[QueueKey, QueueTotals]) -> StatusTotals:
    counted = [_counted(standing.totals) for standing in standings.values()]
    return StatusTotals(**{name: sum(getattr(each, name) for each in counted) for name in StatusTotals.model_fields})


def _counted(account: Totals) -> StatusTotals:
    return StatusTotals(**{name: getattr(account, name) for name in StatusTotals.model_fields})
