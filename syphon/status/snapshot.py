"""The status of a worker: the contract of `/status`. docs/status.schema.json is generated from these models.

Times are UTC. Later versions may add keys. A version that renames or drops a key, or changes the meaning of one, raises
`CONTRACT`. The status holds no secret, no message body and no message id.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from syphon.worker import Pause, SparkState

CONTRACT = 3
"""The version of the contract. 3: a destination is `unknown` while the primary is unreachable (2: `available`).
2: a destination is available, backing off or rejecting (1: open, waiting, closed)."""


class StatusModel(BaseModel):
    """The base of all models of the contract."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class StatusTotals(StatusModel):
    """Counts since the worker started. A message that was left and redelivered counts twice as received."""

    received: int
    forwarded: int
    dead_lettered: int
    possible_duplicates: int
    bytes_forwarded: int
    unaccounted: int
    """Messages that killed tasks had received: still in the backlog, or forwarded and about to be redelivered."""


class SideState(StrEnum):
    """The state of a namespace (C1). An unreachable namespace is still `opened`: an outage is not a fault."""

    STARTING = "starting"
    """The worker has not tried to reach it yet."""
    OPENED = "opened"
    CLOSING = "closing"
    CLOSED = "closed"
    FAULTED = "faulted"


class SideStatus(StatusModel):
    """One namespace of a pair: its primary or its secondary."""

    host: str
    state: SideState
    connected: bool
    reason: str | None
    """Why it is unreachable or faulted."""
    since: datetime
    """Since when it has been in this state."""


class BacklogQueueState(StrEnum):
    """What a worker does with a backlog queue."""

    STARTING = "starting"
    """The worker does not listen to it yet."""
    LISTENING = "listening"
    """The doorbell is set: a long poll that waits for the first message and releases it."""
    WAITING = "waiting"
    """The primary is unreachable. Nothing is received until it is reachable again (D16)."""
    WORKING = "working"
    """A job forwards its messages."""
    TROUBLED = "troubled"
    """The worker cannot listen to it, its last job failed, or its pair has faulted; `reason` says why. The worker
    retries."""
    PAUSED = "paused"
    """The operator has paused the queue or its pair."""


class QueueStatus(StatusModel):
    """A backlog queue."""

    name: str
    state: BacklogQueueState
    reason: str | None
    slots: int
    """How many tasks work on it."""
    in_flight: int
    held_sessions: int = 0
    """Sessions that wait for an earlier message, which another receiver has locked or which its destination does not
    accept. Only with `session_order`."""
    per_second: float
    """Messages forwarded, over the last ten seconds."""
    left: int | None
    """Active messages in it, as the namespace last counted them: a hint. Null: not known, or the worker may not ask."""
    counted: datetime | None = None
    """When the namespace last counted them. Null: never, or the last attempt failed."""
    arriving_per_second: float | None = None
    """How many came into it per second between its last two counts. Null: not known."""
    used: float | None = None
    """The share of its room that is taken, from 0 to 1, at the last count. Null: not known."""
    dead_letters: int | None
    """Messages in its dead letters, as the namespace last counted them: a hint. Null: not known."""
    oldest: datetime | None
    """When the oldest known message came into the queue. Null: the worker knows of none."""
    totals: StatusTotals


class DestinationState(StrEnum):
    """The state of a destination's breaker (`syphon.transfer.breaker`), or `paused` while the operator pauses it."""

    AVAILABLE = "available"
    """The destination accepts messages, as far as the worker knows."""
    UNKNOWN = "unknown"
    """The primary is unreachable, or the last messages for the destination all went to the dead letters."""
    BACKING_OFF = "backing_off"
    """The destination accepts nothing. Its messages stay in the backlog, and the worker retries later."""
    REJECTING = "rejecting"
    """The destination refuses every message for good. Its messages go to the dead letters."""
    PAUSED = "paused"
    """The operator has paused the destination. Its messages stay in the backlog."""

    @property
    def words(self) -> str:
        """The state as people read it."""
        return self.value.replace("_", " ")


class DestinationStatus(StatusModel):
    """A queue or topic of the primary that messages have named, or that is paused."""

    path: str
    """`(others)` counts all destinations beyond the first 200 together."""
    state: DestinationState
    reason: str | None
    error: str | None
    """The class of the error behind `reason`, as in DestinationMissing. Null unless it backs off or rejects."""
    next_attempt: datetime | None
    since: datetime | None
    """Since when it has been backing off or paused, retries in between included. Null in the other states."""
    forwarded: int
    dead_lettered: int
    left: int
    """How many of its messages the worker has seen in the backlog; there may be more."""


class FaultStatus(StatusModel):
    """The fault of a pair: one of its sides is unusable, and the pair is closed."""

    side: Literal["primary", "secondary"]
    """The side that faulted first."""
    reason: str
    since: datetime
    """Since when the pair has not worked, attempts to set it up included."""
    next_attempt: datetime | None
    """When the worker sets the pair up again. Null: the attempt is in progress."""


class CanaryStatus(StatusModel):
    """The probes that the worker sends through the backlog of a pair, and what became of them since the start."""

    destination: str
    arrived: int
    lost: int
    """Probes that did not arrive in time, although both sides were connected."""
    failed: int
    """Probes that could not be sent or received; `error` says why the last one could not."""
    last_seconds: float | None
    """How long the last one took that arrived."""
    last_ended: datetime | None
    """When the last one arrived, was lost or failed. Null: there was none yet."""
    is_lost: bool
    """Whether the last one was lost or failed."""
    error: str | None


class PairStatus(StatusModel):
    """A primary namespace, and the secondary that holds its backlog queues."""

    name: str
    primary: SideStatus
    secondary: SideStatus
    fault: FaultStatus | None = None
    """Set from the moment the pair faults until it works again."""
    paused: bool
    rate_limit: float | None
    """The limit in messages per second. Null: none but what slots and network can do."""
    rate_limit_set_by: Literal["operator", "primary", "secondary"] | None = None
    """Who has set the limit: the operator, or the namespace that is throttled."""
    per_second: float
    """Messages forwarded, over the last ten seconds."""
    dead_lettered_per_second: float = 0.0
    """The same of messages dead-lettered."""
    canary: CanaryStatus | None = None
    """Null: the settings have no canary for this pair."""
    last_success: datetime | None
    """When a message was last forwarded, by this worker or one before it that had the same state file."""
    totals: StatusTotals
    queues: list[QueueStatus]
    destinations: list[DestinationStatus]


class SparkStatus(StatusModel):
    """Spark, which runs while there is work."""

    state: SparkState
    since: datetime
    error: str | None
    """Why it did not start, or was lost. Null when it has started since."""
    failing_since: datetime | None
    """When it first failed. Null when it has started since."""
    next_attempt: datetime | None
    """Set while it backs off."""


class Throughput(StatusModel):
    """Messages forwarded and dead-lettered in the last minutes: counts of equal spans of time, the oldest first."""

    seconds: int
    """The length of a span. The last span is not over yet."""
    forwarded: list[int]
    dead_lettered: list[int]
    backlog: list[int | None]
    """Messages in all backlog queues at the end of each span, as far as they were counted. Null: not known."""
    unreachable: list[bool] = []
    """Whether a namespace was unreachable at the end of each span."""


class Event(StatusModel):
    """A log line of the worker. Equal lines in a row are one event."""

    at: datetime
    level: Literal["info", "warning", "error"]
    text: str
    times: int


class WorkerState(StrEnum):
    """What a worker does as a whole."""

    STARTING = "starting"
    WORKING = "working"
    STOPPING = "stopping"


class MessageFlow(StrEnum):
    """Whether messages reach their destinations."""

    STARTING = "starting"
    IDLE = "idle"
    """Everything is connected, and no message waits, as far as the worker knows."""
    FLOWING = "flowing"
    """Messages are forwarded, or are about to be."""
    PARTLY_BLOCKED = "partly_blocked"
    """Some messages cannot be forwarded; `problems` says which and why."""
    BLOCKED = "blocked"
    """No message can be forwarded."""
    PAUSED = "paused"
    """The operator has paused every pair."""
    STOPPING = "stopping"

    @property
    def words(self) -> str:
        """The state as people read it."""
        return self.value.replace("_", " ")


class Outlook(StatusModel):
    """The overall state, in a few numbers."""

    flow: MessageFlow
    headline: str = ""
    """What an operator should know first, in a sentence or two."""
    left: int | None
    """Messages in all backlog queues, as far as they were counted. Null: none was counted."""
    counted: datetime | None = None
    """When the oldest of these counts was made. Null: none was counted."""
    arriving_per_second: float | None = None
    """How many came into the backlog per second between the last two counts. Null: not known."""
    oldest: datetime | None = None
    """When the oldest known message came into the backlog. Null: the worker knows of none."""
    stuck: int
    """How many of them cannot move, as far as the worker knows; there may be more."""
    seconds: float | None
    """How long the others will take at the rate of the last seconds. Null: nothing moves, or nothing is left."""
    dead_letters: int | None
    """Messages in the dead letters of all backlog queues. Null: not known."""


class Severity(StrEnum):
    """How much a problem matters."""

    CRITICAL = "critical"
    """Nothing of a pair or a queue moves."""
    WARNING = "warning"
    """Some messages do not move, or need a person."""
    NOTICE = "notice"
    """Nothing is wrong, but an operator should not forget it: a pause, for example."""


class OperatorProblem(StatusModel):
    """Something that an operator should know, and what to do about it."""

    severity: Severity
    text: str
    remedy: str


class WorkerStatus(StatusModel):
    """A worker at one moment."""

    contract: Annotated[int, Field(ge=1)] = CONTRACT
    version: str
    state: WorkerState
    started: datetime
    at: datetime
    """The moment of this status."""
    outlook: Outlook
    problems: list[OperatorProblem]
    """The worst first. Empty: nothing that the worker knows of needs a person."""
    not_ready: list[str]
    """Why /readyz answers 503: no pair works, and why: the sides that are faulted or unreachable. Empty: it answers
    200, because both sides of at least one pair are connected."""
    spark: SparkStatus | None = None
    """Null: the worker has not started yet."""
    ledger: str
    ledger_error: str | None
    paused: list[Pause]
    totals: StatusTotals
    throughput: Throughput
    pairs: list[PairStatus]
    events: list[Event]
    """The newest first."""


def moment(seconds: float) -> datetime:
    """Seconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(seconds, UTC)
