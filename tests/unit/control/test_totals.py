"""Totals balance, also over attempts that were killed."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from syphon.control.protocol import QueueReport, SlotReport
from syphon.control.slot_control import SlotControl
from syphon.control.totals import QueueAttempt, Totals
from syphon.model.outcomes import SECONDS_BUCKETS, Counters, Outcome, QueueKey, Result, Stats

COUNTS = st.integers(0, 1000)


@st.composite
def attempts(draw: st.DrawFn) -> QueueAttempt:
    forwarded, dead, left, in_flight = (draw(COUNTS) for _ in range(4))
    finished = draw(st.booleans())
    held = 0 if finished else in_flight
    counters = Counters(forwarded + dead + left + held, forwarded, dead, left)
    queue = QueueReport(queue="q", counters=counters, in_flight=held)
    slot = SlotReport(pair="p", job="j", slot=draw(COUNTS), attempt=0, started_at=0, finished=finished, queues=(queue,))
    return QueueAttempt(slot, queue)


@given(st.lists(attempts()))
def test_received_is_forwarded_and_dead_lettered_and_left_and_unaccounted(ended: list[QueueAttempt]) -> None:  # D9
    totals = Totals().with_ended(ended)
    assert totals.received == totals.forwarded + totals.dead_lettered + totals.left + totals.unaccounted
    assert totals.killed == sum(not attempt.slot.finished for attempt in ended)


@given(st.lists(attempts()), st.lists(attempts()))
def test_what_is_in_flight_is_shown_and_not_kept(ended: list[QueueAttempt], live: list[QueueAttempt]) -> None:
    totals = Totals().with_ended(ended)
    before = asdict(totals)
    shown = totals.with_live(live)
    assert asdict(totals) == before
    assert shown.received == totals.received + sum(attempt.queue.counters.received for attempt in live)
    assert shown.in_flight == sum(attempt.queue.in_flight for attempt in live)
    assert shown.moved == totals.moved + sum(attempt.queue.counters.moved for attempt in live)


def test_stats_come_with_a_slots_report_and_no_count_goes_down_when_a_job_ends() -> None:  # D7
    forwarded = Outcome("q", 1, "id", "orders", None, 1_000, 2_000, None, 2_030, 10, 0, Result.FORWARDED)
    control = SlotControl()
    for job in ("a", "b"):
        control.open_job(job)
        stats = Stats()
        for each in (forwarded, forwarded._replace(destination="news", result=Result.LEFT)):
            stats.count(each)
        counters = Counters(received=2, forwarded=1, left=1)
        queue = QueueReport(queue="q", counters=counters, stats=stats)
        sent = SlotReport(pair="p", job=job, slot=0, attempt=0, started_at=0, queues=(queue,))
        control.receive(SlotReport.model_validate_json(sent.model_dump_json()))
        live = control.queue_totals()[QueueKey("p", "q")]
        control.close_job(job)
        ended = control.queue_totals()[QueueKey("p", "q")]
        assert (live.totals.forwarded, live.stats) == (ended.totals.forwarded, ended.stats)
        assert (len(live.live), len(ended.live), len(ended.last)) == (1, 0, 1)
    assert ended.totals.forwarded == 2
    assert ended.stats.destinations["orders"].forwarded == 2
    assert ended.stats.process.counts[SECONDS_BUCKETS.index(0.05)] == 2
