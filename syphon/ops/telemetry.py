"""Telemetry: metrics by OpenTelemetry of what the observer saw, for Prometheus and for OTLP, and traces if wanted.

Counters and gauges are observed: they are read from the observer when somebody collects them, so that what tasks on
executors counted is in them. Durations come as histograms that tasks have made.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, generate_latest

from syphon import __version__
from syphon.config import Config
from syphon.model import Durations, SyphonError

from . import metric_names
from .histograms import Labelled, PrometheusReader
from .metric_names import SYSTEM, Kind, Metric
from .observer import Observer
from .status import DestinationState, PairStatus, Status
from .tracing import Tracing

LAST_WORDS = 1.5
"""Seconds that exporters get at the end."""

Seen = Iterator[tuple[float, dict[str, str]]]


class OtlpMissing(SyphonError):
    """telemetry.otlp_endpoint is set, and the exporter for it is not installed: pip install 'syphon[otlp]'."""


class Telemetry:
    """Measures until it is closed."""

    def __init__(self, config: Config, observer: Observer) -> None:
        self._observer = observer
        self._hosts = {pair.name: (pair.primary.host, pair.secondary.host) for pair in config.pairs}
        self._registry = CollectorRegistry()
        self._written = b""
        self._written_of: Status | None = None
        readers: list[MetricReader] = [
            PrometheusReader(
                self._durations, disable_target_info=True, scope_info_enabled=False, registry=self._registry
            )
        ]
        resource = Resource({"service.name": "syphon", "service.version": __version__})
        self.tracing: Tracing | None = None
        """None: nobody wants traces."""
        endpoint = config.telemetry.otlp_endpoint
        if endpoint is not None:
            otlp = _otlp()
            readers.append(otlp.reader(endpoint, self._durations))
            if config.telemetry.traces:
                self.tracing = Tracing(config.pairs, resource, otlp.trace_exporter(endpoint))
        # Nobody else's atexit: a collector that does not answer would hold up the end of the process.
        self._provider = MeterProvider(readers, resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("syphon", __version__)
        for metric, look in _OBSERVED.items():
            make = meter.create_observable_counter if metric.kind is Kind.COUNTER else meter.create_observable_gauge
            make(metric.name, [self._callback(look)], unit=metric.unit, description=metric.help)

    def prometheus(self) -> bytes:
        """All metrics, in Prometheus's text. However many ask, it is written once for each look at the worker."""
        status = self._observer.current()
        if status is not self._written_of:
            self._written, self._written_of = generate_latest(self._registry), status
        return self._written

    def _durations(self) -> dict[Metric, list[Labelled]]:
        # By host: two pairs may have a namespace in common, and a series must come once.
        operations: dict[tuple[str, str], Durations] = {}
        transfers: list[Labelled] = []
        for key, standing in self._observer.standings.items():
            primary, secondary = self._hosts[key.pair]
            census = standing.stats
            operations.setdefault(("send", primary), Durations()).add(census.send)
            operations.setdefault(("settle", secondary), Durations()).add(census.settle)
            labels = {"messaging.operation.name": "forward", "messaging.destination.name": key.queue}
            transfers.append(({**SYSTEM, **labels, "server.address": secondary}, census.process))
        return {
            metric_names.OPERATION_DURATION: [
                (_operation(*which), durations) for which, durations in operations.items()
            ],
            metric_names.PROCESS_DURATION: transfers,
        }

    def close(self) -> None:
        """The last words are said in the background: an exporter that is stuck keeps nobody."""
        ends: list[Callable[[], object]] = [self._provider.shutdown]
        if self.tracing is not None:
            ends.append(self.tracing.close)
        threads = [threading.Thread(target=end, name="telemetry", daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + LAST_WORDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _callback(self, look: Callable[[Telemetry], Seen]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [Observation(value, labels) for value, labels in look(self)]  # noqa: ARG005

    # --- what is observed ----------------------------------------------------------------------------------------

    @property
    def _pairs(self) -> list[PairStatus]:
        return self._observer.status.pairs

    def _forwarded(self) -> Seen:
        for pair in self._pairs:
            for destination in pair.destinations:
                yield destination.forwarded, {"pair": pair.name, "destination": destination.path}

    def _dead_lettered(self) -> Seen:
        for key, standing in self._observer.standings.items():
            for reason, count in standing.stats.reasons.items():
                yield count, {"pair": key.pair, "queue": key.queue, "reason": reason}

    def _possible_duplicates(self) -> Seen:
        for pair in self._pairs:
            for queue in pair.queues:
                yield queue.totals.possible_duplicates, {"pair": pair.name, "queue": queue.name}

    def _in_flight(self) -> Seen:
        for pair in self._pairs:
            for queue in pair.queues:
                yield queue.in_flight, {"pair": pair.name, "queue": queue.name}

    def _backlog_age(self) -> Seen:
        at = self._observer.status.at
        for pair in self._pairs:
            for queue in pair.queues:
                age = 0.0 if queue.oldest is None else max(0.0, (at - queue.oldest).total_seconds())
                yield age, {"pair": pair.name, "queue": queue.name}

    def _backlog_messages(self) -> Seen:
        for pair in self._pairs:
            for queue in pair.queues:
                if queue.left is not None:
                    yield queue.left, {"pair": pair.name, "queue": queue.name}

    def _destination_state(self) -> Seen:
        for pair in self._pairs:
            for destination in pair.destinations:
                paused = destination.state is DestinationState.PAUSED
                now = DestinationState.WAITING if paused else destination.state
                for state in (DestinationState.OPEN, DestinationState.WAITING, DestinationState.CLOSED):
                    labels = {"pair": pair.name, "destination": destination.path, "state": state.value}
                    yield int(state is now), labels

    def _destination_waiting(self) -> Seen:
        at = self._observer.status.at
        for pair in self._pairs:
            for destination in pair.destinations:
                since = destination.since
                waiting = 0.0 if since is None else max(0.0, (at - since).total_seconds())
                yield waiting, {"pair": pair.name, "destination": destination.path}

    def _last_success(self) -> Seen:
        for pair in self._pairs:
            yield (pair.last_success or self._observer.status.started).timestamp(), {"pair": pair.name}

    def _side_connected(self) -> Seen:
        for pair in self._pairs:
            yield int(pair.primary.connected), {"pair": pair.name, "side": "primary"}
            yield int(pair.secondary.connected), {"pair": pair.name, "side": "secondary"}

    def _consumed(self) -> Seen:
        for pair in self._pairs:
            for queue in pair.queues:
                labels = {
                    **SYSTEM,
                    "messaging.operation.name": "receive",
                    "messaging.destination.name": queue.name,
                    "server.address": pair.secondary.host,
                }
                yield queue.totals.received, labels

    def _sent(self) -> Seen:
        counts: Counter[tuple[str, str, str]] = Counter()
        for pair in self._pairs:
            for destination in pair.destinations:
                counts[destination.path, pair.primary.host, ""] += destination.forwarded
                if destination.dead_lettered:
                    counts[destination.path, pair.primary.host, "refused"] += destination.dead_lettered
        for (path, host, error), count in counts.items():
            labels = {"messaging.operation.name": "send", "messaging.destination.name": path, "error.type": error}
            yield count, {**SYSTEM, **labels, "server.address": host}


_OBSERVED: dict[Metric, Callable[[Telemetry], Seen]] = {
    metric_names.SENT_MESSAGES: Telemetry._sent,
    metric_names.CONSUMED_MESSAGES: Telemetry._consumed,
    metric_names.FORWARDED: Telemetry._forwarded,
    metric_names.DEAD_LETTERED: Telemetry._dead_lettered,
    metric_names.POSSIBLE_DUPLICATES: Telemetry._possible_duplicates,
    metric_names.IN_FLIGHT: Telemetry._in_flight,
    metric_names.BACKLOG_AGE: Telemetry._backlog_age,
    metric_names.BACKLOG_MESSAGES: Telemetry._backlog_messages,
    metric_names.DESTINATION_STATE: Telemetry._destination_state,
    metric_names.DESTINATION_WAITING: Telemetry._destination_waiting,
    metric_names.LAST_SUCCESS: Telemetry._last_success,
    metric_names.SIDE_CONNECTED: Telemetry._side_connected,
}


def _operation(name: str, host: str) -> dict[str, str]:
    return {
        **SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": name,
        "server.address": host,
    }


def _otlp() -> ModuleType:
    try:
        from . import otlp
    except ImportError:
        raise OtlpMissing from None
    return otlp
