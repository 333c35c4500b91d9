"""What an operator does over HTTP: pause, resume, retry, limit the rate, list dead letters, replay a line of that list.

Listing and replaying run in threads of their own. The list peeks, which costs an operation per message, so it reads a
bounded number. A replay puts dead letters back into their backlog queue: from there the worker forwards them like all
others, with its back-offs and its limits.
"""

from __future__ import annotations

import glob
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from datetime import datetime
from itertools import groupby
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from syphon.backlog import (
    DeadLetter,
    DeadLetterFilter,
    DeadLetterSearch,
    Group,
    SelectedQueue,
    grouped,
    queue_names,
    select_queues,
)
from syphon.config import PairSettings
from syphon.model import EntityPath, SyphonError
from syphon.servicebus import connected
from syphon.time_budget import LIST_READS_FOR, REPLAY_ENDS_WITHIN
from syphon.transfer import DuplicateGuard, DuplicateWindows, Replay, ReplayResult, route_to_backlog
from syphon.worker import PairWorker, Pause, Pauses, Worker

from .snapshot import StatusModel, moment

Name = Annotated[str, Field(min_length=1, max_length=260, pattern=r"^[^\x00-\x1f\x7f]+$")]


class UnknownTarget(Exception):
    """A request names a pair or a queue that does not exist."""


class PauseRequest(BaseModel):
    """Names what to pause or resume. An empty request means everything."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: Name | None = None
    queue: Name | None = None
    """The name of the backlog queue, or its index."""
    destination: Name | None = None


class PauseAnswer(BaseModel):
    """The answer to a request: everything that is paused."""

    paused: list[Pause]


class PauseApi:
    """Carries out the requests of operators on the pauses that the worker reads."""

    def __init__(self, pairs: Sequence[PairSettings], pauses: Pauses) -> None:
        self._queues = {pair.name: queue_names(pair) for pair in pairs}
        self._pauses = pauses

    def pause(self, request: PauseRequest) -> PauseAnswer:
        self._pauses.add(self._targets(request))
        return PauseAnswer(paused=self._pauses.all())

    def resume(self, request: PauseRequest) -> PauseAnswer:
        """Ends pauses. A resumed pair continues with all its queues and destinations, as its operator expects."""
        targets = set(self._targets(request))
        whole = {pause.pair for pause in targets if pause == Pause(pair=pause.pair)}
        self._pauses.end(targets | {pause for pause in self._pauses.all() if pause.pair in whole})
        return PauseAnswer(paused=self._pauses.all())

    def _targets(self, request: PauseRequest) -> list[Pause]:
        if request.pair is not None and request.pair not in self._queues:
            raise UnknownTarget(f"There is no pair {request.pair}; there are: {', '.join(self._queues)}.")
        pairs = [request.pair] if request.pair is not None else list(self._queues)
        targets = []
        if request.queue is not None:
            targets += [
                Pause(pair=pair, queue=queue) for pair in pairs for queue in self._queues_named(pair, request.queue)
            ]
            if not targets:
                known = ", ".join(queue for pair in pairs for queue in self._queues[pair])
                raise UnknownTarget(f"There is no backlog queue {request.queue}; there are: {known}.")
        if request.destination is not None:
            targets += [Pause(pair=pair, destination=EntityPath.of(request.destination).key) for pair in pairs]
        return targets or [Pause(pair=pair) for pair in pairs]

    def _queues_named(self, pair: str, name: str) -> Iterator[str]:
        for queue in self._queues[pair]:
            if name in (queue, queue.rpartition("/")[2]):
                yield queue


class RetryRequest(BaseModel):
    """Names the destination to retry. Without one: all that do not accept messages, and faulted pairs are reopened."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: Name | None = None
    destination: Name | None = None


class RetriedDestination(BaseModel):
    """A destination that did not accept messages, and is retried at once."""

    pair: str
    destination: str


class RetryAnswer(BaseModel):
    """What is retried: nothing, if nothing was failing."""

    retried: list[RetriedDestination]
    reopened: list[str]
    """Faulted pairs that are set up again."""


class RateRequest(BaseModel):
    """Sets the rate of a pair, or of all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: Name | None = None
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
    """Messages per second; null: no limit but what the service accepts."""


class PairRate(BaseModel):
    """The rate that the operator has set."""

    pair: str
    rate: float | None


class RateAnswer(BaseModel):
    """The pairs whose rate was set."""

    pairs: list[PairRate]


class NotStarted(Exception):
    """There is no worker yet that could do what was asked."""


class WorkerApi:
    """Carries out what operators ask of the running worker itself: retry now, move at another rate."""

    def __init__(self) -> None:
        self._worker: Worker | None = None

    def attach(self, worker: Worker) -> None:
        """Requests are for this worker from now on."""
        self._worker = worker

    def retry(self, request: RetryRequest) -> RetryAnswer:
        _, pairs = self._named(request.pair)
        path = None if request.destination is None else EntityPath.of(request.destination)
        retried = [
            RetriedDestination(pair=pair.settings.name, destination=found)
            for pair in pairs
            for found in pair.retry(path)
        ]
        faulted = [pair for pair in pairs if path is None and pair.fault is not None]
        for pair in faulted:
            pair.set_up_now()
        return RetryAnswer(retried=retried, reopened=[pair.settings.name for pair in faulted])

    def limit_rate(self, request: RateRequest) -> RateAnswer:
        worker, pairs = self._named(request.pair)
        for pair in pairs:
            worker.limit_rate(pair, request.rate)
        return RateAnswer(pairs=[PairRate(pair=pair.settings.name, rate=request.rate) for pair in pairs])

    def _named(self, name: str | None) -> tuple[Worker, list[PairWorker]]:
        worker = self._worker
        if worker is None:
            raise NotStarted("The worker is starting: retry later.")
        pairs = [pair for pair in worker.pairs if name in (None, pair.settings.name)]
        if not pairs:
            known = ", ".join(pair.settings.name for pair in worker.pairs)
            raise UnknownTarget(f"There is no pair {name}; there are: {known}.")
        return worker, pairs


log = logging.getLogger(__name__)

MOST_READ = 5_000
"""Dead letters that one list reads."""
MOST_REASONS = 10


class DeadLetterGroup(StatusModel):
    """Dead letters of one pair, reason and destination."""

    pair: str
    reason: str
    destination: str | None
    messages: int
    first_enqueued: datetime | None
    """The earliest time that the dead-letter queue has for one of them: maybe when it became a dead letter."""
    says: str
    """The description of that one."""


class ReplayProgress(StatusModel):
    """The replay that runs, or the last one."""

    pair: str
    reason: str
    destination: str | None
    is_running: bool
    chosen: int
    replayed: int
    possible_duplicates: int
    """Messages that may be both in the backlog and in the dead letters."""
    why_left: dict[str, int]
    """How many stay dead letters, by reason."""
    errors: list[str]
    """Why queues could not be searched, or the replay ended early."""


class DeadLetterList(StatusModel):
    """The dead letters of all pairs."""

    groups: list[DeadLetterGroup]
    is_complete: bool
    """False: there are more than were read, or some queues could not be read (`unseen`)."""
    unseen: dict[str, str]
    """Queues that could not be read, and why."""
    replay: ReplayProgress | None
    may_replay: bool = False
    """Whether the status server accepts the replay of a line: it needs a token."""


class ReplayRequest(BaseModel):
    """The dead letters to replay: one line of the list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    reason: str
    destination: str | None


class ReplayRuns(Exception):
    """A replay is running. There is one at a time."""


class DeadLetterApi:
    """Reads and replays dead letters of all pairs. Its threads end with the process."""

    def __init__(self, pairs: Sequence[PairSettings], now: Callable[[], float] = time.monotonic) -> None:
        self._pairs = {pair.name: pair for pair in pairs}
        self._now = now
        self._reading: Future[DeadLetterList] | None = None
        self._replay: _Replaying | None = None
        self._is_closing = False
        self._lock = threading.Lock()

    # --- the list ------------------------------------------------------------------------------------------------

    def read(self) -> Future[DeadLetterList]:
        """Reads the dead letters by peeking, in a thread. There is one at a time: later requests wait for the same."""
        with self._lock:
            if self._reading is None or self._reading.done():
                self._reading = Future()
                reading = threading.Thread(
                    target=self._read, args=(self._reading,), name="read dead letters", daemon=True
                )
                reading.start()
            return self._reading

    def _read(self, result: Future[DeadLetterList]) -> None:
        try:
            result.set_result(self._list())
        except Exception as error:  # the request gets it
            result.set_exception(error)

    def _list(self) -> DeadLetterList:
        groups: list[DeadLetterGroup] = []
        unseen: dict[str, str] = {}
        # Before the letters are read: where the list says that a replay has ended, it shows what that replay has left.
        replay = None if self._replay is None else self._replay.progress()
        is_complete, until = True, self._now() + LIST_READS_FOR
        for pair in self._pairs.values():
            search = DeadLetterSearch(select_queues([pair], (), ()), DeadLetterFilter())
            reading = _Bounded(search, lambda: self._now() > until)
            groups += [_as_listed(pair.name, group) for group in grouped(letter for _, letter in reading)]
            unseen |= {f"{pair.name}: {selected.queue}": str(error) for selected, error in search.unreachable}
            is_complete = is_complete and not reading.was_cut_short
        return DeadLetterList(groups=groups, is_complete=is_complete and not unseen, unseen=unseen, replay=replay)

    # --- the replay ----------------------------------------------------------------------------------------------

    def replay(self, request: ReplayRequest) -> ReplayProgress:
        """Start a replay of the existing dead letters."""
        pair = self._pairs.get(request.pair)
        if pair is None:
            raise UnknownTarget(f"There is no pair {request.pair}; there are: {', '.join(self._pairs)}.")
        with self._lock:
            if self._is_closing or (self._replay is not None and self._replay.is_running):
                raise ReplayRuns("A replay is already running, or the worker is stopping.")
            self._replay = _Replaying(pair, request)
            self._replay.start()
            return self._replay.progress()

    def stop(self) -> None:
        """Let a replay finish its messages in flight; those that it has not sent stay dead letters."""
        with self._lock:
            self._is_closing = True
        if self._replay is not None:
            self._replay.stop()

    def close(self) -> None:
        """Stops a replay and waits for its end: interrupted, it would duplicate messages."""
        self.stop()
        if self._replay is not None:
            self._replay.wait(REPLAY_ENDS_WITHIN)


class _Replaying:
    """One replay, in a thread of its own."""

    def __init__(self, pair: PairSettings, request: ReplayRequest) -> None:
        self._pair = pair
        self._request = request
        self._done: list[ReplayResult] = []
        self._errors: list[str] = []
        self._current: Replay | None = None
        self._is_stopped = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)
        self.is_running = True

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._current is not None:
                self._current.stop()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def progress(self) -> ReplayProgress:
        why_left: Counter[str] = Counter()
        for result in self._done:
            why_left.update(result.why_left)
        return ReplayProgress(
            **self._request.model_dump(),
            is_running=self.is_running,
            chosen=sum(result.chosen for result in self._done),
            replayed=sum(result.completed for result in self._done),
            possible_duplicates=sum(result.possible_duplicates for result in self._done),
            why_left=dict(why_left.most_common(MOST_REASONS)),
            errors=list(self._errors),
        )

    def _run(self) -> None:
        try:
            self._carry_out()
        except SyphonError as error:
            self._errors.append(str(error))
        except Exception as error:  # this thread has no caller that would see it
            log.exception("replaying dead letters failed")
            self._errors.append(f"{type(error).__name__}: {error}")
        self.is_running = False
        done = self.progress()
        log.info(
            "%s: replayed %d of %d dead letters (%s) to the backlog",
            done.pair,
            done.replayed,
            done.chosen,
            done.reason,
        )

    def _carry_out(self) -> None:
        wanted = DeadLetterFilter(glob.escape(self._request.reason), glob.escape(self._request.destination or ""))
        search = DeadLetterSearch(select_queues([self._pair], (), ()), wanted)
        with closing(DuplicateWindows.of_backlog(self._pair)) as windows:
            guard = DuplicateGuard(windows)
            for selected, numbers in list(_by_queue(search)):  # the search ends before anything changes
                route = guard.on(route_to_backlog(selected.queue))
                with connected(selected.pair.secondary, selected.queue) as connection:
                    replay = Replay(selected.queue, numbers, connection, connection, route)
                    with self._lock:
                        if self._is_stopped:
                            return
                        self._current = replay
                        self._done.append(replay.result)
                    replay.carry_out()
        if windows.trouble is not None:
            self._errors.append(f"Could not check for duplicate detection: {windows.trouble}")
        self._errors += [f"{selected.queue}: {error}" for selected, error in search.unreachable]


class _Bounded:
    """Reads a search until there was enough of it, or time is up."""

    def __init__(self, search: DeadLetterSearch, is_time_up: Callable[[], bool]) -> None:
        self._search = search
        self._is_time_up = is_time_up
        self.was_cut_short = False

    def __iter__(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        for number, found in enumerate(self._search):
            if number == MOST_READ or self._is_time_up():
                self.was_cut_short = True
                return
            yield found


def _as_listed(pair: str, group: Group) -> DeadLetterGroup:
    enqueued_at = group.example.enqueued_at
    return DeadLetterGroup(
        pair=pair,
        reason=group.reason,
        destination=group.destination,
        messages=group.count,
        first_enqueued=None if enqueued_at is None else moment(enqueued_at / 1000),
        says=group.example.description,
    )


def _by_queue(search: DeadLetterSearch) -> Iterator[tuple[SelectedQueue, set[int]]]:
    """The sequence numbers of the dead letters that were found, queue by queue."""
    for selected, found in groupby(search, key=lambda item: item[0]):
        yield selected, {letter.sequence_number for _, letter in found}


class OperatorApis(NamedTuple):
    """Everything that the status server does for operators."""

    pauses: PauseApi
    dead_letters: DeadLetterApi
    worker: WorkerApi
