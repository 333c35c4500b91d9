"""Telemetry: OpenTelemetry metrics of the observer's status, for Prometheus and OTLP, and traces if they are set up.

Counters and gauges are observable: a collection reads them from the observer, so that they include what tasks on
executors have counted. An instrument of OpenTelemetry takes durations one by one, thousands per second. The tasks have
counted them already, so their histograms are added to what OpenTelemetry's readers collect.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    MetricReader,
    MetricsData,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Metric as Exported
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

from syphon import __version__
from syphon.config import Config
from syphon.model import SECONDS_BUCKETS, Durations, Extra
from syphon.time_budget import EXPORTERS_END_WITHIN
from syphon.worker import SparkState

from . import metric_names
from .metric_names import SYSTEM, Metric, MetricKind, TracedStep
from .observer import Observer
from .snapshot import DestinationState, PairStatus, WorkerStatus

if TYPE_CHECKING:
    from .otlp import Tracing

Labelled = tuple[dict[str, str], Durations]
Look = Callable[[], Mapping[Metric, Iterable[Labelled]]]
"""Returns all durations measured since the worker started."""


class WithHistograms(MetricReader):
    """Makes a reader read the histograms as well. It must stand before that reader in a class's bases."""

    def __init__(self, look: Look, *arguments: Any, **options: Any) -> None:
        self._look = look
        self._began = time.time_ns()
        super().__init__(*arguments, **options)

    def _receive_metrics(self, metrics_data: MetricsData, *arguments: Any, **options: Any) -> None:
        (resource,) = metrics_data.resource_metrics
        (scope,) = resource.scope_metrics
        measured = [self._exported(metric, found) for metric, found in self._look().items()]
        every = ScopeMetrics(scope.scope, [*scope.metrics, *measured], scope.schema_url)
        joined = type(resource)(resource.resource, [every], resource.schema_url)
        super()._receive_metrics(MetricsData([joined]), *arguments, **options)  # type: ignore[safe-super]

    def _exported(self, metric: Metric, found: Iterable[Labelled]) -> Exported:
        unknown: Any = None  # the shortest and the longest duration: tasks do not keep them
        points = [
            HistogramDataPoint(
                labels,
                self._began,
                time.time_ns(),
                sum(durations.counts),
                durations.seconds,
                durations.counts,
                SECONDS_BUCKETS,
                unknown,
                unknown,
            )
            for labels, durations in found
        ]
        return Exported(metric.name, metric.help, metric.unit, Histogram(points, AggregationTemporality.CUMULATIVE))


class PrometheusReader(WithHistograms, PrometheusMetricReader):
    """The reader for /metrics."""


Observations = Iterator[tuple[float, dict[str, str]]]


class Telemetry:
    """Offers and exports the metrics until it is closed."""

    def __init__(self, config: Config, observer: Observer) -> None:
        self._observer = observer
        self._hosts = {pair.name: (pair.primary.host, pair.secondary.host) for pair in config.pairs}
        self._registry = CollectorRegistry()
        self._written = b""
        self._written_of: WorkerStatus | None = None
        readers: list[MetricReader] = [
            PrometheusReader(
                self._durations, disable_target_info=True, scope_info_enabled=False, registry=self._registry
            )
        ]
        resource = Resource({"service.name": "syphon", "service.version": __version__})
        self.tracing: Tracing | None = None
        """None: no traces are set up."""
        endpoint = config.telemetry.otlp_endpoint
        if endpoint is not None:
            otlp = _otlp()
            readers.append(otlp.reader(endpoint, self._durations))
            if config.telemetry.traces:
                self.tracing = otlp.Tracing(config.pairs, resource, otlp.trace_exporter(endpoint))
        # No atexit handler of the SDK: a collector that does not answer would delay the end of the process.
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("syphon", __version__)
        for metric, look in _OBSERVED.items():
            make = (
                meter.create_observable_counter if metric.kind is MetricKind.COUNTER else meter.create_observable_gauge
            )
            make(metric.name, [self._callback(look)], unit=metric.unit, description=metric.help)

    def prometheus(self) -> bytes:
        """All metrics in Prometheus's text format. They are written once for each status, however many clients ask."""
        status = self._observer.current()
        if status is not self._written_of:
            self._written, self._written_of = generate_latest(self._registry), status
        return self._written

    def _durations(self) -> dict[Metric, list[Labelled]]:
        # By host: two pairs may share a namespace, and a series must occur only once.
        operations: dict[tuple[TracedStep, str], Durations] = {}
        transfers: list[Labelled] = []
        for key, totals in self._observer.queue_totals.items():
            primary, secondary = self._hosts[key.pair]
            stats = totals.stats
            operations.setdefault((metric_names.SEND, primary), Durations()).add(stats.send)
            operations.setdefault((metric_names.SETTLE, secondary), Durations()).add(stats.settle)
            step = metric_names.PROCESS.operation
            labels = {"messaging.operation.name": step, "messaging.destination.name": key.queue}
            transfers.append(({**SYSTEM, **labels, "server.address": secondary}, stats.process))
        return {
            metric_names.OPERATION_DURATION: [
                (_operation(*which), durations) for which, durations in operations.items()
            ],
            metric_names.PROCESS_DURATION: transfers,
        }

    def close(self) -> None:
        """Lets the exporters finish in the background, so that a stuck exporter does not delay the end."""
        ends: list[Callable[[], object]] = [self._provider.shutdown]
        if self.tracing is not None:
            ends.append(self.tracing.close)
        threads = [threading.Thread(target=end, name="telemetry", daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + EXPORTERS_END_WITHIN
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _callback(
        self, look: Callable[[Telemetry], Observations]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [Observation(value, labels) for value, labels in look(self)]  # noqa: ARG005

    # --- observations -------------------------------------------------------------------------------------------

    @property
    def _pairs(self) -> list[PairStatus]:
        return self._observer.status.pairs

    def _forwarded(self) -> Observations:
        for pair in self._pairs:
            for destination in pair.destinations:
                yield destination.forwarded, {"pair": pair.name, "destination": destination.path}

    def _dead_lettered(self) -> Observations:
        for key, totals in self._observer.queue_totals.items():
            for reason, count in totals.stats.reasons.items():
                yield count, {"pair": key.pair, "queue": key.queue, "reason": reason}

    def _possible_duplicates(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                yield queue.totals.possible_duplicates, {"pair": pair.name, "queue": queue.name}

    def _in_flight(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                yield queue.in_flight, {"pair": pair.name, "queue": queue.name}

    def _held_sessions(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                yield queue.held_sessions, {"pair": pair.name, "queue": queue.name}

    def _backlog_age(self) -> Observations:
        at = self._observer.status.at
        for pair in self._pairs:
            for queue in pair.queues:
                age = 0.0 if queue.oldest is None else max(0.0, (at - queue.oldest).total_seconds())
                yield age, {"pair": pair.name, "queue": queue.name}

    def _backlog_messages(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                if queue.left is not None:
                    yield queue.left, {"pair": pair.name, "queue": queue.name}

    def _backlog_used(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                if queue.used is not None:
                    yield queue.used, {"pair": pair.name, "queue": queue.name}

    def _dead_letters(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                if queue.dead_letters is not None:
                    yield queue.dead_letters, {"pair": pair.name, "queue": queue.name}

    def _destination_state(self) -> Observations:
        for pair in self._pairs:
            for destination in pair.destinations:
                for state in DestinationState:
                    labels = {"pair": pair.name, "destination": destination.path, "state": state.value}
                    yield int(state is destination.state), labels

    def _destination_backing_off(self) -> Observations:
        at = self._observer.status.at
        for pair in self._pairs:
            for destination in pair.destinations:
                since = destination.since
                seconds = 0.0 if since is None else max(0.0, (at - since).total_seconds())
                yield seconds, {"pair": pair.name, "destination": destination.path}

    def _destination_waiting(self) -> Observations:
        for pair in self._pairs:
            for destination in pair.destinations:
                if destination.state is DestinationState.BACKING_OFF:
                    labels = {"pair": pair.name, "destination": destination.path, "error": destination.error or ""}
                    yield destination.left, labels

    def _rate_limit(self) -> Observations:
        for pair in self._pairs:
            if pair.rate_limit is not None:
                yield pair.rate_limit, {"pair": pair.name, "set_by": pair.rate_limit_set_by or "operator"}

    def _last_success(self) -> Observations:
        for pair in self._pairs:
            yield (pair.last_success or self._observer.status.started).timestamp(), {"pair": pair.name}

    def _canary_probes(self) -> Observations:
        for pair in self._pairs:
            if (canary := pair.canary) is not None:
                for outcome in ("arrived", "lost", "failed"):
                    yield getattr(canary, outcome), {"pair": pair.name, "outcome": outcome}

    def _canary_latency(self) -> Observations:
        for pair in self._pairs:
            if pair.canary is not None and pair.canary.last_seconds is not None:
                yield pair.canary.last_seconds, {"pair": pair.name}

    def _side_connected(self) -> Observations:
        for pair in self._pairs:
            yield int(pair.primary.connected), {"pair": pair.name, "side": "primary"}
            yield int(pair.secondary.connected), {"pair": pair.name, "side": "secondary"}

    def _pair_faulted(self) -> Observations:
        for pair in self._pairs:
            for side in ("primary", "secondary"):
                is_faulted = pair.fault is not None and pair.fault.side == side
                yield int(is_faulted), {"pair": pair.name, "side": side}

    def _ledger_failing(self) -> Observations:
        yield int(self._observer.status.ledger_error is not None), {}

    def _spark_state(self) -> Observations:
        if (spark := self._observer.status.spark) is not None:
            for state in SparkState:
                yield int(state is spark.state), {"state": state.value}

    def _spark_failing(self) -> Observations:
        spark = self._observer.status.spark
        yield int(spark is not None and spark.error is not None), {}

    def _started(self) -> Observations:
        yield self._observer.status.started.timestamp(), {}

    def _consumed(self) -> Observations:
        for pair in self._pairs:
            for queue in pair.queues:
                labels = {
                    **SYSTEM,
                    "messaging.operation.name": "receive",
                    "messaging.destination.name": queue.name,
                    "server.address": pair.secondary.host,
                }
                yield queue.totals.received, labels

    def _sent(self) -> Observations:
        counts: Counter[tuple[str, str, str]] = Counter()
        for pair in self._pairs:
            for destination in pair.destinations:
                counts[destination.path, pair.primary.host, ""] += destination.forwarded
                if destination.dead_lettered:
                    counts[destination.path, pair.primary.host, "refused"] += destination.dead_lettered
        for (path, host, error), count in counts.items():
            labels = {"messaging.operation.name": "send", "messaging.destination.name": path, "error.type": error}
            yield count, {**SYSTEM, **labels, "server.address": host}


_OBSERVED: dict[Metric, Callable[[Telemetry], Observations]] = {
    metric_names.SENT_MESSAGES: Telemetry._sent,
    metric_names.CONSUMED_MESSAGES: Telemetry._consumed,
    metric_names.FORWARDED: Telemetry._forwarded,
    metric_names.DEAD_LETTERED: Telemetry._dead_lettered,
    metric_names.POSSIBLE_DUPLICATES: Telemetry._possible_duplicates,
    metric_names.IN_FLIGHT: Telemetry._in_flight,
    metric_names.HELD_SESSIONS: Telemetry._held_sessions,
    metric_names.BACKLOG_AGE: Telemetry._backlog_age,
    metric_names.BACKLOG_MESSAGES: Telemetry._backlog_messages,
    metric_names.BACKLOG_USED: Telemetry._backlog_used,
    metric_names.DEAD_LETTERS: Telemetry._dead_letters,
    metric_names.DESTINATION_STATE: Telemetry._destination_state,
    metric_names.DESTINATION_BACKING_OFF: Telemetry._destination_backing_off,
    metric_names.DESTINATION_WAITING: Telemetry._destination_waiting,
    metric_names.RATE_LIMIT: Telemetry._rate_limit,
    metric_names.LAST_SUCCESS: Telemetry._last_success,
    metric_names.CANARY_PROBES: Telemetry._canary_probes,
    metric_names.CANARY_LATENCY: Telemetry._canary_latency,
    metric_names.SIDE_CONNECTED: Telemetry._side_connected,
    metric_names.PAIR_FAULTED: Telemetry._pair_faulted,
    metric_names.LEDGER_FAILING: Telemetry._ledger_failing,
    metric_names.SPARK_STATE: Telemetry._spark_state,
    metric_names.SPARK_FAILING: Telemetry._spark_failing,
    metric_names.STARTED: Telemetry._started,
}


def _operation(step: TracedStep, host: str) -> dict[str, str]:
    return {
        **SYSTEM,
        "messaging.operation.name": step.operation,
        "messaging.operation.type": step.type,
        "server.address": host,
    }


def _otlp() -> ModuleType:
    Extra.OTLP.require("telemetry.otlp_endpoint")
    from . import otlp

    return otlp
