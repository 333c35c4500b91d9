"""Exports metrics and traces by OTLP over HTTP, as an option (`syphon-servicebus[otlp]`).

The exporters have threads of their own, so that a collector that is out of reach does not slow the worker. This module
is loaded only when an endpoint is set, because its packages are optional.
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

EXPORT_EVERY = 15.0
"""Seconds between exports of metrics."""
TIMEOUT = 5.0


class CollectorLog:
    """Logs once that a collector is out of reach, and once that it is back.

    The exporters themselves would log every attempt, with a stack trace.
    """

    def __init__(self, address: str, what: str, meanwhile: str) -> None:
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._address = address
        self._what = what
        self._meanwhile = meanwhile
        self._is_lost = False

    def tried(self, arrived: bool) -> None:
        if self._is_lost and arrived:
            log.info("%s reach the collector %s again", self._what, self._address)
        elif not (self._is_lost or arrived):
            log.warning(
                "%s do not reach the collector %s; retrying. %s",
                self._what,
                self._address,
                self._meanwhile,
            )
        self._is_lost = not arrived


class MetricExporter(OTLPMetricExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=TIMEOUT)
        self._collector_log = CollectorLog(endpoint, "metrics", "/metrics still answers")

    def export(self, *arguments: Any, **options: Any) -> MetricExportResult:
        result = super().export(*arguments, **options)
        self._collector_log.tried(result is MetricExportResult.SUCCESS)
        return result


class TraceExporter(OTLPSpanExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=TIMEOUT)
        self._collector_log = CollectorLog(endpoint, "traces", "Traces are lost until it is back")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._collector_log.tried(result is SpanExportResult.SUCCESS)
        return result


class OtlpReader(WithHistograms, PeriodicExportingMetricReader):
    """Collects and exports all metrics periodically, in a thread of its own."""


def reader(endpoint: str, look: Look) -> OtlpReader:
    return OtlpReader(look, MetricExporter(address(endpoint, "metrics")), export_interval_millis=EXPORT_EVERY * 1000)


def trace_exporter(endpoint: str) -> TraceExporter:
    return TraceExporter(address(endpoint, "traces"))


def address(endpoint: str, signal: str) -> str:
    """The URL where a collector takes metrics or traces.

    An endpoint without a path gets the protocol's own paths. An endpoint with a path is where it takes metrics.
    """
    endpoint = endpoint.rstrip("/")
    if endpoint.count("/") == 2:
        return f"{endpoint}/v1/{signal}"
    return endpoint.removesuffix("/metrics") + f"/{signal}" if signal != "metrics" else endpoint
