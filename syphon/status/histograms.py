"""Histograms that the tasks have counted, added to what OpenTelemetry's readers collect.

An OpenTelemetry instrument takes durations one by one: thousands a second, in the driver. The tasks have counted them
already, so this module puts their counts beside the metrics that come from instruments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Histogram,
    HistogramDataPoint,
    MetricReader,
    MetricsData,
    ScopeMetrics,
)
from opentelemetry.sdk.metrics.export import Metric as Exported

from syphon.model import SECONDS_BUCKETS, Durations

from .metric_names import Metric

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
