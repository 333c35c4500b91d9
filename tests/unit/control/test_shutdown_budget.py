"""Each step of an ending has its share of the time (X9)."""

from __future__ import annotations

import pytest

from syphon.control.shutdown_budget import (
    FAULTED,
    LEAVE_AFTER,
    SPARK_STOPS_WITHIN,
    STOPPED,
    UNHURRIED,
    Ending,
    Shares,
    Step,
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.mark.parametrize(("shares", "promised"), [(STOPPED, 25.0), (FAULTED, 8.0)])
def test_all_steps_together_keep_the_promise(shares: Shares, promised: float) -> None:
    assert shares.until_end_of(Step.SPARK) + LEAVE_AFTER <= promised


def test_nothing_hurries_an_ending_that_was_not_begun(clock: Clock) -> None:
    ending = Ending(clock)
    assert not ending.has_begun
    assert ending.left_for(Step.LEDGER) == UNHURRIED
    assert not ending.is_overdue


def test_a_step_gets_what_the_steps_before_it_left_over(clock: Clock) -> None:
    ending = Ending(clock)
    ending.begin(Shares(slots=10, sides=1, ledger=2, spark=3))
    clock.now += 4
    assert ending.left_for(Step.SLOTS) == 6
    assert ending.left_for(Step.SIDES) == 7
    assert ending.left_for(Step.LEDGER) == 9


def test_a_step_that_takes_too_long_takes_nothing_from_the_next(clock: Clock) -> None:
    ending = Ending(clock)
    ending.begin(Shares(slots=10, sides=1, ledger=2, spark=3))
    clock.now += 10
    assert ending.left_for(Step.SLOTS) == 0
    assert ending.left_for(Step.SIDES) == 1
    clock.now += 3
    assert ending.left_for(Step.LEDGER) == 0
    assert ending.left_for(Step.SPARK) == 3


def test_a_frozen_spark_is_not_waited_for_longer_than_spark_ever_takes(clock: Clock) -> None:
    ending = Ending(clock)
    ending.begin(STOPPED)
    assert ending.left_for(Step.SPARK) == SPARK_STOPS_WITHIN


def test_a_fault_shortens_an_ending_and_a_later_signal_does_not_lengthen_it(clock: Clock) -> None:
    ending = Ending(clock)
    ending.begin(STOPPED)
    clock.now += 1
    ending.begin(FAULTED)
    assert ending.left_for(Step.SLOTS) == FAULTED.slots
    ending.begin(STOPPED)
    assert ending.left_for(Step.SLOTS) == FAULTED.slots


def test_it_is_overdue_when_the_process_should_be_gone(clock: Clock) -> None:
    ending = Ending(clock)
    ending.begin(FAULTED)
    clock.now = ending.overdue_at
    assert not ending.is_overdue
    clock.now += 0.1
    assert ending.is_overdue
