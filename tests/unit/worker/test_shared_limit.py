"""All queues of a drain share one limit, which is exact to the message."""

from __future__ import annotations

import threading
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from syphon.worker.drain.shared_limit import SharedLimit


def test_without_a_limit_there_is_always_more() -> None:
    shared = SharedLimit(None, 3)
    for _ in range(2):
        with shared.share() as share:
            assert share.most is None
        shared.leave()


@given(st.integers(1, 500), st.lists(st.integers(0, 200), min_size=1, max_size=8))
def test_as_much_is_moved_as_the_limit_and_the_backlog_allow(limit: int, depths: list[int]) -> None:
    shared = SharedLimit(limit, len(depths))
    left = list(depths)

    def queue(index: int) -> None:
        while left[index]:
            with shared.share() as share:
                if not share.most:
                    break
                share.used = min(share.most, left[index])
                left[index] -= share.used
        shared.leave()

    threads = [threading.Thread(target=queue, args=(index,)) for index in range(len(depths))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert sum(depths) - sum(left) == min(limit, sum(depths))


def test_a_queue_that_fails_returns_its_share_to_the_others() -> None:
    shared = SharedLimit(1, 2)
    has_it, goes_on, shares = threading.Event(), threading.Event(), []

    def fails() -> None:
        with suppress(RuntimeError), shared.share():
            has_it.set()
            goes_on.wait(10)
            raise RuntimeError("Spark is gone")

    def waits() -> None:
        with shared.share() as share:
            shares.append(share.most)

    first, second = threading.Thread(target=fails), threading.Thread(target=waits, daemon=True)
    first.start()
    assert has_it.wait(10)
    second.start()
    goes_on.set()
    first.join(10)
    second.join(10)
    assert shares == [1]
