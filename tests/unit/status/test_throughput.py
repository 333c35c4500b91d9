"""Rates, and the history of the last ten minutes."""

from __future__ import annotations

from syphon.status.history import SPAN, SPANS, ThroughputHistory


def test_history_keeps_ten_minutes_in_spans_whatever_the_clock_does() -> None:
    history = ThroughputHistory(1000.0)
    history.add(1001.0, 10, 0, None)
    history.add(1000.0 + SPAN, 30, 2, 7)
    history.add(500.0, 31, 2, 6)  # the clock steps back
    assert history.throughput().forwarded == [10, 21]
    assert history.throughput().backlog == [None, 6]
    history.add(1000.0 + SPAN * SPANS * 3, 31, 2, 0)
    throughput = history.throughput()
    assert (len(throughput.forwarded), sum(throughput.forwarded), sum(throughput.dead_lettered)) == (SPANS, 0, 0)
