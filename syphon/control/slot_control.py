"""What the driver knows of its slots, and what it orders them to do (D7, D15). No I/O: `ControlServer` adds HTTP."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple, Protocol

from syphon.model import AttemptKey, Counters, EntityPath, QueueKey
from syphon.time_budget import DRIVER_SILENCE, RETRY_REACHES_SLOTS, SLOT_SHARES_FOR
from syphon.transfer import DEFAULT_SHARE, BatchTrace, Congestion

from .protocol import HandOver, SlotOrder, SlotReport, Traffic
from .totals import QueueAttempt, QueueTotals


class Traced(NamedTuple):
    """A batch that a slot has traced, and its pair."""

    pair: str
    trace: BatchTrace


SPARE = 1.25
"""How much more than it uses a slot may have of a limit that does not hold it back; the others get the rest."""
LEAST_PART = 0.25
"""The part of an equal share that an idle slot keeps, because messages may arrive."""

LimitedBy = Literal["operator", "primary", "secondary"]


class RateLimit(NamedTuple):
    """How fast messages of a pair may move, and who limits it."""

    per_second: float | None = None
    """None: as fast as slots and network allow."""
    set_by: LimitedBy | None = None
    """The operator, or the namespace that is throttled; None without a limit."""

    @property
    def is_throttled(self) -> bool:
        """Whether the service has set it."""
        return self.set_by in ("primary", "secondary")

    def __str__(self) -> str:
        if self.per_second is None:
            return "as fast as slots and network can"
        rate = f"{self.per_second:,.0f} messages per second"
        return f"{rate}, the {self.set_by} is throttled" if self.is_throttled else f"{rate}, set by you"


class Congested:
    """The congestion control of one pair, for all its slots together: a namespace throttles as a whole."""

    def __init__(self, share: float) -> None:
        self.sending, self.receiving = Congestion(share), Congestion(share)

    def use(self, share: float) -> None:
        """Sets the share of what the namespaces accept that slots may use."""
        self.sending.share = self.receiving.share = share

    def record(self, report: SlotReport, before: SlotReport | None, others: list[SlotReport], now: float) -> None:
        """Takes in the report of a slot. `before` is its last one, `others` are the last ones of the other slots."""
        moved, moved_before = report.counters, before.counters if before is not None else Counters()
        self._record(
            self.sending,
            moved.forwarded - moved_before.forwarded,
            report.sending,
            before.sending if before is not None else Traffic(),
            others=[other.sending.per_second for other in others],
            now=now,
        )
        self._record(
            self.receiving,
            moved.received - moved_before.received,
            report.receiving,
            before.receiving if before is not None else Traffic(),
            others=[other.receiving.per_second for other in others],
            now=now,
        )

    def _record(
        self, congestion: Congestion, messages: int, new: Traffic, old: Traffic, *, others: list[float], now: float
    ) -> None:
        if messages > 0:
            congestion.accepted(messages, now)
        if new.busy_answers > old.busy_answers:
            congestion.busy(now, new.batch, new.per_second + sum(others))
        if new.is_binding:
            congestion.bound(now)


def part_of(limit: float | None, own: Traffic, others: Iterable[Traffic]) -> float | None:
    """The part of a limit that one slot gets. A slot that it does not hold back leaves the rest of its part to others.

    All parts together are never more than the limit.
    """
    if limit is None:
        return None
    others = list(others)
    if not others:
        return limit
    equal = limit / (1 + len(others))

    def used(traffic: Traffic) -> float:
        return equal if traffic.is_binding else min(equal, max(SPARE * traffic.per_second, LEAST_PART * equal))

    if not own.is_binding:
        return used(own)
    return equal + sum(equal - used(each) for each in others) / (1 + sum(each.is_binding for each in others))


class Retried(NamedTuple):
    """The operator wants a destination of a pair to be retried at once."""

    number: int
    """Counts the requests for a pair."""
    path: EntityPath
    at: float


class PauseState(Protocol):
    """What the operator has paused, as far as slots must respect it."""

    def holds_queue(self, pair: str, queue: str) -> bool: ...

    def destinations(self, pair: str) -> tuple[str, ...]: ...


class NothingPaused:
    """For a drain, which has no pauses."""

    def holds_queue(self, pair: str, queue: str) -> bool:  # noqa: ARG002
        return False

    def destinations(self, pair: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()


def no_progress(job: str, counters: Mapping[str, Counters]) -> None:
    """Drops the progress of jobs."""


class SlotControl:
    """Keeps the reports of all attempts, and answers each with an order. Safe for threads."""

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        pauses: PauseState | None = None,
        on_progress: Callable[[str, Mapping[str, Counters]], None] = no_progress,
    ) -> None:
        """`on_progress` gets a job and what its slots have counted for each queue, with each report."""
        self._now = now
        self._on_progress = on_progress
        self._reports: dict[AttemptKey, SlotReport] = {}
        self._heard: dict[AttemptKey, float] = {}
        self._jobs: dict[str, dict[str, HandOver]] = {}
        """The open jobs, and the queues that the slots of each serve."""
        self._rows: dict[str, list[bytes]] = {}
        """The files of the ledger that slots of open jobs have sent."""
        self._stopped: set[str] = set()
        self._stopped_slots: set[AttemptKey] = set()
        self._killed: set[QueueKey] = set()
        """Queues of which a slot was killed."""
        self._stopping = False
        self._rates: dict[str, float | None] = {}
        self._congested: dict[str, Congested] = {}
        self._totals: dict[QueueKey, QueueTotals] = {}
        self._pauses = pauses or NothingPaused()
        self._retried: dict[str, tuple[Retried, ...]] = {}
        """The last requests for each pair; the newest is kept, so that its number is known."""
        self._traces: deque[Traced] | None = None
        self._lock = threading.Lock()
        self._has_reported = threading.Condition(self._lock)

    def open_job(self, job: str, queues: tuple[HandOver, ...] = ()) -> None:
        """Lets the slots of this job work on these queues."""
        with self._lock:
            self._jobs[job] = {handed.queue: handed for handed in queues}

    def hand_over(self, job: str, handed: HandOver) -> None:
        """Hands a queue to the slots of a job that runs."""
        with self._lock:
            if job in self._jobs:
                self._jobs[job][handed.queue] = handed
        self._tell()

    def take_back(self, job: str, queue: str) -> None:
        """The service of a queue has ended, as its slot has reported."""
        with self._lock:
            self._jobs.get(job, {}).pop(queue, None)

    def stop_job(self, job: str) -> None:
        """Orders the slots of a job to stop: they finish or abandon the messages in flight."""
        with self._lock:
            self._stopped.add(job)
        self._tell()

    def stop_slot(self, slot: AttemptKey) -> None:
        """Orders one attempt of a slot to stop."""
        with self._lock:
            self._stopped_slots.add(slot)
        self._tell()

    def reports_of(self, job: str) -> list[SlotReport]:
        """The newest report of each attempt of an open job."""
        with self._lock:
            return [report for key, report in self._reports.items() if key.job == job]

    def settle_job(self, job: str, within: float) -> None:
        """Stops the slots of a job that Spark gave up, and waits for their last reports: its counters must be exact.

        Slots go on when Spark cancels their job. One that is silent for `DRIVER_SILENCE` was killed.
        """
        self.stop_job(job)
        deadline = self._now() + within
        with self._lock:
            while (left := min(deadline, self._runs_until(job)) - self._now()) > 0:
                self._has_reported.wait(left)

    def _runs_until(self, job: str) -> float:
        """Until when a slot of this job may run, if nothing more is heard of it."""
        running = (key for key, report in self._reports.items() if key.job == job and not report.finished)
        return max((self._heard[key] + DRIVER_SILENCE for key in running), default=0.0)

    def rows_of(self, job: str) -> list[bytes]:
        """The files of the ledger that slots of an open job have sent, those of killed slots too. One may be twice."""
        with self._lock:
            return list(self._rows.get(job, ()))

    def close_job(self, job: str) -> list[SlotReport]:
        """Ends a job and returns its reports.

        A slot of it that still runs (Spark lost its executor, but the process lives on) is told to stop.
        """
        with self._lock:
            self._jobs.pop(job, None)
            self._rows.pop(job, None)
            self._stopped.discard(job)
            self._stopped_slots -= {key for key in self._stopped_slots if key.job == job}
            keys = [key for key in self._reports if key.job == job]
            for key in keys:
                self._heard.pop(key, None)
            reports = [self._reports.pop(key) for key in sorted(keys)]
            for report in reports:
                self._record_killed(report)
            for queue, attempts in _by_queue(reports).items():
                self._totals.setdefault(queue, QueueTotals()).end_job(attempts)
            return reports

    def _record_killed(self, report: SlotReport) -> None:
        """Remembers the queues of an attempt that has ended without its last report."""
        if not report.finished:
            self._killed.update(report.key_of(queue) for queue in report.queues)

    def collect_traces(self, into: deque[Traced]) -> None:
        """Lets slots trace their batches, and appends the traces to `into`."""
        self._traces = into

    def stop_all(self) -> None:
        """Orders every slot to stop. Safe in a signal handler."""
        self._stopping = True
        self._tell()

    def set_rate(self, pair: str, rate: float | None, share: float = DEFAULT_SHARE) -> None:
        """Sets the messages per second that all slots of a pair may receive together.

        `share` is the share of what a throttled namespace accepts that they use.
        """
        with self._lock:
            self._rates[pair] = rate
            self._congested.setdefault(pair, Congested(share)).use(share)

    def retry(self, pair: str, path: EntityPath) -> None:
        """Orders the slots of a pair to end the back-off of a destination."""
        with self._lock:
            now, known = self._now(), self._retried.get(pair, ())
            fresh = [each for each in known if now - each.at < RETRY_REACHES_SLOTS]
            self._retried[pair] = (*fresh, Retried(known[-1].number + 1 if known else 1, path, now))
        self._tell()

    def unheard_retries(self, report: SlotReport) -> frozenset[str]:
        """The destinations (their keys) that are to be retried, but the slot of this report had not heard of it."""
        with self._lock:
            return frozenset(each.path.key for each in self._retries(report.pair) if each.number > report.retries)

    def _retries(self, pair: str) -> list[Retried]:
        """The requests that a slot may not have heard of."""
        now = self._now()
        return [each for each in self._retried.get(pair, ()) if now - each.at < RETRY_REACHES_SLOTS]

    def rate_limit(self, pair: str) -> RateLimit:
        """How fast messages of a pair may move, and who limits it."""
        with self._lock:
            now, found = self._now(), self._congested.get(pair)
            limits = [RateLimit(self._rates.get(pair), "operator")]
            if found is not None:
                limits += [
                    RateLimit(found.sending.limit(now), "primary"),
                    RateLimit(found.receiving.limit(now), "secondary"),
                ]
        set_limits = [(limit.per_second, limit) for limit in limits if limit.per_second is not None]
        return min(set_limits)[1] if set_limits else RateLimit()

    def live_reports(self) -> list[SlotReport]:
        """The newest report of each attempt of running jobs."""
        with self._lock:
            return list(self._reports.values())

    def report_of(self, job: str) -> SlotReport | None:
        """The newest report of the newest attempt of a job with one slot; None if it has not reported yet."""
        with self._lock:
            newest = max((key for key in self._reports if key.job == job), default=None)
            return None if newest is None else self._reports[newest]

    def queue_totals(self) -> dict[QueueKey, QueueTotals]:
        """The totals of each queue, including running jobs. No count ever goes down."""
        with self._lock:
            live = _by_queue(self._reports.values())
            return {
                key: self._totals.get(key, QueueTotals()).including(live.get(key, ()))
                for key in self._totals.keys() | live.keys()
            }

    def order_for(self, report: SlotReport) -> SlotOrder:
        """What the slot that sent this report must do next."""
        with self._lock:
            outdated = any(
                key.job == report.job and key.slot == report.slot and key.attempt > report.attempt
                for key in self._reports
            )
            is_stopped = self._stopping or report.job in self._stopped or report.key in self._stopped_slots
            if is_stopped or outdated or report.job not in self._jobs:
                return SlotOrder(stop=True)
            now, congested, rate = self._now(), self._congested.get(report.pair), self._rates.get(report.pair)
            others = [each for key, each in self._fresh(report.pair) if key != report.key]
            sending = congested.sending.limit(now) if congested is not None else None
            receiving = congested.receiving.limit(now) if congested is not None else None
            handed = self._jobs[report.job].values()
            paused = tuple(each.queue for each in handed if self._pauses.holds_queue(report.pair, each.queue))
            return SlotOrder(
                queues=tuple(each for each in handed if each.queue not in paused),
                released=paused,
                killed=tuple(each.queue for each in handed if QueueKey(report.pair, each.queue) in self._killed),
                rate=None if rate is None else rate / (1 + len(others)),
                send_limit=part_of(sending, report.sending, (each.sending for each in others)),
                receive_limit=part_of(receiving, report.receiving, (each.receiving for each in others)),
                send_busy_heard=report.sending.busy_answers,
                receive_busy_heard=report.receiving.busy_answers,
                paused=self._pauses.destinations(report.pair),
                retries=max((each.number for each in self._retried.get(report.pair, ())), default=0),
                retried=tuple(each.path.name for each in self._retries(report.pair)),
                traces=self._traces is not None,
            )

    def _fresh(self, pair: str) -> list[tuple[AttemptKey, SlotReport]]:
        """The slots of a pair that run, with their last reports."""
        now = self._now()
        return [
            (key, report)
            for key, report in self._reports.items()
            if report.pair == pair and not report.finished and now - self._heard.get(key, 0.0) < SLOT_SHARES_FOR
        ]

    def is_repeated(self, report: SlotReport) -> bool:
        """Whether this report, or a later one of its attempt, has been received before: it is a replay.

        A report of a job that is over is not kept, and its repetition changes nothing.
        """
        with self._lock:
            known = self._reports.get(report.key)
            return known is not None and report.number <= known.number

    def receive(self, report: SlotReport) -> SlotOrder:
        """Keeps a report, and answers it with an order."""
        counted: dict[str, list[Counters]] = {}
        with self._lock:
            if report.job in self._jobs:
                # Each trace is passed on once; it is no part of the totals.
                if self._traces is not None:
                    self._traces.extend(Traced(report.pair, trace) for trace in report.traces)
                congested = self._congested.setdefault(report.pair, Congested(DEFAULT_SHARE))
                others = [each for key, each in self._fresh(report.pair) if key != report.key]
                congested.record(report, self._reports.get(report.key), others, self._now())
                if report.key not in self._reports:
                    for key, earlier in self._reports.items():
                        if (key.job, key.slot) == (report.job, report.slot) and key.attempt < report.attempt:
                            self._record_killed(earlier)
                if report.rows:
                    self._rows.setdefault(report.job, []).extend(report.rows)
                self._reports[report.key] = report.model_copy(update={"traces": (), "rows": ()})
                self._heard[report.key] = self._now()
                self._has_reported.notify_all()
                for each in (each for key, each in self._reports.items() if key.job == report.job):
                    for queue in each.queues:
                        counted.setdefault(queue.queue, []).append(queue.counters)
        if counted:
            self._on_progress(report.job, {queue: Counters.total(parts) for queue, parts in counted.items()})
        return self.order_for(report)

    def _tell(self) -> None:
        """There is a new order for a slot."""


def _by_queue(reports: Iterable[SlotReport]) -> dict[QueueKey, list[QueueAttempt]]:
    found: dict[QueueKey, list[QueueAttempt]] = {}
    for report in reports:
        for queue in report.queues:
            found.setdefault(report.key_of(queue), []).append(QueueAttempt(report, queue))
    return found
