"""Metrics and traces by OTLP over HTTP, as an option (`syphon[otlp]`): from threads of their own, so that a collector
that is away slows nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from .histograms import Look, WithHistograms

log = logging.getLogger(__name__)

EVERY = 15.0
"""Seconds between exports of metrics."""
TIMEOUT = 5.0


class Collector:
    """Says once that a collector is away, and once that it is back. Exporters say it at each try, with a trace."""

    def __init__(self, address: str, what: str, meanwhile: str) -> None:
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._address = address
        self._what = what
        self._meanwhile = meanwhile
        self._is_away = False

    def tried(self, arrived: bool) -> None:
        if self._is_away and arrived:
            log.info("%s reach %s again", self._what, self._address)
        elif not (self._is_away or arrived):
            log.warning("%s do not reach %s; it is tried again. %s", self._what, self._address, self._meanwhile)
        self._is_away = not arrived


class MetricExporter(OTLPMetricExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=TIMEOUT)
        self._collector = Collector(endpoint, "metrics", "/metrics answers meanwhile")

    def export(self, *arguments: Any, **options: Any) -> MetricExportResult:
        result = super().export(*arguments, **options)
        self._collector.tried(result is MetricExportResult.SUCCESS)
        return result


class TraceExporter(OTLPSpanExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=TIMEOUT)
        self._collector = Collector(endpoint, "traces", "those of the meantime are lost")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._collector.tried(result is SpanExportResult.SUCCESS)
        return result


class OtlpReader(WithHistograms, PeriodicExportingMetricReader):
    """Has a thread of its own."""


def reader(endpoint: str, look: Look) -> OtlpReader:
    """What exports all metrics now and then."""
    return OtlpReader(look, MetricExporter(address(endpoint, "metrics")), export_interval_millis=EVERY * 1000)


def trace_exporter(endpoint: str) -> TraceExporter:
    return TraceExporter(address(endpoint, "traces"))


def address(endpoint: str, signal: str) -> str:
    """Where a collector takes metrics, or traces. A host alone has the protocol's own paths; one with a path has said
    where it takes metrics."""
    endpoint = endpoint.rstrip("/")
    if endpoint.count("/") == 2:
        return f"{endpoint}/v1/{signal}"
    return endpoint.removesuffix("/metrics") + f"/{signal}" if signal != "metrics" else endpoint
