"""The sender's metrics."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from syphon.sender import changes, telemetry
from syphon.sender.telemetry import Telemetry

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
    recorded = Telemetry("contoso", provider)
    recorded.accepted("orders", "primary", 3)
    recorded.accepted("orders", "backlog", 2)
    recorded.possible_duplicates("orders", 1)
    for change in (
        changes.EntityFailedOver("orders", 60.0, ERROR),
        changes.EntityFailedOver("billing", 60.0, ERROR),
        changes.EntityPinged("orders", ERROR),
        changes.EntityPinged("orders", None),
        changes.EntityReturned("orders", 61.0),
        changes.QueueTakenOut("a", 60.0, ERROR),
        changes.QueueTakenOut("b", 60.0, ERROR),
        changes.QueueTakenBack("a"),
    ):
        recorded.note(change)
    found = values(reader)
    provider.shutdown()

    def value(name: str, **attributes: str) -> Any:
        return found[name, frozenset({"pair": "contoso", **attributes}.items())]

    assert value(telemetry.MESSAGES, entity="orders", side="primary") == 3
    assert value(telemetry.MESSAGES, entity="orders", side="backlog") == 2
    assert value(telemetry.POSSIBLE_DUPLICATES, entity="orders") == 1
    assert value(telemetry.FAILOVERS, entity="billing") == 1
    assert value(telemetry.RETURNS, entity="orders") == 1
    assert value(telemetry.PINGS, entity="orders", result="failed") == 1
    assert value(telemetry.PINGS, entity="orders", result="arrived") == 1
    assert value(telemetry.FAILED_OVER) == 1
    assert value(telemetry.QUEUES_OUT) == 1
