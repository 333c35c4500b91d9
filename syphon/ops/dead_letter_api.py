"""Dead letters over HTTP: a list by reason and destination, and a replay of one line of that list.

Both run in threads of their own, only when somebody asks. The list peeks, which costs an operation for each message it
reads, so it reads a bounded number. A replay puts dead letters back into their backlog queue: from there the worker
forwards them like all others, with its back-offs and its limits.
"""

from __future__ import annotations

import glob
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby

from pydantic import BaseModel, ConfigDict

from syphon.backlog import DeadLetter, DeadLetterFilter, DeadLetterSearch, SelectedQueue, grouped, select_queues
from syphon.bus import connected
from syphon.config import PairSettings
from syphon.model import SyphonError
from syphon.transfer import Replay, route_to_backlog

from .destination_history import moment
from .status import StatusModel

log = logging.getLogger(__name__)

MOST_READ = 5_000
"""Dead letters that one list reads."""
READS_FOR = 6.0
"""Seconds that one list takes at the most: a connection to the status server does not live much longer."""
MOST_REASONS = 10


class DeadLetterGroup(StatusModel):
    """Dead letters of one pair, reason and destination."""

    pair: str
    reason: str
    destination: str | None
    messages: int
    oldest: datetime | None
    """When the oldest of them came into the backlog."""
    says: str
    """The description of the oldest."""


class ReplayProgress(StatusModel):
    """The replay that runs, or the last one."""

    pair: str
    reason: str
    destination: str | None
    is_running: bool
    chosen: int
    replayed: int
    why_left: dict[str, int]
    """How many stay dead letters, by reason."""


class DeadLetterList(StatusModel):
    """The dead letters of all pairs."""

    groups: list[DeadLetterGroup]
    is_complete: bool
    """False: there are more than were read, or some queues could not be read (`unseen`)."""
    unseen: dict[str, str]
    """Queues that could not be read, and why."""
    replay: ReplayProgress | None


class ReplayRequest(BaseModel):
    """Names the dead letters to put back: one line of the list."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    reason: str
    destination: str | None


class ReplayRuns(Exception):
    """A replay is running. There is one at a time."""


class UnknownPair(Exception):
    """A request names a pair that does not exist."""


class DeadLetterApi:
    """Reads and replays dead letters of all pairs."""

    def __init__(self, pairs: Sequence[PairSettings], now: Callable[[], float] = time.monotonic) -> None:
        self._pairs = {pair.name: pair for pair in pairs}
        self._now = now
        self._progress: ReplayProgress | None = None
        self._replay: Replay | None = None
        self._is_closing = False
        self._lock = threading.Lock()

    def read(self) -> DeadLetterList:
        """Reads the dead letters by peeking. Takes a few seconds at the most."""
        groups: list[DeadLetterGroup] = []
        unseen: dict[str, str] = {}
        is_complete = True
        for pair in self._pairs.values():
            search = DeadLetterSearch(select_queues([pair], (), ()), DeadLetterFilter())
            reading = _Bounded(search, self._now)
            groups += [
                DeadLetterGroup(
                    pair=pair.name,
                    reason=group.reason,
                    destination=group.destination,
                    messages=group.count,
                    oldest=None if group.example.enqueued_at is None else moment(group.example.enqueued_at / 1000),
                    says=group.example.description,
                )
                for group in grouped(letter for _, letter in reading)
            ]
            unseen |= {selected.queue: str(error) for selected, error in search.unreachable}
            is_complete = is_complete and not reading.was_cut_short
        return DeadLetterList(
            groups=groups, is_complete=is_complete and not unseen, unseen=unseen, replay=self._progress
        )

    def replay(self, request: ReplayRequest) -> ReplayProgress:
        """Starts a replay of the dead letters that are there now."""
        pair = self._pairs.get(request.pair)
        if pair is None:
            raise UnknownPair(f"There is no pair {request.pair}; there are: {', '.join(self._pairs)}.")
        with self._lock:
            if self._progress is not None and self._progress.is_running:
                raise ReplayRuns("A replay is running; wait for its end.")
            self._progress = ReplayProgress(**request.model_dump(), is_running=True, chosen=0, replayed=0, why_left={})
        threading.Thread(target=self._carry_out, args=(pair, request), name="replay", daemon=True).start()
        return self._progress

    def close(self) -> None:
        """Lets a replay finish the messages in hand; those that it has not sent stay dead letters."""
        self._is_closing = True
        if self._replay is not None:
            self._replay.stop()

    def _carry_out(self, pair: PairSettings, request: ReplayRequest) -> None:
        done = _Done()
        try:
            wanted = DeadLetterFilter(glob.escape(request.reason), glob.escape(request.destination or ""))
            search = DeadLetterSearch(select_queues([pair], (), ()), wanted)
            for selected, numbers in list(_by_queue(search)):  # the search ends before anything changes
                if self._is_closing:
                    break
                self._replay_queue(selected, numbers, request, done)
            for selected, error in search.unreachable:
                done.why_left[f"{selected.queue}: {error}"] += 1
        except SyphonError as error:
            done.why_left[str(error)] += 1
        except Exception as error:  # this thread has no caller that would see it
            log.exception("a replay of dead letters failed")
            done.why_left[f"{type(error).__name__}: {error}"] += 1
        self._show(request, done, is_running=False)
        log.info(
            "%s: %d of %d dead letters (%s) were put back into the backlog",
            pair.name,
            done.replayed,
            done.chosen,
            request.reason,
        )

    def _replay_queue(
        self, selected: SelectedQueue, numbers: frozenset[int], request: ReplayRequest, done: _Done
    ) -> None:
        with connected(selected.pair.secondary, selected.queue) as connection:
            self._replay = Replay(selected.queue, numbers, connection, connection, route_to_backlog(selected.queue))
            result = self._replay.replay()
        done.chosen += result.chosen
        done.replayed += result.replayed
        done.why_left.update(result.why_left)
        self._show(request, done, is_running=True)

    def _show(self, request: ReplayRequest, done: _Done, *, is_running: bool) -> None:
        self._progress = ReplayProgress(
            **request.model_dump(),
            is_running=is_running,
            chosen=done.chosen,
            replayed=done.replayed,
            why_left=dict(done.why_left.most_common(MOST_REASONS)),
        )


class _Done:
    """What a replay has done so far, over all queues."""

    def __init__(self) -> None:
        self.chosen = 0
        self.replayed = 0
        self.why_left: Counter[str] = Counter()


class _Bounded:
    """Reads a search until there was enough of it, or time is up."""

    def __init__(self, search: DeadLetterSearch, now: Callable[[], float]) -> None:
        self._search = search
        self._now = now
        self.was_cut_short = False

    def __iter__(self) -> Iterator[tuple[SelectedQueue, DeadLetter]]:
        until = self._now() + READS_FOR
        for number, found in enumerate(self._search):
            if number == MOST_READ or self._now() > until:
                self.was_cut_short = True
                return
            yield found


def _by_queue(search: DeadLetterSearch) -> Iterator[tuple[SelectedQueue, frozenset[int]]]:
    """The sequence numbers of the dead letters that were found, queue by queue."""
    for selected, found in groupby(search, key=lambda item: item[0]):
        yield selected, frozenset(letter.sequence_number for _, letter in found)
