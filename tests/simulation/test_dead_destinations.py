"""Any number of unavailable destinations beside one that works: what they cost in hours, and whom they delay."""

from __future__ import annotations

import random

import pytest

from syphon.transfer import PumpOptions
from tests.simulation.incident import Incident, Kind, Mode, SimulatedFault, SimulatedMessage
from tests.simulation.run import quietly
from tests.simulation.world import World

EVERY = 60.0
"""Seconds between two messages for destinations that are unavailable, and between two for the one that works."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("hours", [2, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(("dead", "kind"), [(1, Kind.FULL), (5, Kind.MISSING), (50, Kind.FULL)])
def test_a_message_is_received_twice_at_most_and_no_other_is_delayed(
    dead: int, kind: Kind, hours: int
) -> None:  # S3, S7
    paths, rng, lasts = [f"dead-{number}" for number in range(dead)], random.Random(dead), hours * 3600.0
    messages: list[SimulatedMessage] = []
    for turn in range(int(lasts / EVERY)):
        for path in (rng.choice(paths), "orders"):
            messages.append(SimulatedMessage(len(messages), path, (turn + rng.random()) * EVERY))
    messages.sort(key=lambda message: message.at)
    faults = tuple(SimulatedFault(kind, 0.0, lasts, "contoso", path) for path in paths)
    world = World(
        Incident(
            1, ("orders", *paths), tuple(messages), faults, mode=Mode.WORKER, lock=60.0, window=PumpOptions().window
        )
    )
    with quietly():
        world.run()
    stories = list(world.checker.stories.values())
    late = sorted(story.copies[0] - story.message.at for story in stories if story.message.destination == "orders")
    stuck = [story for story in stories if story.message.destination != "orders"]
    assert late[len(late) * 99 // 100] <= 3.0
    assert sum(story.received for story in stories) <= 2 * len(stories)
    # The first message for a destination rings a doorbell: it is received once more, before anyone knows (S7).
    assert sum(story.received > 2 for story in stuck) <= dead
    assert max(story.received for story in stuck) <= 3
    assert all(story.copies for story in stuck)
