"""Traces by OpenTelemetry: a few spans for each batch that tasks have traced, under the names of metric_names.py.

Tasks only note times and the senders' trace contexts. The driver makes the spans from these notes afterwards:
executors need no exporter, and a collector that is out of reach does not concern them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags, set_span_in_context

from syphon import __version__
from syphon.backlog import TraceContext
from syphon.config import PairSettings
from syphon.control import Traced
from syphon.transfer import BatchTrace

from . import metric_names
from .metric_names import TracedStep

MOST_WAITING = 100
"""Batches that wait for their spans. The worker's loop makes spans at each turn, five times a second: with this bound
they cost the driver a few percent of a core, however many tasks report."""
NO_PARENT = Context()


class Tracing:
    """Makes spans and hands them to an exporter, which has a thread of its own."""

    def __init__(self, pairs: Sequence[PairSettings], resource: Resource, exporter: SpanExporter) -> None:
        self.waiting: deque[Traced] = deque(maxlen=MOST_WAITING)
        """Batches that tasks have traced and that have no spans yet."""
        self._hosts = {pair.name: (pair.primary.host, pair.secondary.host) for pair in pairs}
        # The senders of the messages have decided already what is traced.
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
        made.set_attribute("messaging.operation.type", step.operation)
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
