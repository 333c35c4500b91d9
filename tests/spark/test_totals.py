"""Counting: accounts balance, also over attempts that were killed."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from syphon.model.outcome import Counters
from syphon.spark.control_protocol import SlotReport
from syphon.spark.totals import Totals

COUNTS = st.integers(0, 1000)


@st.composite
def sheets(draw: st.DrawFn) -> SlotReport:
    forwarded, dead, left, in_hand = (draw(COUNTS) for _ in range(4))
    finished = draw(st.booleans())
    held = 0 if finished else in_hand
    return SlotReport(
        pair="p",
        queue="q",
        job="j",
        slot=draw(COUNTS),
        attempt=0,
        started_at=0,
        finished=finished,
        counters=Counters(forwarded + dead + left + held, forwarded, dead, left),
        in_hand=held,
    )


@given(st.lists(sheets()))
def test_received_is_forwarded_and_dead_lettered_and_left_and_unaccounted(ended: list[SlotReport]) -> None:  # D9
    account = Totals().add(ended)
    assert account.received == account.forwarded + account.dead_lettered + account.left + account.unaccounted
    assert account.killed == sum(not sheet.finished for sheet in ended)


@given(st.lists(sheets()), st.lists(sheets()))
def test_what_is_under_way_is_shown_and_not_kept(ended: list[SlotReport], live: list[SlotReport]) -> None:
    account = Totals().add(ended)
    before = asdict(account)
    shown = account.plus(live)
    assert asdict(account) == before
    assert shown.received == account.received + sum(sheet.counters.received for sheet in live)
    assert shown.in_hand == sum(sheet.in_hand for sheet in live)
    assert shown.moved == account.moved + sum(sheet.counters.moved for sheet in live)
