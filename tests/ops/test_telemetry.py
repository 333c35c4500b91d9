"""Metrics: durations that tasks have measured arrive whole, and a collector that is away holds up nobody."""

from __future__ import annotations

import http.server
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from prometheus_client.parser import text_string_to_metric_families

from syphon.config import Config
from syphon.ops import otlp
from syphon.ops.events import RecentEvents
from syphon.ops.observer import Observer
from syphon.ops.telemetry import Telemetry
from syphon.pipeline.census import Census, QueueKey
from syphon.pipeline.desk import Standing
from syphon.pipeline.pauses import Pauses
from tests.ops.served import PAIRS


@contextmanager
def telemetry(endpoint: str | None = None) -> Iterator[Telemetry]:
    config = Config.model_validate({"pairs": PAIRS, "telemetry": {"otlp_endpoint": endpoint}})
    made = Telemetry(config, Observer(config, Pauses(), RecentEvents()))
    try:
        yield made
    finally:
        made.close()


def samples(made: Telemetry, name: str) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(made.prometheus().decode()):
        for sample in family.samples:
            if sample.name == name:
                found[tuple(value for label, value in sorted(sample.labels.items()))] = sample.value
    return found


def test_a_histogram_is_what_tasks_have_counted_all_of_them_together() -> None:  # D7
    with telemetry() as made:
        standings = {}
        for number in range(2):
            census = Census()
            for seconds in (0.02, 0.02, 0.3, 30.0):
                census.process.note(seconds)
                census.send.note(seconds)
            standings[QueueKey("contoso", f"q{number}")] = Standing(census=census)
        made._observer.standings = standings
        assert list(samples(made, "messaging_process_duration_seconds_count").values()) == [4, 4]
        sent = samples(made, "messaging_client_operation_duration_seconds_sum")
        assert sent["send", "send", "servicebus", "contoso.example"] == pytest.approx(60.68)
        buckets = samples(made, "messaging_client_operation_duration_seconds_bucket")
        up_to = {key[0]: value for key, value in buckets.items() if key[1] == "send" and "contoso.example" in key}
        assert [up_to[bound] for bound in ("0.01", "0.025", "0.25", "0.5", "10.0", "+Inf")] == [0, 4, 4, 6, 6, 8]


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what comes, and remembers where it came to."""

    paths: list[str]
    bodies: list[bytes]

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Nothing."""


@contextmanager
def collector() -> Iterator[tuple[str, type[Collector]]]:
    handler = type("Handler", (Collector,), {"paths": [], "bodies": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()


def test_a_collector_gets_the_same_metrics_by_otlp() -> None:
    with collector() as (address, handler):
        with telemetry(address) as made:
            made._provider.force_flush()
        assert set(handler.paths) == {"/v1/metrics"}
        assert b"syphon.side.connected" in handler.bodies[0]
        assert b"syphon.backlog.age" in handler.bodies[0]
        assert b"messaging.client.operation.duration" in handler.bodies[0]


def test_a_collector_with_a_path_of_its_own_keeps_it() -> None:
    with collector() as (address, handler):
        with telemetry(f"{address}/tenant/v1/metrics") as made:
            made._provider.force_flush()
        assert set(handler.paths) == {"/tenant/v1/metrics"}


def test_a_collector_that_is_away_is_told_once_and_metrics_answer_all_the_same(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "TIMEOUT", 0.2)  # it would try again and again until its time is over
    with collector() as (address, _):
        pass  # nobody listens there any more
    exporter = otlp.Exporter(f"{address}/v1/metrics")
    with caplog.at_level(logging.INFO), telemetry() as made:
        assert made.prometheus()
        for _ in range(2):
            assert exporter.export(MetricsData([])) is MetricExportResult.FAILURE
    assert caplog.text.count("metrics do not reach") == 1
    assert "Traceback" not in caplog.text
    exporter.shutdown()
