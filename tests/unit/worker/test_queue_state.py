"""The states of a queue of a drain: which are open, which end it, and what leads from one to another (X2)."""

from __future__ import annotations

from itertools import product

import pytest

from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.queue_drain import QueueDrain
from syphon.worker.drain.queue_state import OPEN, TRANSITIONS, DrainEvent, DrainState
from syphon.worker.pausable_gate import PausableGate
from tests.unit.worker.test_pair_drain import PAIR

ENDS = {
    DrainEvent.NO_PROGRESS: DrainState.STUCK,
    DrainEvent.LIMIT_REACHED: DrainState.LIMIT,
    DrainEvent.TOLD_TO_STOP: DrainState.STOPPED,
    DrainEvent.BROKEN: DrainState.FAILED,
}
FOR_GOOD = set(DrainState) - OPEN - {DrainState.EMPTY, DrainState.MORE_CAME, DrainState.THROTTLED}


def queue_in(state: DrainState) -> QueueDrain:
    queue = QueueDrain(PAIR, "q", DrainOptions(), PausableGate("contoso"), None)
    queue.state = state
    return queue


@pytest.mark.parametrize(("state", "event"), [*product(DrainState, DrainEvent)])
def test_every_event_in_every_state_does_what_the_table_says(state: DrainState, event: DrainEvent) -> None:
    queue = queue_in(state)
    queue.happened(event)
    assert queue.state is TRANSITIONS.get((state, event), state)


def test_what_ends_a_drain_ends_every_open_queue_and_no_other() -> None:
    for state, event in product(DrainState, ENDS):
        assert TRANSITIONS.get((state, event)) is (ENDS[event] if state in OPEN else None)


def test_only_a_queue_that_was_empty_is_ever_open_again() -> None:
    reopened = {state for (state, _), after in TRANSITIONS.items() if state not in OPEN and after in OPEN}
    assert reopened == {DrainState.EMPTY}
    assert not [state for state, _ in TRANSITIONS if state in FOR_GOOD]


def test_a_queue_is_never_empty_without_a_peek_that_proves_it() -> None:  # D4
    assert {event for (_, event), after in TRANSITIONS.items() if after is DrainState.EMPTY} == {
        DrainEvent.PROVEN_EMPTY
    }


def test_every_state_that_is_not_final_takes_part_in_the_drain() -> None:
    assert {state for state in DrainState if not state.is_final} == OPEN | {DrainState.THROTTLED}
