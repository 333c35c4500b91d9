"""A throttled service, in virtual time: how much of it is used, what it costs, and who is not disturbed."""

from __future__ import annotations

import random
from bisect import bisect
from dataclasses import replace

import pytest

from syphon.transfer import PumpOptions
from tests.simulation.generator import GENERATORS
from tests.simulation.incident import PAIRS, Incident, Kind, Mode, SimulatedFault, SimulatedMessage, secondary_of
from tests.simulation.run import quietly, violation_of
from tests.simulation.world import World

FOREVER = 100_000.0
SHARE = 0.8


def throttled(
    mode: Mode,
    limit: int,
    messages: int,
    destinations: int = 1,
    *,
    both: bool = False,
    foreign: int = 0,
) -> Incident:
    names, rng = tuple(f"d{number}" for number in range(destinations)), random.Random(1)
    queues = 1 if mode is Mode.PUMP else 10
    faults = [SimulatedFault(Kind.THROTTLE, 0.0, FOREVER, "contoso", number=limit)]
    if both:
        faults.append(SimulatedFault(Kind.THROTTLE, 0.0, FOREVER, "contoso-dr", number=2 * limit))
    if foreign:
        faults.append(SimulatedFault(Kind.FOREIGN, 0.0, FOREVER, "contoso", number=foreign))
    return Incident(
        1,
        names,
        tuple(
            SimulatedMessage(number, rng.choice(names), 0.0, queue=rng.randrange(queues)) for number in range(messages)
        ),
        tuple(faults),
        mode=mode,
        queues=queues,
        lock=60.0,
        window=PumpOptions().window,
        linger=5.0,
    )


def run(incident: Incident) -> tuple[list[float], int]:
    """When each message arrived, in order, and how many receives there were."""
    world = World(incident)
    with quietly():
        world.run()
    stories = world.checker.stories.values()
    return sorted(story.copies[0] for story in stories), sum(story.received for story in stories)


def steady_rate(arrivals: list[float], seconds: float = 15.0) -> float:
    """The best rate that lasted for some seconds."""
    return max(bisect(arrivals, at + seconds) - number for number, at in enumerate(arrivals)) / seconds


@pytest.mark.parametrize(
    ("mode", "limit", "messages", "destinations"),
    [
        (Mode.DRAIN, 100, 4000, 1),
        (Mode.DRAIN, 1000, 20_000, 3),
        pytest.param(Mode.DRAIN, 5000, 60_000, 1, marks=pytest.mark.nightly),
        (Mode.WORKER, 100, 4000, 3),
        (Mode.WORKER, 1000, 20_000, 1),
    ],
)
def test_most_of_what_a_throttled_primary_leaves_is_used(  # S5
    mode: Mode, limit: int, messages: int, destinations: int
) -> None:
    arrivals, receives = run(throttled(mode, limit, messages, destinations))
    assert len(arrivals) == messages
    assert steady_rate(arrivals) >= 0.85 * SHARE * limit
    assert receives <= 1.1 * messages


@pytest.mark.parametrize("mode", [Mode.DRAIN, Mode.WORKER])
def test_both_sides_may_be_throttled(mode: Mode) -> None:
    arrivals, receives = run(throttled(mode, 300, 6000, both=True))
    assert steady_rate(arrivals) >= 0.85 * SHARE * 300
    assert receives <= 1.1 * 6000


@pytest.mark.parametrize(
    ("mode", "limit", "messages"),
    [
        (Mode.DRAIN, 100, 4000),
        (Mode.DRAIN, 1000, 10_000),
        pytest.param(Mode.DRAIN, 5000, 40_000, marks=pytest.mark.nightly),
        (Mode.WORKER, 100, 4000),
        (Mode.WORKER, 1000, 15_000),
        pytest.param(Mode.WORKER, 5000, 60_000, marks=pytest.mark.nightly),
    ],
)
def test_half_is_left_beside_a_client_that_uses_the_other_half(mode: Mode, limit: int, messages: int) -> None:
    """Over the whole run, too: the search for the limit and ten seconds of silence after each busy answer included."""
    left = SHARE * limit / 2
    arrivals, receives = run(throttled(mode, limit, messages, foreign=limit // 2))
    assert len(arrivals) == messages
    assert steady_rate(arrivals) >= 0.85 * left
    assert messages / arrivals[-1] >= 0.55 * left
    assert receives <= 1.1 * messages


@pytest.mark.parametrize("mode", [Mode.PUMP, Mode.WORKER, Mode.DRAIN])
def test_one_busy_answer_delays_its_messages_by_ten_to_twelve_seconds(mode: Mode) -> None:  # S5
    messages = tuple(SimulatedMessage(number, "d0", 0.0) for number in range(3))
    incident = Incident(1, ("d0",), messages, (busy("d0", times=1),), mode=mode, lock=60.0, window=4000, linger=5.0)
    arrivals, receives = run(incident)
    assert arrivals[0] >= 10.0
    assert arrivals[-1] <= 12.5  # and the start of a slot
    assert receives <= 3 + (mode is Mode.WORKER)


def busy(entity: str, at: float = 0.0, lasts: float = FOREVER, times: int = 0, share: float = 1.0) -> SimulatedFault:
    how = "error com.microsoft:server-busy"
    return SimulatedFault(Kind.BROKER, at, lasts, "contoso", entity, how, "send", times, share)


def test_what_is_refused_when_the_pump_has_stopped_is_released_and_not_left_locked() -> None:  # S5
    """A batch is in flight at the end of the lease, and the answer is busy. The next pump gets its messages at once."""
    messages = tuple(SimulatedMessage(number, f"d{number % 2}", 0.003 * number) for number in range(2000))
    incident = Incident(
        1, ("d0", "d1"), messages, (busy("d0", 5.0, 2.0),), lock=60.0, window=400, latency=0.1, jitter=0.02, lease=5.15
    )
    arrivals, _ = run(incident)
    assert arrivals[-1] <= 30.0


def test_a_drain_ends_although_a_destination_was_throttled_when_a_lease_ended() -> None:  # X2
    """That destination has accepted everything since; what is left is for one that is full for ten minutes."""
    messages = tuple(SimulatedMessage(number, f"d{number % 2}", 0.0) for number in range(20))
    full = SimulatedFault(Kind.FULL, 0.0, 600.0, "contoso", "d1")
    faults = (busy("d0", times=1), full)
    steps: list[str] = []
    world = World(Incident(1, ("d0", "d1"), messages, faults, mode=Mode.DRAIN, lock=60.0, lease=8.0), steps.append)
    with quietly():
        world.run()
    assert any("drained" in step and "stuck" in step for step in steps)


def test_a_throttled_destination_leaves_its_link_to_others() -> None:  # S3, S5
    """There is one link for twelve destinations. What gets no link for ten seconds would wait for the end of locks."""
    names = tuple(f"d{number}" for number in range(12))
    messages = tuple(SimulatedMessage(number, names[number % 12], 0.0) for number in range(800))
    incident = Incident(1, names, messages, (busy("d3", lasts=80.0),), lock=60.0, window=400, max_links=1)
    world = World(incident)
    with quietly():
        world.run()
    others = [story for story in world.checker.stories.values() if story.message.destination != "d3"]
    assert max(story.copies[0] for story in others) <= 20.0
    assert all(story.received == 1 for story in others)


@pytest.mark.parametrize("down", [1, 2])
def test_messages_for_the_fragments_that_are_available_arrive_at_the_usual_speed(down: int) -> None:  # S3, S8
    """Each message has a session of its own, as in a busy system."""
    rng, healthy = random.Random(5), Incident(1, ("d0",), (), lock=60.0, window=4000, linger=5.0)
    messages = tuple(SimulatedMessage(number, "d0", 0.0, session=f"{rng.random()}") for number in range(20_000))
    healthy = replace(healthy, messages=messages, partitioned=frozenset(("d0",)))
    usual, _ = run(healthy)
    faults = tuple(SimulatedFault(Kind.FRAGMENT, 0.0, 20.0, "contoso", "d0", number=3 + each) for each in range(down))
    world = World(replace(healthy, faults=faults))
    with quietly():
        world.run()
    stories = world.checker.stories.values()
    others = [story for story in stories if not any(fault.is_fragment_of(story.message) for fault in faults)]
    assert len(others) == pytest.approx(20_000 * (1 - down / 16), rel=0.05)
    assert len(others) / max(story.copies[0] for story in others) >= 0.8 * len(usual) / usual[-1]


BAD_PAIRS = {
    "a wrong key": SimulatedFault(Kind.KEY_REFUSED, 5.0, 30.0, secondary_of(PAIRS[1])),
    "throttled": SimulatedFault(Kind.THROTTLE, 0.0, FOREVER, PAIRS[1], number=10),
    "a primary that does not answer": SimulatedFault(Kind.OUTAGE, 5.0, 30.0, PAIRS[1], how="hang"),
}


@pytest.mark.parametrize("bad", BAD_PAIRS)
def test_a_pair_is_as_fast_beside_a_bad_one_as_beside_a_good_one(bad: str) -> None:  # C1, S3
    messages = tuple(
        SimulatedMessage(number, "d0", number / 30, pair=PAIRS[0] if number % 20 else PAIRS[1])
        for number in range(1800)
    )
    good = Incident(1, ("d0",), messages, (), mode=Mode.PAIRS, pairs=PAIRS[:2], slots=2, lock=60.0, window=400)
    usual, beside = (_delays_of_first_pair(each) for each in (good, replace(good, faults=(BAD_PAIRS[bad],))))
    assert beside[-1] <= usual[-1] + 1.0
    assert beside[len(beside) // 2] <= usual[len(usual) // 2] / 0.8


def _delays_of_first_pair(incident: Incident) -> list[float]:
    """How long the messages of the first pair took, in order."""
    world = World(incident)
    with quietly():
        world.run()
    return sorted(story.copies[0] - story.message.at for story in world.checkers[PAIRS[0]].stories.values())


@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 40), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", GENERATORS)
def test_no_such_incident_breaks_a_promise(kind: Kind, seeds: range) -> None:
    with quietly():
        for seed in seeds:
            assert violation_of(GENERATORS[kind](seed, random.Random(seed))) is None, seed
