"""The names of metrics: alerts and dashboard use only names that OpenTelemetry's exporter for Prometheus makes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from syphon.model.outcomes import SECONDS_BUCKETS
from syphon.status.metric_names import METRICS, OWN, Metric, MetricKind
from tests.support.chart import CHART
from tests.support.tools import run, said

ALERTS = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
TARGET = {"job", "instance", "namespace", "service"}
"""Labels that a scrape gives to every series; the last two if the Prometheus operator has set it up."""
LABELS = {series: {*metric.prometheus_labels, *TARGET, "le"} for metric in METRICS for series in metric.series}
PROMETHEUS_OWN = {"up": TARGET}


def exported(metrics: tuple[Metric, ...] = METRICS) -> str:
    """One value of each metric, as /metrics shows it."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    provider = MeterProvider(metric_readers=[reader])
    meter = provider.get_meter("syphon")
    for metric in metrics:
        labels = dict.fromkeys(metric.labels, "x")
        described = {"unit": metric.unit, "description": metric.help}
        match metric.kind:
            case MetricKind.COUNTER:
                meter.create_counter(metric.name, **described).add(1, labels)
            case MetricKind.GAUGE:
                meter.create_gauge(metric.name, **described).set(1, labels)
            case MetricKind.HISTOGRAM:
                meter.create_histogram(
                    metric.name, **described, explicit_bucket_boundaries_advisory=SECONDS_BUCKETS
                ).record(1, labels)
    text = generate_latest(registry).decode()
    provider.shutdown()
    return text


def test_the_exporter_makes_the_names_kinds_and_labels_of_the_list() -> None:
    made = {
        sample.name: (family.type, set(sample.labels) - {"le"})
        for family in text_string_to_metric_families(exported())
        for sample in family.samples
    }
    assert made == {
        series: (metric.kind.value, set(metric.prometheus_labels)) for metric in METRICS for series in metric.series
    }


def test_promtool_has_no_objection() -> None:
    checked = run("promtool", "check", "metrics", given=exported())
    assert (checked.returncode, said(checked)) == (0, "")


def test_promtool_objects_to_a_bad_metric() -> None:
    bad = Metric("syphon.age.milliseconds", MetricKind.GAUGE, "1", "", ())
    checked = run("promtool", "check", "metrics", given=exported((bad,)))
    assert checked.returncode != 0
    assert "no help text" in said(checked)
    assert "base unit" in said(checked)


def test_names_and_labels_are_unique_and_none_carries_a_message_id() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert len(set(metric.labels)) == len(metric.labels)
        assert not [label for label in metric.labels if "id" in re.split(r"[._]", label)]


# --- queries of rules and dashboard ----------------------------------------------------------------------------------


def asked(expression: Any) -> Iterator[promql_parser.VectorSelector]:
    """All selectors of a query, however deep."""
    found: list[promql_parser.VectorSelector] = []

    def visit(part: Any) -> bool:
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        return True

    promql_parser.walk(expression, visit)
    yield from found


def unknown(query: str) -> list[str]:
    """The names in a query that no worker exports."""
    known = LABELS | PROMETHEUS_OWN
    problems = []
    for selector in asked(promql_parser.parse(query)):
        if selector.name not in known:
            problems.append(f"no metric {selector.name}")
            continue
        problems += [
            f"{selector.name} has no label {matcher.name}"
            for matcher in selector.matchers.matchers
            if matcher.name not in known[selector.name]
        ]
    grouped = {label.strip() for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", query) for label in labels.split(",")}
    problems += [f"nothing has the label {label}" for label in grouped - set().union(*known.values())]
    return problems


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            (query,) = re.findall(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            yield f"count by ({query[1]}) ({query[0]})"


RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_an_alert_uses_metrics_that_workers_export(rule: dict[str, Any]) -> None:
    assert unknown(rule["expr"]) == []
    used = {word for text in rule["annotations"].values() for word in re.findall(r"\$labels\.(\w+)", text)}
    assert used <= {label.strip() for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in by.split(",")}


@pytest.mark.parametrize("query", sorted(set(dashboard_queries())))
def test_the_dashboard_uses_metrics_that_workers_export(query: str) -> None:
    assert unknown(query) == []


def test_a_query_for_an_unknown_metric_is_found() -> None:
    assert unknown("sum by (pear) (rate(syphon_messages_forwarded[5m]))") == [
        "no metric syphon_messages_forwarded",
        "nothing has the label pear",
    ]
    assert unknown('up{job="syphon"} and syphon_backlog_age_seconds{destination="a"}') == [
        "syphon_backlog_age_seconds has no label destination"
    ]


def test_every_metric_of_ours_is_on_the_dashboard_or_in_an_alert() -> None:
    queries = " ".join([*dashboard_queries(), *(rule["expr"] for rule in RULES)])
    assert [metric.name for metric in OWN if metric.prometheus not in queries] == []
