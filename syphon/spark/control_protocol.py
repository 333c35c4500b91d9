"""What a task tells the driver, and what the driver answers (D7).

A task posts its sheet about once a second: what it has counted so far. The answer is an order: go on, at this rate, or
stop. The last sheet of an attempt says how it ended; an attempt without one was killed.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from syphon.bus import SideFault
from syphon.model import Counters, QueueKey, Stats
from syphon.transfer import BatchTrace, DestinationBackoff, Ended


class SlotKey(NamedTuple):
    """One attempt of one task."""

    job: str
    slot: int
    attempt: int


class SlotReport(BaseModel):
    """One attempt's account so far."""

    pair: str
    queue: str
    job: str
    slot: int
    attempt: int
    started_at: int
    """Milliseconds since 1970."""
    counters: Counters = Field(default_factory=Counters)
    in_hand: int = 0
    waiting: tuple[DestinationBackoff, ...] = ()
    closed: tuple[DestinationBackoff, ...] = ()
    """Destinations whose messages go to the dead letters."""
    stats: Stats = Field(default_factory=Stats)
    traces: tuple[BatchTrace, ...] = ()
    """Of batches that were settled since the last sheet."""
    finished: bool = False
    ended: Ended | None = None
    """Why it stopped taking messages; none if it was an error that ended it."""
    busy: bool = False
    """There is more to do."""
    error: str = ""
    fault: SideFault | None = None

    @property
    def key(self) -> SlotKey:
        return SlotKey(self.job, self.slot, self.attempt)

    @property
    def queue_key(self) -> QueueKey:
        return QueueKey(self.pair, self.queue)


class SlotOrder(BaseModel):
    """What a task is to do next."""

    model_config = ConfigDict(frozen=True)

    stop: bool = False
    rate: float | None = None
    """Messages a second it may take: none says as many as it can, 0 is a pause."""
    paused: tuple[str, ...] = ()
    """Destinations that the operator wants left alone."""
    traces: bool = False
    """Somebody wants traces."""


class ControlAddress(NamedTuple):
    """Where the driver is to be found, and the secret of this run."""

    host: str
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"ControlAddress({self.host}:{self.port})"
