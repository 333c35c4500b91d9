"""The slots that pairs share: a pair without one gets one, and the others keep theirs (X1)."""

from __future__ import annotations

from syphon.worker.slots import SlotBudget


def taken(*pairs: str, most: int) -> SlotBudget:
    budget = SlotBudget(most)
    for pair in pairs:
        assert budget.take(pair)
    return budget


def test_a_free_slot_is_kept_for_a_pair_that_has_none() -> None:
    budget = taken("a", most=2)
    budget.ask("b")
    assert not budget.take("a")
    assert budget.take("b")


def test_a_free_slot_goes_to_the_pair_that_has_waited_longest() -> None:  # X1
    budget = taken("a", most=2)
    budget.ask("b")
    budget.ask("c")
    budget.ask("b")  # it asks in each turn
    assert not budget.take("c")
    assert budget.take("b")
    budget.release("b")
    budget.ask("b")
    assert budget.take("c")


def test_the_pair_with_the_most_slots_makes_room_and_only_with_one() -> None:
    budget = taken("a", "a", "b", most=3)
    budget.ask("c")
    assert not budget.makes_room("b")
    assert budget.makes_room("a")
    assert not budget.makes_room("a")  # one is enough
    budget.release("a", made_room=True)
    assert budget.take("c")
    assert not any(map(budget.makes_room, "abc"))


def test_pairs_with_one_slot_each_take_turns() -> None:
    budget = taken("a", "b", most=2)
    budget.ask("c")
    assert budget.makes_room("a")
    assert not budget.makes_room("b")
    budget.release("a", made_room=True)
    assert budget.take("c")
    budget.ask("a")
    assert budget.makes_room("b")


def test_no_slot_ends_while_a_free_one_waits_to_be_taken() -> None:
    budget = taken("a", most=2)
    budget.ask("b")
    assert not budget.makes_room("a")
    budget.withdraw("b")
    assert budget.take("a")
