"""What the order of sessions costs, in virtual time: round trips, and no CPU (D21)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syphon.transfer import PumpOptions
from tests.simulation.incident import Incident, SimulatedMessage
from tests.simulation.run import quietly
from tests.simulation.world import World

BATCH, ROUND_TRIP = 100, 0.02


def rate(messages: int, sessions: int, *, keeps_order: bool) -> float:
    """Messages per second, from the first that arrives to the last."""
    incident = Incident(
        1,
        ("d0",),
        tuple(SimulatedMessage(number, "d0", 0.0, session=f"s{number % sessions}") for number in range(messages)),
        (),
        lock=60.0,
        window=PumpOptions().window,
        latency=ROUND_TRIP / 2,
    )
    world = World(replace(incident, keeps_order=keeps_order))
    with quietly():
        world.run()
    arrivals = sorted(story.copies[0] for story in world.checker.stories.values())
    return messages / (arrivals[-1] - arrivals[0])


def test_a_single_session_moves_a_batch_per_round_trip() -> None:
    assert rate(5000, 1, keeps_order=True) >= 0.8 * BATCH / ROUND_TRIP


@pytest.mark.parametrize("sessions", [50, 1000])
def test_many_sessions_are_at_least_half_as_fast_as_without_order(sessions: int) -> None:
    assert rate(10_000, sessions, keeps_order=True) >= 0.5 * rate(10_000, sessions, keeps_order=False)
