"""The slots of a pair share the limit of a throttled namespace by what they use."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syphon.control.protocol import Traffic
from syphon.control.slot_control import part_of

TRAFFIC = st.builds(Traffic, per_second=st.floats(0.0, 5000.0), is_binding=st.booleans())


def test_a_slot_alone_has_the_whole_limit() -> None:
    assert part_of(100.0, Traffic(), []) == 100.0
    assert part_of(None, Traffic(), [Traffic()]) is None


def test_slots_that_all_need_more_have_equal_parts() -> None:
    assert part_of(100.0, Traffic(is_binding=True), [Traffic(is_binding=True)]) == 50.0


def test_what_a_quiet_slot_does_not_use_goes_to_the_others() -> None:  # S5
    quiet, busy = Traffic(per_second=4.0), Traffic(per_second=50.0, is_binding=True)
    assert part_of(100.0, busy, [quiet]) == 87.5
    assert part_of(100.0, quiet, [busy]) == 12.5


@given(st.floats(1.0, 5000.0), st.lists(TRAFFIC, min_size=1, max_size=8))
def test_all_parts_together_are_never_more_than_the_limit(limit: float, slots: list[Traffic]) -> None:
    parts = [part_of(limit, own, slots[:number] + slots[number + 1 :]) for number, own in enumerate(slots)]
    assert sum(part for part in parts if part is not None) <= limit * 1.000001
    assert min(part for part in parts if part is not None) > 0
