"""Exports metrics and traces by OTLP over HTTP, as an option (`syphon-servicebus[otlp]`).

The exporters have threads of their own, so that an unreachable collector does not slow the worker. This module is
loaded only when an endpoint is set, because its packages are optional.

Tasks only record times and the senders' trace contexts. The driver makes a few spans from that for each batch, under
the names of metric_names.py: executors need no exporter.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, set_span_in_context

from syphon import __version__
from syphon.backlog import TraceContext
from syphon.config import PairSettings
from syphon.control import Traced
from syphon.time_budget import EXPORT_EVERY, EXPORT_TIMEOUT
from syphon.transfer import BatchTrace

from . import metric_names
from .metric_names import TracedStep
from .telemetry import Look, WithHistograms

MOST_WAITING = 100
"""Batches that wait for their spans. The worker's loop makes spans at each turn, five times per second: with this bound
they cost the driver a few percent of a core, however many tasks report."""
NO_PARENT = Context()


class Tracing:
    """Makes spans and hands them to an exporter, which has a thread of its own."""

    def __init__(self, pairs: Sequence[PairSettings], resource: Resource, exporter: SpanExporter) -> None:
        self.waiting: deque[Traced] = deque(maxlen=MOST_WAITING)
        """Batches that tasks have traced and that have no spans yet."""
        self._hosts = {pair.name: (pair.primary.host, pair.secondary.host) for pair in pairs}
        # The senders of the messages have already decided what is traced.
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("syphon", __version__)

    def export(self) -> None:
        """Makes the spans of all waiting batches."""
        while self.waiting:
            pair, trace = self.waiting.popleft()
            primary, secondary = self._hosts[pair]
            links = [_link(sender) for sender in trace.senders]
            ended = trace.answered if trace.settled is None else trace.settled
            to_primary = {
                "syphon.pair": pair,
                "messaging.destination.name": trace.destination,
                "server.address": primary,
            }
            to_backlog = {"syphon.pair": pair, "messaging.destination.name": trace.queue, "server.address": secondary}
            whole = self._span(metric_names.PROCESS, to_backlog, trace, trace.received, ended, NO_PARENT, links)
            self._span(metric_names.SEND, to_primary, trace, trace.sent, trace.answered, whole)
            if trace.settled is not None:
                self._span(metric_names.SETTLE, to_backlog, trace, trace.answered, trace.settled, whole)

    def close(self) -> None:
        self.export()
        self._provider.shutdown()

    def _span(
        self,
        step: TracedStep,
        where: dict[str, str],
        trace: BatchTrace,
        began: int,
        ended: int,
        within: Context,
        links: Sequence[Link] = (),
    ) -> Context:
        """Makes one finished span. Returns the context for its children."""
        name = f"{step.operation} {where['messaging.destination.name']}"
        made = self._tracer.start_span(name, within, SpanKind[step.kind.upper()], where, links, began)
        made.set_attributes(metric_names.SYSTEM)
        made.set_attribute("messaging.operation.name", step.operation)
        made.set_attribute("messaging.operation.type", step.type)
        if trace.messages > 1:
            made.set_attribute("messaging.batch.message_count", trace.messages)
        if trace.error:
            made.set_attribute("error.type", trace.error)
            made.set_status(StatusCode.ERROR)
        made.end(ended)
        return set_span_in_context(made, NO_PARENT)


def _link(sender: TraceContext) -> Link:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return Link(SpanContext(int(sender.trace_id, 16), int(sender.span_id, 16), True, flags))


log = logging.getLogger(__name__)


class CollectorLog:
    """Logs once that a collector is unreachable, and once that it is reachable again.

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
        super().__init__(endpoint=endpoint, timeout=EXPORT_TIMEOUT)
        self._collector_log = CollectorLog(endpoint, "metrics", "/metrics still answers")

    def export(self, *arguments: Any, **options: Any) -> MetricExportResult:
        result = super().export(*arguments, **options)
        self._collector_log.tried(result is MetricExportResult.SUCCESS)
        return result


class TraceExporter(OTLPSpanExporter):
    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=EXPORT_TIMEOUT)
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
