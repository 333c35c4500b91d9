"""A slot is saturated when its window is full, or it uses most of a core, for some seconds (S10). Time is given."""

from __future__ import annotations

import pytest

from syphon.spark.task import MOST_OF_A_CORE, Load
from syphon.time_budget import SATURATED_AFTER

TURN = 0.1
"""Seconds between two turns of the pump."""
START = 1000.0
MOMENT = 0.001


def test_a_slot_is_saturated_when_its_window_has_been_full_for_some_seconds() -> None:
    load = Load(START, 0.0)
    load.turned(True, START, 0.0)
    assert not load.is_saturated(START + SATURATED_AFTER - MOMENT)
    assert load.is_saturated(START + SATURATED_AFTER)


def test_one_turn_with_room_in_the_window_starts_the_seconds_again() -> None:
    load = Load(START, 0.0)
    load.turned(True, START, 0.0)
    load.turned(False, START + SATURATED_AFTER - 2 * MOMENT, 0.0)
    again = START + SATURATED_AFTER - MOMENT
    load.turned(True, again, 0.0)
    assert not load.is_saturated(again + SATURATED_AFTER - MOMENT)
    assert load.is_saturated(again + SATURATED_AFTER)


def test_a_window_that_stays_full_keeps_its_first_moment() -> None:
    load = Load(START, 0.0)
    for turn in range(20):
        load.turned(True, START + turn * TURN, 0.0)
    assert load.is_saturated(START + SATURATED_AFTER)


def after(seconds: float, share: float) -> tuple[Load, float]:
    """A slot whose window is never full, and that has used a share of a core for so long. Also returns the time."""
    load, turns = Load(START, 50.0), round(seconds / TURN)
    for turn in range(1, turns + 1):
        load.turned(False, START + turn * TURN, 50.0 + share * turn * TURN)
    return load, START + turns * TURN


def test_a_slot_is_saturated_when_it_has_used_most_of_a_core_for_some_seconds() -> None:
    load, now = after(SATURATED_AFTER - TURN, MOST_OF_A_CORE + 0.05)
    assert not load.is_saturated(now), "a burst"
    load, now = after(SATURATED_AFTER + TURN, MOST_OF_A_CORE + 0.05)
    assert load.is_saturated(now)


def test_a_slot_that_leaves_some_of_its_core_is_not_saturated() -> None:
    load, now = after(10 * SATURATED_AFTER, MOST_OF_A_CORE - 0.05)
    assert not load.is_saturated(now)


def test_a_slot_that_used_a_core_and_does_so_no_more_is_not_saturated() -> None:
    load, now = after(SATURATED_AFTER + TURN, 1.0)
    load.turned(False, now + SATURATED_AFTER, load.cpu)
    assert not load.is_saturated(now + SATURATED_AFTER)


def test_a_slot_that_becomes_busy_after_a_long_calm_is_saturated_as_soon() -> None:
    load, now = after(100 * SATURATED_AFTER, 0.0)
    cpu = load.cpu
    for turn in range(1, round(2 * SATURATED_AFTER / TURN) + 1):  # it measures in periods, and this one may have begun
        load.turned(False, now + turn * TURN, cpu + turn * TURN)
    assert load.is_saturated(now + 2 * SATURATED_AFTER)


@pytest.mark.parametrize("burst", [1, 5])
def test_a_trickle_never_saturates_a_slot(burst: int) -> None:
    """Messages keep coming, and fill a small window for a turn or some. That is no reason for another slot."""
    load = Load(START, 0.0)
    for turn in range(3000):
        now = START + turn * TURN
        load.turned(turn % 10 < burst, now, 0.05 * turn * TURN)
        assert not load.is_saturated(now), now
