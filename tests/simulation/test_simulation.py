"""A fixed number of simulated incidents, the ones that once failed, and deliberate mistakes that must be found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syphon.transfer import PumpOptions
from tests.simulation.checker import Checker
from tests.simulation.generator import generate
from tests.simulation.incident import Incident, Kind, Mode, SimulatedFault, SimulatedMessage
from tests.simulation.mistakes import MISTAKES
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.run import explain, quietly, run_many, violation_of
from tests.simulation.shrink import shrink
from tests.simulation.world import World

RUNS = 200
ORDERED_RUNS = 100


def test_no_incident_breaks_a_promise() -> None:
    summary = run_many(0, RUNS)
    assert summary.failed == {}
    assert summary.runs == RUNS


def test_no_incident_breaks_the_order_of_sessions() -> None:  # D21
    summary = run_many(0, ORDERED_RUNS, kind=Kind.ORDER)
    assert summary.failed == {}
    assert summary.runs == ORDERED_RUNS


def test_no_incident_breaks_the_order_of_sends() -> None:  # X10, D21
    summary = run_many(0, ORDERED_RUNS, kind=Kind.ORDER_OF_SENDS)
    assert summary.failed == {}
    assert summary.runs == ORDERED_RUNS


@pytest.mark.parametrize("name", REGRESSIONS)
def test_an_incident_that_once_failed_breaks_no_promise_any_more(name: str) -> None:
    with quietly():
        assert violation_of(REGRESSIONS[name]) is None


@pytest.mark.parametrize("name", MISTAKES)
def test_a_deliberate_mistake_is_found_within_2000_runs(name: str) -> None:
    known = MISTAKES[name]
    first = known.first
    with known.make():
        for _ in range(20):  # other checks may come first
            ((first, violation),) = run_many(first, 2000, mode=known.mode, kind=known.kind).failed.items()
            if violation.startswith(known.check):
                return
            first += 1
    pytest.fail(f"the check '{known.check}' has not found it")


def test_messages_for_others_arrive_at_most_three_times_beside_a_destination_that_cuts_the_connection() -> None:  # S3
    world = World(REGRESSIONS["a destination whose sends cut the connection"])
    with quietly():
        world.run()
    others = [story for story in world.checker.stories.values() if story.message.destination != "cursed"]
    assert max(len(story.copies) for story in others) <= 3
    assert max(story.copies[0] for story in others) < 15.0


def test_lost_answers_to_completions_stop_a_queue_for_half_a_minute_at_most() -> None:  # S6
    world = World(REGRESSIONS["answers to a window of completions that are lost"])
    with quietly():
        world.run()
    assert max(story.copies[0] for story in world.checker.stories.values()) < 30.0


# --- a whole worker under load, and in long outages -------------------------------------------------------------------

WINDOW = PumpOptions().window


def test_a_lone_message_waits_for_no_trickle_in_other_queues() -> None:  # S10
    """There are four trickles of two minutes, and places for two slots."""
    trickles = [(queue, 1.0 + 0.05 * queue + 0.2 * number) for queue in range(4) for number in range(600)]
    lone = [(9, 6.3 + 11.0 * number) for number in range(10)]
    messages = [SimulatedMessage(number, "orders", at, queue=q) for number, (q, at) in enumerate(trickles + lone)]
    world = World(Incident(1, ("orders",), tuple(messages), mode=Mode.WORKER, queues=10, lock=60.0, window=WINDOW))
    with quietly():
        world.run()
    stories = world.checker.stories.values()
    late = [story.copies[0] - story.message.at for story in stories if story.message.queue == 9]
    assert len(late) == len(lone)
    assert max(late) <= 3.0


def test_a_worker_is_quiet_while_the_primary_is_unreachable_and_notices_its_return() -> None:  # C3, D16
    """Messages come before the outage and during it. A receive for an unreachable primary is wasted."""
    away = SimulatedFault(Kind.OUTAGE, 20.0, 205.0, "contoso", how="refuse")
    messages = tuple(
        SimulatedMessage(number, ("orders", "billing")[number % 2], 0.1 * number, queue=number % 4)
        for number in range(1000)
    )
    incident = Incident(
        2, ("orders", "billing"), messages, (away,), mode=Mode.WORKER, queues=4, lock=60.0, window=WINDOW
    )
    world = World(incident)
    with quietly():
        world.run()
    stories = world.checker.stories.values()
    assert sum(story.received for story in stories) <= 1.1 * len(messages)
    assert max(story.copies[0] for story in stories) <= away.ends_at + 10.0


def test_messages_for_a_dead_destination_are_not_received_again_and_again() -> None:  # S3, D16
    """Two queues hold only its messages, and stay full of them for ten minutes. Others have messages that can move."""
    full = SimulatedFault(Kind.FULL, 0.0, 600.0, "contoso", "full")
    stuck = [SimulatedMessage(number, "full", 1.0, queue=number % 2) for number in range(500)]
    others = [SimulatedMessage(number, "orders", number - 499.0, queue=2 + number % 2) for number in range(500, 1000)]
    incident = Incident(
        3, ("orders", "full"), (*stuck, *others), (full,), mode=Mode.WORKER, queues=4, lock=60.0, window=WINDOW
    )
    world = World(incident)
    with quietly():
        world.run()
    stories = world.checker.stories
    rings = 2  # the first message of each queue rings, and is received once more
    assert sum(stories[message.id].received for message in stuck) <= 2 * len(stuck) + rings
    assert all(stories[message.id].copies[0] < message.at + 3.0 for message in others)


@pytest.mark.parametrize("seed", [0, 3, 10, 143])
def test_an_incident_always_runs_in_the_same_way(seed: int) -> None:
    first: list[str] = []
    second: list[str] = []
    with quietly():
        violation_of(generate(seed), first.append)
        violation_of(generate(seed), second.append)
    assert first == second
    assert len(first) > 50


def test_a_failed_incident_is_shrunk_and_explained() -> None:
    with MISTAKES["takes an unknown outcome for accepted"].make():
        (seed,) = run_many(0, 100, mode=Mode.PUMP).failed
        lines = list(explain(seed))
    assert lines[0].startswith(f"seed {seed} fails a check: lost:")
    assert lines[-1].startswith("→ lost:")


def test_the_shrinker_leaves_out_what_is_not_needed() -> None:
    incident = generate(0)
    culprit = incident.messages[17]
    small = shrink(incident, lambda smaller: culprit in smaller.messages, tries=500)
    assert len(small.messages) <= 8
    assert small.faults == ()


# --- the checker itself -----------------------------------------------------------------------------------------------


class Copy:
    """A message as a broker holds it."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id


def checker(*faults: SimulatedFault) -> Checker:
    return Checker(Incident(0, ("orders",), (SimulatedMessage(1, "orders", 0.0),), faults), lambda: 50.0)


def test_a_completion_before_the_acceptance_is_a_loss() -> None:
    found = checker()
    found.completed("m00001")
    assert "lost" in str(found.violation)


def test_a_message_that_was_never_sent_is_unexpected() -> None:
    found = checker()
    found.accepted("orders", [Copy("another")])
    assert "unexpected" in str(found.violation)


def test_a_second_copy_needs_a_failure() -> None:
    found = checker()
    found.accepted("orders", [Copy("m00001")])
    found.accepted("orders", [Copy("m00001")])
    assert "without a failure" in str(found.violation)
    found = checker(SimulatedFault(Kind.CUT, 49.0))
    found.accepted("orders", [Copy("m00001")])
    found.accepted("orders", [Copy("m00001")])
    assert found.violation is None


def test_one_batch_has_no_message_twice() -> None:
    found = checker(SimulatedFault(Kind.CUT, 49.0))
    found.accepted("orders", [Copy("m00001"), Copy("m00001")])
    assert "twice in one batch" in str(found.violation)


def late(*faults: SimulatedFault) -> str:
    """What is said of a message that arrives 5 s after its lock of 10 s has ended."""
    found = checker(*faults)
    found.stories["m00001"].lock_ended = 45.0
    found.accepted("orders", [Copy("m00001")])
    return str(found.violation or "")


def test_a_send_after_the_end_of_the_lock_is_excused_only_by_what_held_it_up() -> None:
    assert "sent too late" in late()
    assert late(SimulatedFault(Kind.STALL, 40.0, 10.0)) == ""
    assert late(SimulatedFault(Kind.SLOW, 40.0, 8.1, "contoso-dr")) == ""
    assert "sent too late" in late(SimulatedFault(Kind.STALL, 40.0, 8.0))
    assert "sent too late" in late(SimulatedFault(Kind.STALL, 47.0, 10.0))
    assert "sent too late" in late(SimulatedFault(Kind.FULL, 40.0, 10.0, entity="orders"))
    delay = SimulatedFault(Kind.BROKER, 40.0, 10.0, operation="send", how="delay", entity="orders")
    assert late(delay) == ""
    assert "sent too late" in late(replace(delay, entity="billing"))


def test_a_dead_letter_needs_a_reason() -> None:
    found = checker()
    found.dead_lettered("m00001", "Refused")
    assert "dead-lettered" in str(found.violation)
    found = checker(SimulatedFault(Kind.MISSING, 40.0, 5.0, entity="orders"))
    found.dead_lettered("m00001", "DestinationMissing")
    assert found.violation is None
    found = checker(SimulatedFault(Kind.MISSING, 51.0, 5.0, entity="orders"))
    found.dead_lettered("m00001", "DestinationMissing")
    assert "dead-lettered" in str(found.violation)
