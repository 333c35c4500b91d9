"""Metrics: all durations that tasks have measured arrive, and an unreachable collector delays nothing."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from prometheus_client.parser import text_string_to_metric_families

from syphon.config import Config
from syphon.control.totals import QueueTotals
from syphon.model.outcomes import QueueKey, Stats
from syphon.status import otlp
from syphon.status.logs import RecentEvents
from syphon.status.observer import Observer
from syphon.status.telemetry import Telemetry
from syphon.time_budget import OBSERVE_EVERY
from syphon.worker.pauses import Pauses
from tests.support.otlp_collector import collector
from tests.support.status_server import PAIRS


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


def test_a_histogram_adds_up_the_counts_of_all_tasks() -> None:  # D7
    with telemetry() as made:
        queue_totals = {}
        for number in range(2):
            stats = Stats()
            for seconds in (0.02, 0.02, 0.3, 30.0):
                stats.process.count(seconds)
                stats.send.count(seconds)
            queue_totals[QueueKey("contoso", f"q{number}")] = QueueTotals(stats=stats)
        made._observer.queue_totals = queue_totals
        assert list(samples(made, "messaging_process_duration_seconds_count").values()) == [4, 4]
        sent = samples(made, "messaging_client_operation_duration_seconds_sum")
        assert sent["send", "send", "servicebus", "contoso.example"] == pytest.approx(60.68)
        buckets = samples(made, "messaging_client_operation_duration_seconds_bucket")
        up_to = {key[0]: value for key, value in buckets.items() if key[1] == "send" and "contoso.example" in key}
        assert [up_to[bound] for bound in ("0.01", "0.025", "0.25", "0.5", "10.0", "+Inf")] == [0, 4, 4, 6, 6, 8]


def test_a_ledger_that_cannot_be_written_and_the_start_of_the_worker_are_metrics() -> None:
    with telemetry() as made:
        status = made._observer.status
        assert samples(made, "syphon_ledger_failing") == {(): 0}
        assert samples(made, "syphon_started_timestamp_seconds") == {(): status.started.timestamp()}
        made._observer.status = status.model_copy(update={"ledger_error": "no space left on device"})
        assert samples(made, "syphon_ledger_failing") == {(): 1}


def test_a_collector_gets_the_same_metrics_by_otlp() -> None:
    with collector() as server:
        with telemetry(server.url) as made:
            made._provider.force_flush()
        assert server.paths == {"/v1/metrics"}
        for name in (b"syphon.side.connected", b"syphon.backlog.age", b"messaging.client.operation.duration"):
            assert name in server.got[0][1]


def test_a_collector_with_a_path_of_its_own_keeps_it() -> None:
    with collector() as server:
        with telemetry(f"{server.url}/tenant/v1/metrics") as made:
            made._provider.force_flush()
        assert server.paths == {"/tenant/v1/metrics"}
    assert otlp.address("http://a/tenant/v1/metrics/", "traces") == "http://a/tenant/v1/traces"
    assert otlp.address("http://a/", "traces") == "http://a/v1/traces"


def test_an_unreachable_collector_is_logged_once_and_metrics_still_answer(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "EXPORT_TIMEOUT", 0.2)  # the exporter retries until its time is over
    with socket.socket() as taken, caplog.at_level(logging.INFO), telemetry() as made:
        taken.bind(("127.0.0.1", 0))  # no process listens there, and none can
        exporter = otlp.MetricExporter(f"http://127.0.0.1:{taken.getsockname()[1]}/v1/metrics")
        assert made.prometheus()
        for _ in range(2):
            assert exporter.export(MetricsData([])) is MetricExportResult.FAILURE
    assert caplog.text.count("metrics do not reach") == 1
    assert "Traceback" not in caplog.text
    exporter.shutdown()


def test_metrics_are_written_once_for_each_look_at_the_worker() -> None:
    with telemetry() as made:
        clock = made._observer._now() + 1.0
        made._observer._now = lambda: clock
        first = made.prometheus()
        assert made.prometheus() is first
        clock += OBSERVE_EVERY
        assert made.prometheus() is not first
