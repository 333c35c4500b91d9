"""A limit is shared by all queues, and kept to the message."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from syphon.pipeline.allowance import Allowance


def test_without_a_limit_there_is_always_more() -> None:
    allowance = Allowance(None, 3)
    assert allowance.take() is None
    allowance.leave()
    assert allowance.take() is None


@given(st.integers(1, 500), st.lists(st.integers(0, 200), min_size=1, max_size=8))
def test_as_much_is_moved_as_the_limit_and_the_backlog_allow(limit: int, depths: list[int]) -> None:
    allowance = Allowance(limit, len(depths))
    left = list(depths)

    def queue(index: int) -> None:
        while left[index] and (share := allowance.take()):
            moved = min(share, left[index])
            left[index] -= moved
            allowance.give_back(share, share - moved)
        allowance.leave()

    threads = [threading.Thread(target=queue, args=(index,)) for index in range(len(depths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sum(depths) - sum(left) == min(limit, sum(depths))
