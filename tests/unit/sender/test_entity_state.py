"""The failover state machine, on times that are just numbers (F2, F5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from syphon.sender.entity_state import TRANSITIONS, EntityEvent, EntityState, PrimaryEntity
from syphon.sender.events import Change, EntityFailedOver, EntityPinged, EntityReturned

ERROR, OTHER = OSError("gone"), OSError("still gone")


def orders(failover_interval: float = 60.0, ping_interval: float = 60.0) -> PrimaryEntity:
    return PrimaryEntity("orders", failover_interval, ping_interval)


def fail(entity: PrimaryEntity, now: float, error: Exception = ERROR) -> list[Change]:
    return list(entity.failed(error, now))


def test_a_first_failure_starts_the_timer_and_changes_nothing_else() -> None:  # F2
    entity = orders()
    assert fail(entity, 100.0) == []
    assert entity.state is EntityState.DOUBTFUL
    assert entity.because is ERROR
    assert entity.due() == 160.0


def test_it_fails_over_when_the_interval_has_passed_without_a_success() -> None:  # F2
    entity = orders()
    fail(entity, 100.0)
    assert list(entity.check(159.9)) == []
    assert list(entity.check(160.0)) == [EntityFailedOver("orders", 60.0, ERROR)]
    assert entity.is_failed_over


def test_it_fails_over_at_the_moment_that_it_is_due_whatever_the_rounding() -> None:  # F2
    for tenths in range(1000):
        entity = orders(failover_interval=0.7)
        fail(entity, tenths / 10)
        due = entity.due()
        assert due is not None
        list(entity.check(due))
        assert entity.is_failed_over, tenths


def test_the_interval_runs_from_the_first_failure_and_the_last_one_is_the_reason() -> None:  # F2
    entity = orders()
    fail(entity, 100.0)
    fail(entity, 150.0, OTHER)
    assert list(entity.check(160.0)) == [EntityFailedOver("orders", 60.0, OTHER)]


def test_a_success_in_between_stops_the_timer() -> None:  # F2
    entity = orders()
    fail(entity, 100.0)
    entity.succeeded()
    assert entity.is_healthy
    assert entity.due() is None
    fail(entity, 200.0)
    assert list(entity.check(259.0)) == []


def test_an_interval_of_zero_fails_over_at_the_first_failure() -> None:  # F2
    entity = orders(failover_interval=0.0)
    assert fail(entity, 100.0) == [EntityFailedOver("orders", 0.0, ERROR)]


def test_a_ping_is_due_one_interval_after_the_failover_and_after_each_ping_that_fails() -> None:  # F5
    entity = orders(0.0, ping_interval=30.0)
    fail(entity, 100.0)
    assert entity.due() == 130.0
    assert list(entity.pinged(OTHER, 130.0, 131.0)) == [EntityPinged("orders", OTHER)]
    assert entity.due() == 160.0
    list(entity.pinged(OTHER, 160.0, 205.0))  # one that took its time
    assert entity.due() == 205.0


def test_a_ping_that_arrives_brings_it_back() -> None:  # F5
    entity = orders(0.0)
    fail(entity, 100.0)
    assert list(entity.pinged(None, 160.0, 161.0)) == [EntityPinged("orders", None), EntityReturned("orders", 61.0)]
    assert entity.is_healthy
    assert entity.due() is None


def test_a_send_that_was_in_flight_at_the_failover_does_not_bring_it_back() -> None:  # F5
    entity = orders(0.0)
    fail(entity, 100.0)
    entity.succeeded()
    assert entity.is_failed_over


def test_a_failure_that_comes_late_does_not_fail_it_over_twice() -> None:
    entity = orders(0.0)
    fail(entity, 100.0)
    assert fail(entity, 101.0) == []
    assert entity.failovers == 1


def test_a_busy_entity_is_left_alone_for_ten_seconds_and_is_not_in_doubt() -> None:  # F3, S5
    entity = orders(0.0)
    entity.was_busy(ERROR, 100.0)
    assert entity.busy_until == 110.0
    assert entity.is_healthy


REACHED: dict[EntityState, Callable[[PrimaryEntity], object]] = {
    EntityState.HEALTHY: lambda entity: entity.check(100.0),
    EntityState.DOUBTFUL: lambda entity: fail(entity, 100.0),
    EntityState.FAILED_OVER: lambda entity: (fail(entity, 100.0), list(entity.check(160.0))),
}
HAPPENS: dict[EntityEvent, Callable[[PrimaryEntity], object]] = {
    EntityEvent.SEND_FAILED: lambda entity: fail(entity, 101.0),
    EntityEvent.SEND_SUCCEEDED: lambda entity: entity.succeeded(),
    EntityEvent.INTERVAL_PASSED: lambda entity: list(entity.check(500.0)),
    EntityEvent.PING_FAILED: lambda entity: list(entity.pinged(OTHER, 500.0, 501.0)),
    EntityEvent.PING_ARRIVED: lambda entity: list(entity.pinged(None, 500.0, 501.0)),
}


@pytest.mark.parametrize(("state", "event"), [*product(EntityState, EntityEvent)])
def test_every_event_in_every_state_does_what_the_table_says(state: EntityState, event: EntityEvent) -> None:  # F2, F5
    entity = orders()
    REACHED[state](entity)
    assert entity.state is state
    HAPPENS[event](entity)
    assert entity.state is TRANSITIONS.get((state, event), state)
    assert (entity.because is None) == (entity.due() is None) == entity.is_healthy
