"""Totals balance, also over attempts that were killed."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from syphon.model.outcome import Counters
from syphon.spark.control_protocol import SlotReport
from syphon.spark.totals import Totals

COUNTS = st.integers(0, 1000)


@st.composite
def reports(draw: st.DrawFn) -> SlotReport:
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


@given(st.lists(reports()))
def test_received_is_forwarded_and_dead_lettered_and_left_and_unaccounted(ended: list[SlotReport]) -> None:  # D9
    totals = Totals().add(ended)
    assert totals.received == totals.forwarded + totals.dead_lettered + totals.left + totals.unaccounted
    assert totals.killed == sum(not report.finished for report in ended)


@given(st.lists(reports()), st.lists(reports()))
def test_what_is_under_way_is_shown_and_not_kept(ended: list[SlotReport], live: list[SlotReport]) -> None:
    totals = Totals().add(ended)
    before = asdict(totals)
    shown = totals.plus(live)
    assert asdict(totals) == before
    assert shown.received == totals.received + sum(report.counters.received for report in live)
    assert shown.in_hand == sum(report.in_hand for report in live)
    assert shown.moved == totals.moved + sum(report.counters.moved for report in live)
