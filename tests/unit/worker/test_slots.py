"""The states of a slot, and which of them let it take a queue (D15)."""

from __future__ import annotations

from itertools import product

import pytest

from syphon.control import HandOver
from syphon.control.protocol import SlotReport
from syphon.transfer import MOST_QUEUES
from syphon.worker.slots import TRANSITIONS, RunningSlot, SlotEvent, SlotState

WAYS = {
    SlotState.STARTING: (),
    SlotState.SERVING: (SlotEvent.REPORTED,),
    SlotState.HANDING_OVER: (SlotEvent.REPORTED, SlotEvent.SUCCESSOR_STARTED),
    SlotState.STOPPING: (SlotEvent.TOLD_TO_STOP,),
}
"""The events that lead to each state."""
REPORT = SlotReport(pair="contoso", job="j", slot=0, attempt=0, started_at=0)


def slot_in(state: SlotState) -> RunningSlot:
    slot = RunningSlot("j", 0.0, {})
    for event in WAYS[state]:
        slot.happened(event)
    return slot


@pytest.mark.parametrize(("state", "event"), [*product(SlotState, SlotEvent)])
def test_every_event_in_every_state_does_what_the_table_says(state: SlotState, event: SlotEvent) -> None:
    slot = slot_in(state)
    assert slot.state is state
    slot.happened(event)
    assert slot.state is TRANSITIONS.get((state, event), state)


def test_a_slot_that_was_told_to_stop_never_serves_again() -> None:
    assert not [event for state, event in TRANSITIONS if state is SlotState.STOPPING]


def test_the_first_report_begins_the_lease_and_later_ones_do_not() -> None:
    slot = slot_in(SlotState.STARTING)
    slot.receive(REPORT, 5.0)
    slot.receive(REPORT, 9.0)
    assert (slot.state, slot.began_at) == (SlotState.SERVING, 5.0)


@pytest.mark.parametrize(
    ("state", "takes"),
    [
        (SlotState.STARTING, False),
        (SlotState.SERVING, True),
        (SlotState.HANDING_OVER, True),
        (SlotState.STOPPING, False),
    ],
)
def test_a_slot_takes_queues_from_its_first_report_until_it_is_told_to_stop(state: SlotState, takes: bool) -> None:
    slot = slot_in(state)
    slot.report = None if state is SlotState.STARTING else REPORT
    assert slot.has_room is takes


def test_a_slot_takes_no_queue_while_it_is_full_or_cannot_reach_the_primary() -> None:
    slot = slot_in(SlotState.SERVING)
    slot.report, slot.misses_primary = REPORT, True
    assert not slot.has_room
    slot.misses_primary = False
    slot.queues = {str(number): HandOver(queue=str(number)) for number in range(MOST_QUEUES)}
    assert not slot.has_room
