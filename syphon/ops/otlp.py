"""Metrics by OTLP over HTTP, as an option (`syphon[otlp]`): from a thread of its own, so that a collector that is away
slows nothing.
"""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader

from .histograms import Look, WithHistograms

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between exports."""
TIMEOUT = 5.0


class Exporter(OTLPMetricExporter):
    """Says once that a collector is away, and once that it is back. Its own words come at each try, with a trace."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=TIMEOUT)
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._collector = endpoint
        self._is_away = False

    def export(self, *arguments: Any, **options: Any) -> MetricExportResult:
        result = super().export(*arguments, **options)
        was_away, self._is_away = self._is_away, result is not MetricExportResult.SUCCESS
        if self._is_away and not was_away:
            log.warning("metrics do not reach %s; next try in %.0f s. /metrics answers", self._collector, EVERY)
        elif was_away and not self._is_away:
            log.info("metrics reach %s again", self._collector)
        return result


class OtlpReader(WithHistograms, PeriodicExportingMetricReader):
    """Has a thread of its own."""


def reader(endpoint: str, look: Look) -> OtlpReader:
    """What exports all metrics now and then."""
    address = endpoint.rstrip("/")
    if address.count("/") == 2:  # a host alone: the path is the protocol's own
        address += "/v1/metrics"
    return OtlpReader(look, Exporter(address), export_interval_millis=EVERY * 1000)
