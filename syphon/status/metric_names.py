"""The names of all metrics and spans: one list for telemetry, alerts, dashboard and docs/metrics.md.

OpenTelemetry's conventions for messaging are not stable yet; when they change, only this module must change. No label
carries a message id. The only values that come from messages are destinations that the operator has allowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class MetricKind(StrEnum):
    """How a metric is counted."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """One metric, with its name in OpenTelemetry and its name in Prometheus."""

    name: str
    kind: MetricKind
    unit: str
    """In UCUM: `s`, `{message}`, or `1`."""
    help: str
    labels: tuple[str, ...]

    @property
    def prometheus(self) -> str:
        """The name that the exporter makes: without dots, with the unit as a word, with `_total` after a counter."""
        unit = "_seconds" if self.unit == "s" else ""
        total = "_total" if self.kind is MetricKind.COUNTER else ""
        return self.name.replace(".", "_") + unit + total

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query can use."""
        if self.kind is MetricKind.HISTOGRAM:
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
    MetricKind.HISTOGRAM,
    "s",
    "How long a send or a settlement took, from the request to the namespace's answer. A send is a whole batch.",
    ("messaging.system", "messaging.operation.name", "messaging.operation.type", "server.address"),
)
SENT_MESSAGES = Metric(
    "messaging.client.sent.messages",
    MetricKind.COUNTER,
    "{message}",
    "Messages sent to destinations; error.type marks those that the destination refused.",
    _CLIENT,
)
CONSUMED_MESSAGES = Metric(
    "messaging.client.consumed.messages",
    MetricKind.COUNTER,
    "{message}",
    "Messages received from backlog queues, repeated deliveries included.",
    _CLIENT,
)
PROCESS_DURATION = Metric(
    "messaging.process.duration",
    MetricKind.HISTOGRAM,
    "s",
    "How long a transfer took, from the message's arrival to its settlement.",
    ("messaging.system", "messaging.operation.name", "messaging.destination.name", "server.address"),
)

# --- our own ---------------------------------------------------------------------------------------------------------

FORWARDED = Metric(
    "syphon.messages.forwarded",
    MetricKind.COUNTER,
    "{message}",
    "Messages that their destination has accepted and the backlog has completed.",
    ("pair", "destination"),
)
DEAD_LETTERED = Metric(
    "syphon.messages.dead_lettered",
    MetricKind.COUNTER,
    "{message}",
    "Messages that cannot be forwarded and went to the backlog queue's dead letters, by reason.",
    ("pair", "queue", "reason"),
)
POSSIBLE_DUPLICATES = Metric(
    "syphon.messages.possible_duplicates",
    MetricKind.COUNTER,
    "{message}",
    "Messages that may reach their destination twice: a lock or a connection was lost before the completion.",
    ("pair", "queue"),
)
IN_FLIGHT = Metric(
    "syphon.messages.in_flight",
    MetricKind.GAUGE,
    "{message}",
    "Messages received and not settled yet.",
    ("pair", "queue"),
)
HELD_SESSIONS = Metric(
    "syphon.sessions.held",
    MetricKind.GAUGE,
    "{session}",
    "Sessions that wait for an earlier message, which another receiver has locked or which its destination does not "
    "accept. Only with session_order.",
    ("pair", "queue"),
)
BACKLOG_AGE = Metric(
    "syphon.backlog.age",
    MetricKind.GAUGE,
    "s",
    "How long the oldest message has been in the backlog queue; 0 when it is empty.",
    ("pair", "queue"),
)
BACKLOG_MESSAGES = Metric(
    "syphon.backlog.messages",
    MetricKind.GAUGE,
    "{message}",
    "Active messages in the backlog queue, as the namespace last counted: a hint; absent without the Manage claim.",
    ("pair", "queue"),
)
BACKLOG_USED = Metric(
    "syphon.backlog.used",
    MetricKind.GAUGE,
    "1",
    "The share of the backlog queue's room that is taken, from 0 to 1, at the last count; absent without the Manage "
    "claim.",
    ("pair", "queue"),
)
DEAD_LETTERS = Metric(
    "syphon.dead_letters",
    MetricKind.GAUGE,
    "{message}",
    "Messages in the backlog queue's dead letters now, as the namespace last counted: a hint; absent without the "
    "Manage claim.",
    ("pair", "queue"),
)
DESTINATION_STATE = Metric(
    "syphon.destination.state",
    MetricKind.GAUGE,
    "1",
    "1 for the state a destination is in (available, unknown, backing_off, rejecting or paused), 0 for the others.",
    ("pair", "destination", "state"),
)
DESTINATION_BACKING_OFF = Metric(
    "syphon.destination.backing_off",
    MetricKind.GAUGE,
    "s",
    "How long a destination has been backing off or paused, retries in between included; 0 in the other states.",
    ("pair", "destination"),
)
DESTINATION_WAITING = Metric(
    "syphon.destination.waiting_messages",
    MetricKind.GAUGE,
    "{message}",
    "Messages known to wait for a destination that backs off, by the error it gave (DestinationMissing, "
    "DestinationFull, …); there may be more. Absent in the other states.",
    ("pair", "destination", "error"),
)
RATE_LIMIT = Metric(
    "syphon.rate_limit",
    MetricKind.GAUGE,
    "{message}",
    "Messages per second that may move, by who has decided that: operator, primary or secondary (the namespace that is "
    "throttled). Absent while nothing limits them.",
    ("pair", "set_by"),
)
LAST_SUCCESS = Metric(
    "syphon.last_success.timestamp",
    MetricKind.GAUGE,
    "s",
    "When a message was last forwarded, in Unix time, also before a restart; if never, when the worker started.",
    ("pair",),
)
CANARY_PROBES = Metric(
    "syphon.canary.probes",
    MetricKind.COUNTER,
    "{message}",
    "Probes that the worker sent through the backlog, by outcome (arrived, lost, or failed: not sent or not received).",
    ("pair", "outcome"),
)
CANARY_LATENCY = Metric(
    "syphon.canary.latency",
    MetricKind.GAUGE,
    "s",
    "How long the last probe took that arrived, from the backlog to its destination. Absent until one has arrived.",
    ("pair",),
)
SIDE_CONNECTED = Metric(
    "syphon.side.connected",
    MetricKind.GAUGE,
    "1",
    "1 while the primary or secondary namespace can be reached and accepts the worker's credentials, else 0.",
    ("pair", "side"),
)
PAIR_FAULTED = Metric(
    "syphon.pair.faulted",
    MetricKind.GAUGE,
    "1",
    "1 from the moment a pair faults because of its primary or secondary until it works again, else 0.",
    ("pair", "side"),
)
LEDGER_FAILING = Metric(
    "syphon.ledger.failing",
    MetricKind.GAUGE,
    "1",
    "1 while rows cannot be written to the ledger, else 0.",
    (),
)
SPARK_STATE = Metric(
    "syphon.spark.state",
    MetricKind.GAUGE,
    "1",
    "1 for the state Spark is in (stopped, starting, running, stopping or backing_off), 0 for the others.",
    ("state",),
)
SPARK_FAILING = Metric(
    "syphon.spark.failing",
    MetricKind.GAUGE,
    "1",
    "1 from the moment Spark does not start, or is lost, until it runs again, else 0.",
    (),
)
STARTED = Metric(
    "syphon.started.timestamp",
    MetricKind.GAUGE,
    "s",
    "When the worker started, in Unix time. Every change is a restart.",
    (),
)

CONVENTIONAL = (OPERATION_DURATION, SENT_MESSAGES, CONSUMED_MESSAGES, PROCESS_DURATION)
OWN = (
    FORWARDED,
    DEAD_LETTERED,
    POSSIBLE_DUPLICATES,
    IN_FLIGHT,
    HELD_SESSIONS,
    BACKLOG_AGE,
    BACKLOG_MESSAGES,
    BACKLOG_USED,
    DEAD_LETTERS,
    DESTINATION_STATE,
    DESTINATION_BACKING_OFF,
    DESTINATION_WAITING,
    RATE_LIMIT,
    LAST_SUCCESS,
    CANARY_PROBES,
    CANARY_LATENCY,
    SIDE_CONNECTED,
    PAIR_FAULTED,
    LEDGER_FAILING,
    SPARK_STATE,
    SPARK_FAILING,
    STARTED,
)
METRICS = (*CONVENTIONAL, *OWN)

# --- traces ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TracedStep:
    """One step of a traced batch. Its span is named after the operation and the entity, as in `send orders`."""

    operation: str
    """The name that Service Bus has for it."""
    type: str
    """The type of the operation in the conventions."""
    kind: Literal["client", "consumer"]
    help: str


PROCESS = TracedStep(
    "process",
    "process",
    "consumer",
    "A batch as a whole: from the arrival of its oldest message to the settlement of its last. "
    "Has a link to the span that sent each message, at most 32.",
)
SEND = TracedStep(
    "send",
    "send",
    "client",
    "From the sending of the batch to the destination's answer. A refusal is an error.",
)
SETTLE = TracedStep(
    "complete",
    "settle",
    "client",
    "From that answer to the completion of the batch's last message in the backlog.",
)
TRACED_STEPS = (PROCESS, SEND, SETTLE)
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
