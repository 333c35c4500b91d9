"""A fixed number of simulated incidents, the ones that once failed, and deliberate mistakes that must be found."""

from __future__ import annotations

import pytest

from tests.simulation.checker import Checker
from tests.simulation.incident import Incident, Kind, Mode, SimulatedFault, SimulatedMessage, generate
from tests.simulation.mistakes import MISTAKES
from tests.simulation.regressions import REGRESSIONS
from tests.simulation.run import explain, quietly, run_many, violation_of
from tests.simulation.shrink import shrink
from tests.simulation.world import World

RUNS = 200


def test_no_incident_breaks_a_promise() -> None:
    summary = run_many(0, RUNS)
    assert summary.failed == {}
    assert summary.runs == RUNS


@pytest.mark.parametrize("name", REGRESSIONS)
def test_an_incident_that_once_failed_breaks_no_promise_any_more(name: str) -> None:
    with quietly():
        assert violation_of(REGRESSIONS[name]) is None


@pytest.mark.parametrize("name", MISTAKES)
def test_a_deliberate_mistake_is_found_within_2000_runs(name: str) -> None:
    known = MISTAKES[name]
    with known.make():
        assert run_many(known.first, 2000, mode=known.mode).failed


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
    assert lines[0].startswith(f"seed {seed} breaks a promise: lost:")
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
    found.accepted("orders", [Copy("m00001"), Copy("m00001")])
    assert "without a failure" in str(found.violation)
    found = checker(SimulatedFault(Kind.CUT, 49.0))
    found.accepted("orders", [Copy("m00001"), Copy("m00001")])
    assert found.violation is None


def test_a_dead_letter_needs_a_reason() -> None:
    found = checker()
    found.dead_lettered("m00001", "Refused")
    assert "dead-lettered" in str(found.violation)
    found = checker(SimulatedFault(Kind.MISSING, 40.0, 5.0, entity="orders"))
    found.dead_lettered("m00001", "DestinationMissing")
    assert found.violation is None
