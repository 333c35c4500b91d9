"""The metrics of a pair: each event is counted."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from syphon.sender import events
from syphon.sender.events import SenderMetrics

ERROR = OSError("gone")


def values(reader: InMemoryMetricReader) -> dict[tuple[str, frozenset[tuple[str, Any]]], Any]:
    data: Any = reader.get_metrics_data()
    return {
        (metric.name, frozenset(point.attributes.items())): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_everything_that_changes_can_be_read_from_the_metrics() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = SenderMetrics("contoso", provider)
    metrics.accepted("orders", "primary", 3)
    metrics.accepted("orders", "backlog", 2)
    metrics.possible_duplicates("orders", 1)
    for change in (
        events.EntityFailedOver("orders", 60.0, ERROR),
        events.EntityFailedOver("billing", 60.0, ERROR),
        events.EntityPinged("orders", ERROR),
        events.EntityPinged("orders", None),
        events.EntityReturned("orders", 61.0),
        events.QueueTakenOut("a", 60.0, ERROR),
        events.QueueTakenOut("b", 60.0, ERROR),
        events.QueueTakenBack("a"),
    ):
        metrics.record(change)
    found = values(reader)
    provider.shutdown()

    def value(name: str, **attributes: str) -> Any:
        return found[name, frozenset({"pair": "contoso", **attributes}.items())]

    assert value(events.MESSAGES, entity="orders", side="primary") == 3
    assert value(events.MESSAGES, entity="orders", side="backlog") == 2
    assert value(events.POSSIBLE_DUPLICATES, entity="orders") == 1
    assert value(events.FAILOVERS, entity="billing") == 1
    assert value(events.RETURNS, entity="orders") == 1
    assert value(events.PINGS, entity="orders", result="failed") == 1
    assert value(events.PINGS, entity="orders", result="arrived") == 1
    assert value(events.FAILED_OVER) == 1
    assert value(events.QUEUES_OUT) == 1
