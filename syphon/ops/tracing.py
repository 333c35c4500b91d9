"""Traces by OpenTelemetry: a few spans for each batch that tasks have traced, under the names of metric_names.py.

Tasks only note times and whose messages they carry. Spans are made here, in the driver, afterwards: executors need no
exporter, and a collector that is away is no concern of theirs.
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
from syphon.spark import Traced
from syphon.transfer import BatchTrace

from . import metric_names
from .metric_names import Span

MOST_WAITING = 100
"""Batches that no spans were made of yet. They are made at each turn of the worker's loop, five times a second: so many
tasks may report as there are, it costs the driver a few percent of a core."""
NOWHERE = Context()


class Tracing:
    """Makes spans, and hands them to an exporter, which has a thread of its own."""

    def __init__(self, pairs: Sequence[PairSettings], resource: Resource, exporter: SpanExporter) -> None:
        self.waiting: deque[Traced] = deque(maxlen=MOST_WAITING)
        """What tasks have traced."""
        self._hosts = {pair.name: (pair.primary.host, pair.secondary.host) for pair in pairs}
        # It has been decided already what is traced: by who sent the messages.
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("syphon", __version__)

    def export(self) -> None:
        """Makes spans of what is waiting."""
        while self.waiting:
            (pair, queue), trace = self.waiting.popleft()
            primary, secondary = self._hosts[pair]
            links = [_link(sender) for sender in trace.senders]
            ended = trace.answered if trace.settled is None else trace.settled
            home = {"syphon.pair": pair, "messaging.destination.name": trace.destination, "server.address": primary}
            away = {"syphon.pair": pair, "messaging.destination.name": queue, "server.address": secondary}
            whole = self._span(metric_names.PROCESS, away, trace, trace.received, ended, NOWHERE, links)
            self._span(metric_names.SEND, home, trace, trace.sent, trace.answered, whole)
            if trace.settled is not None:
                self._span(metric_names.SETTLE, away, trace, trace.answered, trace.settled, whole)

    def close(self) -> None:
        self.export()
        self._provider.shutdown()

    def _span(
        self,
        span: Span,
        where: dict[str, str],
        trace: BatchTrace,
        began: int,
        ended: int,
        within: Context,
        links: Sequence[Link] = (),
    ) -> Context:
        """One that is over. What it returns is where its children belong."""
        name = f"{span.operation} {where['messaging.destination.name']}"
        made = self._tracer.start_span(name, within, SpanKind[span.kind.name], where, links, began)
        made.set_attributes(metric_names.SYSTEM)
        made.set_attribute("messaging.operation.name", span.operation)
        made.set_attribute("messaging.operation.type", span.operation)
        if trace.messages > 1:
            made.set_attribute("messaging.batch.message_count", trace.messages)
        if trace.error:
            made.set_attribute("error.type", trace.error)
            made.set_status(StatusCode.ERROR)
        made.end(ended)
        return set_span_in_context(made, NOWHERE)


def _link(sender: TraceContext) -> Link:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return Link(SpanContext(int(sender.trace_id, 16), int(sender.span_id, 16), True, flags))
