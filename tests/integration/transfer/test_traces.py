"""Batches are traced if traces are wanted and a sender records: with true times, and a bounded number of them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from syphon.amqp import Map, Section, section_bytes
from syphon.backlog import TraceContext
from syphon.transfer import traces
from syphon.transfer.traces import BatchTrace, Traces
from tests.integration.transfer.conftest import TwoNamespaces


def sent(number: int, path: str = "orders", recorded: bool = True) -> ServiceBusMessage:
    properties: dict[str | bytes, Any] = {"x-ms-path": path, "traceparent": f"00-{number:032x}-{1:016x}-0{recorded:d}"}
    return ServiceBusMessage(f"body {number}", message_id=f"m{number}", application_properties=properties)


def traced(namespaces: TwoNamespaces, wanted: bool = True) -> tuple[Traces, tuple[BatchTrace, ...]]:
    """Runs a pump until the backlog is empty; returns its traces."""
    with namespaces.pump() as (pump, _):
        pump.traces.are_wanted = wanted
        namespaces.finish(pump)
    return pump.traces, pump.traces.take()


def senders(found: tuple[BatchTrace, ...]) -> list[int]:
    return sorted(int(sender.trace_id, 16) for trace in found for sender in trace.senders)


def test_a_batch_is_traced_from_arrival_to_settlement_with_the_senders_that_record(namespaces: TwoNamespaces) -> None:
    namespaces.queue("orders")
    before = time.time_ns()
    namespaces.put(*(sent(number, recorded=number % 2 == 0) for number in range(2, 12)))
    _, found = traced(namespaces)
    after = time.time_ns()
    assert sum(trace.messages for trace in found) == 10
    assert senders(found) == [2, 4, 6, 8, 10]
    assert found[0].senders[0] == TraceContext(f"{2:032x}", f"{1:016x}")
    for trace in found:
        assert (trace.destination, trace.error, trace.unsettled) == ("orders", "", 0)
        assert trace.settled is not None
        assert before <= trace.received <= trace.sent <= trace.answered <= trace.settled <= after


def test_a_refusal_is_traced_as_one_and_what_arrives_after_all_is_traced_again(
    namespaces: TwoNamespaces,
) -> None:  # S4, D6
    namespaces.queue("orders")
    namespaces.put(*(sent(number) for number in range(1, 6)))
    refused = {"x-ms-path": "orders", "traceparent": f"00-{99:032x}-{1:016x}-01"}
    namespaces.put_raw(
        section_bytes(Section.PROPERTIES, ["x" * 129]) + section_bytes(Section.APPLICATION_PROPERTIES, Map.of(refused))
    )
    _, found = traced(namespaces)
    arrived = tuple(trace for trace in found if not trace.error)
    assert senders(arrived) == [1, 2, 3, 4, 5]
    errors = [trace for trace in found if trace.error]
    assert 99 in senders(tuple(errors))
    assert {(trace.error, trace.settled) for trace in errors} == {("com.microsoft:argument-error", None)}


@pytest.mark.parametrize(("wanted", "recorded"), [(False, True), (True, False)])
def test_nothing_is_traced_unless_it_is_wanted_and_recorded(
    namespaces: TwoNamespaces, wanted: bool, recorded: bool
) -> None:
    namespaces.queue("orders")
    namespaces.put(sent(1, recorded=recorded))
    assert traced(namespaces, wanted)[1] == ()


def test_few_are_kept_until_they_are_taken_and_few_senders_of_each(
    namespaces: TwoNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "MOST_TRACED", 3)
    monkeypatch.setattr(traces, "MOST_LINKS", 2)
    destinations = [f"d{number}" for number in range(5)]
    for path in destinations:
        namespaces.queue(path)
    namespaces.put(*(sent(number, path) for number in range(1, 6) for path in destinations))
    book, found = traced(namespaces)
    assert len(found) == 3
    assert max(len(trace.senders) for trace in found) <= 2
    assert book.take() == ()
    assert book._open == 0
