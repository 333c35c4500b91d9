"""What a worker says of itself: the contract of `/status`. docs/status.schema.json is made from these models.

Times are UTC. Keys are added in later versions, and none is renamed or dropped without the version of the contract
being raised. Nothing in here is a secret, a body or a message id.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from syphon.worker import Pause

CONTRACT = 2
"""The version of the contract. 2: a destination is available, backing off or rejecting (1: open, waiting, closed)."""


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class StatusTotals(Part):
    """Counts since the worker started. A message that was left and came again is received twice."""

    received: int
    forwarded: int
    dead_lettered: int
    possible_duplicates: int
    bytes_forwarded: int
    unaccounted: int
    """What killed tasks had in hand: it is in the backlog still, or was forwarded and comes again."""


class SideState(StrEnum):
    """What a namespace is to us (C1). One that is out of reach is opened all the same: an outage is no fault."""

    STARTING = "starting"
    """Nobody has tried to reach it yet."""
    OPENED = "opened"
    CLOSING = "closing"
    CLOSED = "closed"
    FAULTED = "faulted"


class Side(Part):
    """A namespace of a pair."""

    host: str
    state: SideState
    connected: bool
    reason: str | None
    """Why it is out of reach, or faulted."""
    since: datetime
    """Since when it has been so."""


class QueueState(StrEnum):
    STARTING = "starting"
    """Nobody listens to it yet."""
    LISTENING = "listening"
    """A long poll is open: the doorbell."""
    WORKING = "working"
    """A job carries its messages."""
    TROUBLED = "troubled"
    """It cannot be listened to, or its last job failed; `reason` says why. It is tried again."""
    PAUSED = "paused"


class Queue(Part):
    """A backlog queue."""

    name: str
    state: QueueState
    reason: str | None
    slots: int
    """Tasks at work on it."""
    in_flight: int
    per_second: float
    """Messages forwarded, over the last ten seconds."""
    left: int | None
    """Active messages in it, as the namespace last counted them. A hint; null: not known, or not allowed to ask."""
    oldest: datetime | None
    """When the oldest message that is known of came into the queue. Null: none is known of."""
    totals: StatusTotals


class DestinationState(StrEnum):
    """The state of a destination's breaker (`syphon.transfer.breaker`), or `paused` while the operator pauses it."""

    AVAILABLE = "available"
    """The destination accepts messages, as far as the worker knows."""
    BACKING_OFF = "backing_off"
    """The destination accepts nothing now. Its messages stay in the backlog, and the worker tries again later."""
    REJECTING = "rejecting"
    """The destination refuses every message for good. Its messages go to the dead letters."""
    PAUSED = "paused"
    """The operator has paused the destination. Its messages stay in the backlog."""

    @property
    def words(self) -> str:
        """The state as people read it."""
        return self.value.replace("_", " ")


class Destination(Part):
    """A queue or topic of the primary that messages have named, or that is paused."""

    path: str
    """`(others)` counts all beyond the first 200 together."""
    state: DestinationState
    reason: str | None
    next_try: datetime | None
    since: datetime | None
    """Since when it has been backing off or paused, retries in between included. Null in the other states."""
    forwarded: int
    dead_lettered: int
    left: int
    """At least so many of its messages are in the backlog, as far as they were seen."""


class PairStatus(Part):
    """A primary, and the secondary its backlog queues are in."""

    name: str
    primary: Side
    secondary: Side
    paused: bool
    rate_limit: float | None
    per_second: float
    last_success: datetime | None
    """When a message was last forwarded, since the worker started."""
    totals: StatusTotals
    queues: list[Queue]
    destinations: list[Destination]


class Throughput(Part):
    """What was forwarded and dead-lettered in the last minutes: counts of equal spans, the oldest first."""

    seconds: int
    """How long a span is. The last one is still counting."""
    forwarded: list[int]
    dead_lettered: list[int]


class Event(Part):
    """Something the worker said. The same thing said again and again is one event."""

    at: datetime
    level: Literal["info", "warning", "error"]
    text: str
    times: int


class WorkerState(StrEnum):
    STARTING = "starting"
    WORKING = "working"
    STOPPING = "stopping"


class Status(Part):
    """A worker, as it is now."""

    contract: Annotated[int, Field(ge=1)] = CONTRACT
    version: str
    state: WorkerState
    started: datetime
    at: datetime
    """When all this was so."""
    not_ready: list[str]
    """Why /readyz says no: which side of which pair is out of reach, and why. Empty: it says yes."""
    ledger: str
    ledger_error: str | None
    paused: list[Pause]
    totals: StatusTotals
    throughput: Throughput
    pairs: list[PairStatus]
    events: list[Event]
    """The newest first."""
