"""Traces from a worker in a process of its own, on real Spark, to a real collector; and its end when there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from syphon.amqp import Map, Properties, Section, Value, data_section, properties_bytes, section_bytes
from syphon.config import Config
from syphon.control.slot_control import Traced
from syphon.status import metric_names
from syphon.status.logs import RecentEvents
from syphon.status.observer import Observer
from syphon.status.telemetry import Telemetry
from syphon.transfer.traces import BatchTrace
from syphon.worker.pauses import Pauses
from tests.faults.checker import imprint
from tests.faults.environment import PRIMARY, QUEUE, Site, site
from tests.faults.messages import ORDERS, Input, made
from tests.support.otlp_collector import Collector, collector
from tests.support.processes import Running
from tests.support.status_server import PAIRS
from tests.support.waiting import eventually

pytestmark = [pytest.mark.timeout(300)]

BODY = b"a confidential body"
OPERATIONS = [span.operation for span in metric_names.TRACED_STEPS]


def sent(number: int) -> Input:
    """A message from a sender that records its traces, in the ways of Azure's SDKs."""
    context = f"00-{number:032x}-{number:016x}-01"
    application: dict[str, Value] = {"traceparent": context, "Diagnostic-Id": context, "tracestate": "vendor=1"}
    original = (
        properties_bytes(Properties(message_id=f"identity-{number}"))
        + section_bytes(Section.APPLICATION_PROPERTIES, Map.of(application))
        + data_section(BODY)
    )
    return made(ORDERS, original, f"identity-{number}")


def patient(place: Site, endpoint: str) -> Running:
    """A worker that listens. Its exporters would wait for a collector for hours, if the worker waited for them."""
    config = place.config(telemetry={"otlp_endpoint": endpoint, "traces": True})
    running = Running(["run", "-c", str(config)], place.folder, module="tests.support.slow_exporters")
    place.running.append(running)
    running.until("listening on")
    return running


def attributes(span: Span) -> dict[str, str | int]:
    found: dict[str, str | int] = {}
    for pair in span.attributes:
        found[pair.key] = pair.value.string_value or pair.value.int_value
    return found


def has_arrived(place: Site, number: int) -> bool:
    return any(f"identity-{number}".encode() in payload for payload in place.contents(PRIMARY, ORDERS))


def links(server: Collector) -> set[tuple[str, str]]:
    return {(link.trace_id.hex(), link.span_id.hex()) for span in server.spans() for link in span.links}


def are_whole(spans: list[Span]) -> bool:
    """Whether each trace has all its spans: an exporter may be at work while they are made."""
    return len(spans) == len(OPERATIONS) * len({span.trace_id for span in spans})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("tracing")) as found:
        yield found


def test_the_batch_that_forwarded_a_message_links_to_its_senders_trace(place: Site) -> None:  # D7, M2
    inputs = [sent(number) for number in range(1, 11)]
    with collector() as server:
        worker = patient(place, server.url)
        place.load(inputs)
        eventually(lambda: len(links(server)) == 10 and are_whole(server.spans()), what=lambda: worker.said)
        spans = {operation: [s for s in server.spans() if s.name.startswith(operation)] for operation in OPERATIONS}
        raw = b"".join(body for _, body in server.got)
    # The collector has gone: its port is closed.
    assert worker.stop()[0] == 0, worker.said
    assert links(server) == {(f"{number:032x}", f"{number:016x}") for number in range(1, 11)}
    for whole in spans["process"]:
        (send,) = (span for span in spans["send"] if span.trace_id == whole.trace_id)
        (settle,) = (span for span in spans["complete"] if span.trace_id == whole.trace_id)
        assert (whole.name, send.name, settle.name) == (f"process {QUEUE}", "send orders", f"complete {QUEUE}")
        assert (whole.parent_span_id, send.parent_span_id, settle.parent_span_id) == (b"", whole.span_id, whole.span_id)
        assert (whole.kind, send.kind, settle.kind) == (Span.SPAN_KIND_CONSUMER, *[Span.SPAN_KIND_CLIENT] * 2)
        times = [
            whole.start_time_unix_nano,
            send.start_time_unix_nano,
            send.end_time_unix_nano,
            settle.start_time_unix_nano,
            settle.end_time_unix_nano,
            whole.end_time_unix_nano,
        ]
        assert times == sorted(times)
        assert str(attributes(send)["server.address"]) in place.primary
        assert str(attributes(whole)["server.address"]) in place.secondary
        for span in (whole, send, settle):
            assert set(attributes(span)) <= set(metric_names.SPAN_ATTRIBUTES)
            assert attributes(span)["syphon.pair"] == "contoso"
    arrived = place.contents(PRIMARY, ORDERS)
    assert sorted(map(imprint, arrived)) == sorted(imprint(each.original) for each in inputs)
    assert BODY not in raw
    assert b"identity-" not in raw
    assert "Traceback" not in worker.said


def test_a_collector_that_never_answers_delays_neither_messages_nor_the_end(place: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        worker = patient(place, f"http://127.0.0.1:{hole.getsockname()[1]}")
        place.load([sent(77)])
        call, _ = hole.accept()
        with call:  # an exporter waits for an answer now
            eventually(lambda: has_arrived(place, 77), what=lambda: worker.said)
            assert worker.stop()[0] == 0, worker.said


def test_a_refused_batch_is_a_span_with_an_error_and_has_no_settlement() -> None:
    with collector() as server:
        config = Config.model_validate({"pairs": PAIRS, "telemetry": {"otlp_endpoint": server.url, "traces": True}})
        telemetry = Telemetry(config, Observer(config, Pauses(), RecentEvents()))
        assert telemetry.tracing is not None
        trace = BatchTrace("orders", 1, [], 1000, 2000, 3000, "amqp:not-found", queue="q")
        telemetry.tracing.waiting.append(Traced("contoso", trace))
        telemetry.tracing.close()
        whole, send = sorted(server.spans(), key=lambda span: span.name)
        telemetry.close()
    assert (whole.name, send.name, whole.end_time_unix_nano) == ("process q", "send orders", 3000)
    for span in (whole, send):
        assert span.status.code == Status.STATUS_CODE_ERROR
        assert attributes(span)["error.type"] == "amqp:not-found"
        assert "messaging.batch.message_count" not in attributes(span)
