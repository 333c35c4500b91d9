"""Messages outside the filter stay in the backlog, and the counters say so."""

from __future__ import annotations

import time
from dataclasses import replace

from syphon.model import TimeToLive
from syphon.model.entity_path import PathPatterns
from syphon.model.message_filter import MessageFilter
from syphon.model.outcomes import Result
from syphon.sql import Where
from tests.integration.transfer.conftest import BACKLOG, PATIENT, TwoNamespaces, aliased


def test_only_matching_destinations_are_served(namespaces: TwoNamespaces) -> None:  # X2
    for name in ("orders", "billing/paid", "billing/open"):
        namespaces.queue(name)
    namespaces.put(
        *(aliased("x", path) for path in ("orders", "billing/paid", "billing/open", "gone", "", "a/$management"))
    )
    pump, outcomes = namespaces.run(replace(PATIENT, messages=MessageFilter(PathPatterns.of(["/Billing/*"]))))
    tally = pump.counters
    assert (tally.received, tally.forwarded, tally.dead_lettered, tally.left, tally.outside) == (6, 2, 0, 4, 4)
    assert {(o.destination, o.reason) for o in outcomes if o.result is Result.LEFT} == {
        ("orders", "outside the filter"),
        ("gone", "outside the filter"),
        ("", "outside the filter"),
        ("a/$management", "outside the filter"),
    }
    assert namespaces.active(BACKLOG, "contoso-dr") == 4
    assert namespaces.dead(BACKLOG) == 0


def test_only_the_selected_time_is_served(namespaces: TwoNamespaces) -> None:  # X2
    namespaces.queue("orders")
    namespaces.put(aliased("old", "orders"), aliased("", ""))
    (old, *_) = namespaces.emulator.call(
        lambda: [m.enqueued_at for m in namespaces.secondary.message_queue(BACKLOG).peek(0, 9)]
    )
    namespaces.wait(lambda: time.time() * 1000 > old + 100)
    namespaces.put(aliased("new", "orders"))
    pump, _ = namespaces.run(replace(PATIENT, messages=MessageFilter(after=old + 50)))
    assert (pump.counters.forwarded, pump.counters.dead_lettered, pump.counters.outside) == (1, 0, 2)
    assert [str(message) for message in namespaces.take("orders", 1)] == ["new"]


def test_only_messages_for_which_the_expression_is_true_are_served(namespaces: TwoNamespaces) -> None:  # D23
    namespaces.queue("orders")
    urgent, normal = ({"priority": priority} for priority in ("high", "low"))
    namespaces.put(
        aliased("one", "orders", application_properties=urgent),
        aliased("two", "orders", application_properties=normal),
        aliased("three", "", application_properties=normal),
    )
    where = Where("priority = 'high' AND [x-ms-path] = 'orders'")
    pump, _ = namespaces.run(replace(PATIENT, messages=MessageFilter(where=where)))
    assert (pump.counters.forwarded, pump.counters.dead_lettered, pump.counters.outside) == (1, 0, 2)
    assert [str(message) for message in namespaces.take("orders", 1)] == ["one"]


def test_what_has_expired_is_dead_lettered_if_its_destination_matches(namespaces: TwoNamespaces) -> None:  # M5
    for path in ("orders", "billing"):
        namespaces.put(aliased("late", path, application_properties={"x-ms-timetolive": 1}))
    pump, outcomes = namespaces.run(
        replace(PATIENT, messages=MessageFilter(PathPatterns.of(["orders"])), ttl=TimeToLive.REMAINING)
    )
    assert (pump.counters.dead_lettered, pump.counters.outside) == (1, 1)
    assert "Expired" in next(outcome.reason for outcome in outcomes if outcome.result is Result.DEAD_LETTERED)
