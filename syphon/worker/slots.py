"""The slots of a worker: one running slot as its dispatcher sees it, and the budget that all pairs share (D15).

    Starting ──its first report──► Serving ──its lease has expired──► HandingOver ──its successor serves──► Stopping
       │                             │                                                                         ▲
       └─────────────────────────────┴───told to stop: other settings, room for another pair, no successor─────┘

A slot ends with its job. Spark runs a limited number of them at once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from syphon.control import HandOver, SlotReport
from syphon.model import Counters
from syphon.transfer import MOST_QUEUES


class SlotState(Enum):
    """What a slot is for."""

    STARTING = auto()
    """It has not reported yet."""
    SERVING = auto()
    HANDING_OVER = auto()
    """Its lease has expired. It serves its queues, and new ones if there is no better slot, until a successor does."""
    STOPPING = auto()
    """It has been told to stop, and gets no queue."""


class SlotEvent(Enum):
    """What happens to a slot."""

    REPORTED = auto()
    SUCCESSOR_STARTED = auto()
    """Its lease has expired, and another slot was started for its queues."""
    SUCCESSOR_SERVES = auto()
    """That slot has reported, or has ended, or takes too long to start."""
    TOLD_TO_STOP = auto()


TRANSITIONS: Mapping[tuple[SlotState, SlotEvent], SlotState] = {
    (SlotState.STARTING, SlotEvent.REPORTED): SlotState.SERVING,
    (SlotState.STARTING, SlotEvent.TOLD_TO_STOP): SlotState.STOPPING,
    (SlotState.SERVING, SlotEvent.SUCCESSOR_STARTED): SlotState.HANDING_OVER,
    (SlotState.SERVING, SlotEvent.TOLD_TO_STOP): SlotState.STOPPING,
    (SlotState.HANDING_OVER, SlotEvent.SUCCESSOR_SERVES): SlotState.STOPPING,
    (SlotState.HANDING_OVER, SlotEvent.TOLD_TO_STOP): SlotState.STOPPING,
}
"""All other events change nothing."""


@dataclass(slots=True, eq=False)
class RunningSlot:
    """A running job with one slot."""

    job: str
    started_at: float
    queues: dict[str, HandOver]
    """The queues that it was handed and whose service it has not reported as ended."""
    state: SlotState = SlotState.STARTING
    began_at: float | None = None
    """When it first reported."""
    report: SlotReport | None = None
    makes_room: bool = False
    """It ends for a pair that has no slot."""
    misses_primary: bool = False
    """It could not reach the primary. It gets no queue until it has."""
    successor: RunningSlot | None = None
    """The slot that takes over its queues."""
    before: dict[str, Counters] = field(default_factory=dict)
    """Its counters of a queue when the queue was handed to it."""

    def happened(self, event: SlotEvent) -> None:
        """Moves to the next state."""
        self.state = TRANSITIONS.get((self.state, event), self.state)

    def receive(self, report: SlotReport, now: float) -> None:
        """Keeps its newest report."""
        self.report = report
        if self.began_at is None:
            self.began_at = now
        self.happened(SlotEvent.REPORTED)

    @property
    def is_leaving(self) -> bool:
        """Whether it ends soon: other slots take queues before it does."""
        return self.state in (SlotState.HANDING_OVER, SlotState.STOPPING)

    @property
    def has_room(self) -> bool:
        """Whether it can serve another queue."""
        is_accepting = self.report is not None and self.report.is_accepting and self.state is not SlotState.STOPPING
        return is_accepting and not self.misses_primary and len(self.queues) < MOST_QUEUES

    @property
    def is_saturated(self) -> bool:
        """Whether it has more work than it can do."""
        return self.report is not None and self.report.is_saturated


class SlotBudget:
    """How many slots may still start, and which pair ends one for a pair that has none. Thread-safe."""

    def __init__(self, most: int = 0) -> None:
        """`most` is how many slots Spark runs at once. None while it does not run."""
        self._most = most
        self._taken: Counter[str] = Counter()
        """The slots of each pair."""
        self._leaving = 0
        """Slots that are ending for pairs without a slot."""
        self._waiting: dict[str, None] = {}
        """Pairs without a slot, the one that has waited longest first."""
        self._lock = threading.Lock()

    def take(self, pair: str) -> bool:
        """Takes a slot for a pair, if one is free."""
        with self._lock:
            if not self._is_free_for(pair):
                return False
            self._taken[pair] += 1
            self._waiting.pop(pair, None)
            return True

    def release(self, pair: str, made_room: bool = False) -> None:
        """Returns the place of a slot that has ended. `made_room`: it ended because of `makes_room`."""
        with self._lock:
            self._taken[pair] -= 1
            self._leaving -= made_room

    def _is_free_for(self, pair: str) -> bool:
        """Whether a slot is free beyond those reserved for pairs that have waited longer."""
        waiting = list(self._waiting)
        return self._free > (waiting.index(pair) if pair in self._waiting else len(waiting))

    @property
    def _free(self) -> int:
        return self._most - self._taken.total()

    # --- while Spark starts and stops --------------------------------------------------------------------------------

    def open(self, most: int) -> None:
        """Spark runs: sets how many slots may run at once."""
        with self._lock:
            self._most = most

    def resize(self, most: int) -> None:
        """Executors have joined or left. It opens nothing that is closed."""
        with self._lock:
            if self._most:
                self._most = most

    def close(self) -> None:
        """Spark is lost: no slot starts. Those that run end by themselves."""
        self.open(0)

    def close_if_unused(self) -> bool:
        """Closes unless a slot runs or a pair waits for one, in one step: no slot can start in between."""
        with self._lock:
            if self._taken.total() or self._waiting:
                return False
            self._most = 0
            return True

    @property
    def running(self) -> int:
        """How many slots run, or are about to."""
        with self._lock:
            return self._taken.total()

    @property
    def is_wanted(self) -> bool:
        """Whether a pair with messages waits for a slot."""
        with self._lock:
            return bool(self._waiting)

    # --- pairs without a slot ------------------------------------------------------------------------------------

    def ask(self, pair: str) -> None:
        """Reserves the next free slot for a pair that has messages and no slot."""
        with self._lock:
            self._waiting.setdefault(pair)

    def withdraw(self, pair: str) -> None:
        """Drops the reservation of a pair that no longer needs a slot."""
        with self._lock:
            self._waiting.pop(pair, None)

    def makes_room(self, pair: str) -> bool:
        """Whether a slot of this pair must end for a pair that has none; the caller then ends it.

        For each waiting pair, one slot ends, of a pair that has the most slots. The others continue.
        """
        with self._lock:
            if len(self._waiting) <= self._leaving + self._free or self._taken[pair] < max(self._taken.values()):
                return False
            self._leaving += 1
            return True
