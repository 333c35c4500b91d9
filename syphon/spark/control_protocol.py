"""The messages between a task and the driver (D7).

A task posts a report about once a second: what it has counted so far. The driver answers with an order: continue at
this rate, or stop. The last report of an attempt says how the attempt ended. An attempt without one was killed.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from syphon.bus import SideFault
from syphon.model import Counters, QueueKey, Stats
from syphon.transfer import BatchTrace, DestinationBackoff, Ended

REPORT_PATH = "/report"
"""The path on the control server that tasks post their reports to."""


class AttemptKey(NamedTuple):
    """One attempt of one task."""

    job: str
    slot: int
    attempt: int


class SlotReport(BaseModel):
    """What one attempt of a task has done so far."""

    pair: str
    queue: str
    job: str
    slot: int
    attempt: int
    started_at: int
    """Milliseconds since 1970."""
    counters: Counters = Field(default_factory=Counters)
    in_hand: int = 0
    backing_off: tuple[DestinationBackoff, ...] = ()
    """Destinations that accept nothing now. Their messages stay in the backlog."""
    rejecting: tuple[DestinationBackoff, ...] = ()
    """Destinations whose messages go to the dead letters."""
    stats: Stats = Field(default_factory=Stats)
    traces: tuple[BatchTrace, ...] = ()
    """Batches that were settled since the previous report."""
    finished: bool = False
    ended: Ended | None = None
    """Why the pump stopped taking messages; None if an error ended it."""
    busy: bool = False
    """The pump stopped while messages were still arriving: there is more to do."""
    error: str = ""
    fault: SideFault | None = None

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.job, self.slot, self.attempt)

    @property
    def queue_key(self) -> QueueKey:
        return QueueKey(self.pair, self.queue)


class SlotOrder(BaseModel):
    """What a task must do next."""

    model_config = ConfigDict(frozen=True)

    stop: bool = False
    rate: float | None = None
    """Messages a second that the task may take. None means no limit, 0 means pause."""
    paused: tuple[str, ...] = ()
    """Destinations that the operator has paused."""
    traces: bool = False
    """The driver collects traces."""


class ControlAddress(NamedTuple):
    """Where the control server listens, and the secret of this run."""

    host: str
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"ControlAddress({self.host}:{self.port})"
