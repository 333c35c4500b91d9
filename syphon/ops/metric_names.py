"""The names of what a worker measures and traces: one list for telemetry, alerts, dashboard and docs/metrics.md.

OpenTelemetry's conventions for messaging are not stable yet. When they change, this is the place. No label ever carries
a message id, and none takes a value out of a message that the operator has not allowed as a destination.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One measurement: how OpenTelemetry calls it, and how Prometheus does."""

    name: str
    kind: Kind
    unit: str
    """In UCUM: `s`, `{message}`, or `1`."""
    help: str
    labels: tuple[str, ...]

    @property
    def prometheus(self) -> str:
        """What the exporter makes of the name: no dots, the unit as a word, `_total` after a counter."""
        unit = "_seconds" if self.unit == "s" else ""
        total = "_total" if self.kind is Kind.COUNTER else ""
        return self.name.replace(".", "_") + unit + total

    @property
    def series(self) -> tuple[str, ...]:
        """The names a query can ask for."""
        if self.kind is Kind.HISTOGRAM:
            return tuple(f"{self.prometheus}_{part}" for part in ("bucket", "sum", "count"))
        return (self.prometheus,)

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        return tuple(label.replace(".", "_") for label in self.labels)


SYSTEM = {"messaging.system": "servicebus"}

# --- as OpenTelemetry's messaging conventions have them --------------------------------------------------------------

_CLIENT = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.destination.name",
    "server.address",
    "error.type",
)

OPERATION_DURATION = Metric(
    "messaging.client.operation.duration",
    Kind.HISTOGRAM,
    "s",
    "How long a send or a settlement took, from the request to the namespace's answer. A send is a whole batch.",
    ("messaging.system", "messaging.operation.name", "messaging.operation.type", "server.address"),
)
SENT_MESSAGES = Metric(
    "messaging.client.sent.messages",
    Kind.COUNTER,
    "{message}",
    "Messages sent to destinations; error.type tells those that were refused.",
    _CLIENT,
)
CONSUMED_MESSAGES = Metric(
    "messaging.client.consumed.messages",
    Kind.COUNTER,
    "{message}",
    "Messages received from backlog queues, those that came again included.",
    _CLIENT,
)
PROCESS_DURATION = Metric(
    "messaging.process.duration",
    Kind.HISTOGRAM,
    "s",
    "How long a transfer took, from the message's arrival to its settlement.",
    ("messaging.system", "messaging.operation.name", "messaging.destination.name", "server.address"),
)

# --- our own ---------------------------------------------------------------------------------------------------------

FORWARDED = Metric(
    "syphon.messages.forwarded",
    Kind.COUNTER,
    "{message}",
    "Messages that their destination has accepted and the backlog has completed.",
    ("pair", "destination"),
)
DEAD_LETTERED = Metric(
    "syphon.messages.dead_lettered",
    Kind.COUNTER,
    "{message}",
    "Messages that can never arrive and went to the backlog queue's dead letters, by reason.",
    ("pair", "queue", "reason"),
)
POSSIBLE_DUPLICATES = Metric(
    "syphon.messages.possible_duplicates",
    Kind.COUNTER,
    "{message}",
    "Messages that may reach their destination twice: a lock or a connection was lost between the last steps.",
    ("pair", "queue"),
)
IN_FLIGHT = Metric(
    "syphon.messages.in_flight",
    Kind.GAUGE,
    "{message}",
    "Messages received and not settled yet.",
    ("pair", "queue"),
)
BACKLOG_AGE = Metric(
    "syphon.backlog.age",
    Kind.GAUGE,
    "s",
    "How long the oldest message has been in the backlog queue; 0 when it is empty.",
    ("pair", "queue"),
)
BACKLOG_MESSAGES = Metric(
    "syphon.backlog.messages",
    Kind.GAUGE,
    "{message}",
    "Active messages in the backlog queue, as last counted by the namespace: a hint, and absent where we may not ask.",
    ("pair", "queue"),
)
DESTINATION_STATE = Metric(
    "syphon.destination.state",
    Kind.GAUGE,
    "1",
    "1 for the state a destination is in (available, backing_off, rejecting or paused), 0 for the others.",
    ("pair", "destination", "state"),
)
DESTINATION_BACKING_OFF = Metric(
    "syphon.destination.backing_off",
    Kind.GAUGE,
    "s",
    "How long a destination has been backing off or paused, retries in between included; 0 in the other states.",
    ("pair", "destination"),
)
LAST_SUCCESS = Metric(
    "syphon.last_success.timestamp",
    Kind.GAUGE,
    "s",
    "When a message was last forwarded, in Unix time; until then, when the worker started.",
    ("pair",),
)
SIDE_CONNECTED = Metric(
    "syphon.side.connected",
    Kind.GAUGE,
    "1",
    "1 while the primary or secondary namespace can be reached and takes our credentials, else 0.",
    ("pair", "side"),
)

CONVENTIONAL = (OPERATION_DURATION, SENT_MESSAGES, CONSUMED_MESSAGES, PROCESS_DURATION)
OWN = (
    FORWARDED,
    DEAD_LETTERED,
    POSSIBLE_DUPLICATES,
    IN_FLIGHT,
    BACKLOG_AGE,
    BACKLOG_MESSAGES,
    DESTINATION_STATE,
    DESTINATION_BACKING_OFF,
    LAST_SUCCESS,
    SIDE_CONNECTED,
)
METRICS = (*CONVENTIONAL, *OWN)

# --- traces ----------------------------------------------------------------------------------------------------------


class SpanKind(StrEnum):
    CLIENT = "client"
    CONSUMER = "consumer"


@dataclass(frozen=True)
class Span:
    """One step of a batch that is traced. Its name is the operation and the entity, as in `send orders`."""

    operation: str
    kind: SpanKind
    help: str


PROCESS = Span(
    "process",
    SpanKind.CONSUMER,
    "The whole way of a batch: from the arrival of its oldest message to the settlement of its last. "
    "Has a link to the span that sent each message, 32 at the most.",
)
SEND = Span(
    "send",
    SpanKind.CLIENT,
    "From the sending of the batch to the destination's answer. One that was refused is an error.",
)
SETTLE = Span(
    "settle",
    SpanKind.CLIENT,
    "From that answer to the completion of the batch's last message on the backlog.",
)
SPANS = (PROCESS, SEND, SETTLE)
SPAN_ATTRIBUTES = (
    "messaging.system",
    "messaging.operation.name",
    "messaging.operation.type",
    "messaging.destination.name",
    "messaging.batch.message_count",
    "server.address",
    "error.type",
    "syphon.pair",
)
