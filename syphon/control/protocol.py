"""The messages between a slot and the driver (D7, D15).

A slot posts a report about once per second: what it has counted so far, for each queue that it serves. The driver
answers with an order: which queues to serve, at which rate, or stop. The driver may hold its answer for a moment, so
that a queue that rings reaches a slot at once. The last report of an attempt says how the attempt ended. An attempt
without one was killed.

Both are signed: HMAC-SHA256 with the secret of the run, which is never sent. A listener between nodes learns no key,
and can neither make a message nor change one. Nor can it replay one: the reports of an attempt are numbered, and an
order is signed for the one report that it answers. A signature has two parts, the digest of the content and the code
over that digest, so the server recognises a stranger before it reads the stranger's message.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from syphon.model import AttemptKey, Counters, QueueKey, Stats
from syphon.servicebus import SideFault
from syphon.transfer import BatchTrace, DestinationBackoff, Ended

REPORT_PATH = "/report"
"""The path on the control server that slots post their reports to."""
SIGNATURE = "X-Syphon-Signature"
"""The header that signs a report, and the order that answers it."""


class HandOver(BaseModel):
    """A queue that the driver hands to a slot."""

    model_config = ConfigDict(frozen=True)

    queue: str
    number: int = 1
    """Counts how often the driver has handed out this queue: a higher number is a new service."""
    deferred: bool = False
    """The service scans for deferred messages at once."""
    waiting: tuple[str, ...] = ()
    """Destinations that may have deferred messages. The service scans for these when one of them is available."""
    failing: tuple[DestinationBackoff, ...] = ()
    """Destinations that have failed, as the driver knows from other slots. Their back-offs may be over."""


class QueueReport(BaseModel):
    """What one attempt of a slot has done with one queue so far."""

    queue: str
    number: int = 0
    """The last hand-over that the slot has begun to serve."""
    is_served: bool = True
    ended: Ended | None = None
    """Why its last service ended; None while it is served, or if an error ended it."""
    counters: Counters = Field(default_factory=Counters)
    in_flight: int = 0
    held_sessions: int = 0
    """Sessions that wait for a message that is not in flight, if the order of sessions is kept."""
    stats: Stats = Field(default_factory=Stats)
    error: str = ""


class Traffic(BaseModel):
    """How much one namespace accepts from a slot, or delivers to it, and how often it has answered busy."""

    model_config = ConfigDict(frozen=True)

    per_second: float = 0.0
    """Messages in the last second; after a busy answer, in the second before it."""
    busy_answers: int = 0
    """Busy answers so far."""
    batch: int = 1
    """The messages of the batch that was last refused."""
    is_binding: bool = False
    """Whether the slot's limit has held messages back in the last seconds."""


class SlotReport(BaseModel):
    """What one attempt of a slot has done so far."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    pair: str
    job: str
    slot: int
    attempt: int
    task: int | None = None
    """The number that Spark has given to the attempt; None outside of Spark."""
    started_at: int
    """Milliseconds since 1970."""
    reported_at: int = 0
    """When the slot made this report, likewise. Of an attempt that has ended, the last sign of life."""
    queues: tuple[QueueReport, ...] = ()
    """Every queue that it has served."""
    backing_off: tuple[DestinationBackoff, ...] = ()
    """Unavailable destinations. Their messages stay in the backlog."""
    rejecting: tuple[DestinationBackoff, ...] = ()
    """Destinations whose messages go to the dead letters."""
    recovered: tuple[str, ...] = ()
    """Destinations that had failed, and are available."""
    traces: tuple[BatchTrace, ...] = ()
    """Batches that were settled since the previous report."""
    rows: tuple[bytes, ...] = ()
    """Files of the ledger that the driver has not confirmed. It may get one twice."""
    is_accepting: bool = True
    """It can be handed another queue."""
    is_saturated: bool = False
    """Its window has been full, or it has used most of a core, for some seconds."""
    is_primary_connected: bool = False
    primary_error: str = ""
    """Why the primary is unreachable; empty if it is connected, or if the first attempt has not ended."""
    sending: Traffic = Field(default_factory=Traffic)
    """To the primary."""
    receiving: Traffic = Field(default_factory=Traffic)
    """From the secondary."""
    retries: int = 0
    """How many requests of the operator to retry destinations the slot has followed, or was too young for."""
    finished: bool = False
    error: str = ""
    fault: SideFault | None = None
    number: int = 0
    """Counts the reports of this attempt. The driver accepts each number once."""
    hold: float = 0.0
    """Seconds for which the driver may hold the answer until it has something new to say."""

    @property
    def key(self) -> AttemptKey:
        return AttemptKey(self.pair, self.job, self.slot, self.attempt)

    @property
    def position(self) -> tuple[int, int]:
        """Its position among the slot's reports: a later one is greater."""
        return self.attempt, self.number

    @property
    def counters(self) -> Counters:
        """The counters of all its queues."""
        return Counters.total(queue.counters for queue in self.queues)

    def of(self, queue: str) -> QueueReport | None:
        return next((found for found in self.queues if found.queue == queue), None)

    def key_of(self, queue: QueueReport) -> QueueKey:
        return QueueKey(self.pair, queue.queue)


class SlotOrder(BaseModel):
    """What a slot must do next."""

    model_config = ConfigDict(frozen=True)

    stop: bool = False
    queues: tuple[HandOver, ...] = ()
    """The queues that it serves. A queue with a higher number than before is served again."""
    released: tuple[str, ...] = ()
    """Queues whose service it must end: the operator has paused them."""
    killed: tuple[str, ...] = ()
    """Queues of which a slot was killed: it may have forwarded what is redelivered."""
    rate: float | None = None
    """Messages per second that the slot may receive, as the operator asked. None means no limit, 0 means pause."""
    send_limit: float | None = None
    """Messages per second that the primary accepts from this slot, by congestion control. None: any number."""
    receive_limit: float | None = None
    """The same of the secondary, for receiving."""
    send_busy_heard: int = 0
    """How many busy answers of the primary to this slot the limit takes into account."""
    receive_busy_heard: int = 0
    """The same of the secondary."""
    paused: tuple[str, ...] = ()
    """Destinations that the operator has paused."""
    retries: int = 0
    """Counts the operator's requests to retry destinations: a higher number is a new request."""
    retried: tuple[str, ...] = ()
    """The destinations of the last requests: their back-offs end."""
    traces: bool = False
    """The driver collects traces."""


class ControlAddress(NamedTuple):
    """Where the control server listens, and the secret of this run."""

    host: str
    port: int
    secret: str

    def __repr__(self) -> str:
        return f"ControlAddress({self.host}:{self.port})"


# --- signatures ------------------------------------------------------------------------------------------------------


class Purpose(StrEnum):
    """What a signature is for. One that was made for a report is not valid for an order."""

    REPORT = "report"
    ORDER = "order"


def signature(secret: str, purpose: Purpose, content: bytes, answers: str = "") -> str:
    """Signs a message. `answers` is the signature of the message that this one answers."""
    digest = hashlib.sha256(content).hexdigest()
    return f"{digest}.{_code(secret, purpose, digest, answers)}"


def is_made_with(secret: str, purpose: Purpose, signed: str, answers: str = "") -> bool:
    """Whether a holder of the secret has made this signature, for any content."""
    digest, _, code = signed.partition(".")
    return hmac.compare_digest(code.encode(), _code(secret, purpose, digest, answers).encode())


def fits(signed: str, content: bytes) -> bool:
    """Whether a signature is that of this content."""
    return hmac.compare_digest(signed.partition(".")[0].encode(), hashlib.sha256(content).hexdigest().encode())


def _code(secret: str, purpose: Purpose, digest: str, answers: str) -> str:
    return hmac.new(secret.encode(), f"{purpose}\n{answers}\n{digest}".encode(), hashlib.sha256).hexdigest()
