"""Which backlog queue a sender takes (F4)."""

from __future__ import annotations

from collections import Counter

from syphon.backlog import QueueName
from syphon.sender.changes import QueueTakenBack, QueueTakenOut
from syphon.sender.rotation import OUT_FOR, Rotation

A, B, C = QueueName("a"), QueueName("b"), QueueName("c")
ERROR = OSError("gone")


def out(rotation: Rotation, queue: QueueName, now: float, seconds: float = OUT_FOR) -> list[object]:
    return list(rotation.take_out(queue, ERROR, seconds, now))


def test_each_queue_is_picked_now_and_then() -> None:  # F4
    rotation = Rotation((A, B, C))
    picked = Counter(rotation.pick((), 0.0) for _ in range(600))
    assert set(picked) == {A, B, C}
    assert min(picked.values()) > 100  # 200 on average; chance alone would need luck of one in many billions


def test_a_queue_that_failed_is_out_for_a_while_and_then_comes_back() -> None:  # F4
    rotation = Rotation((A, B))
    assert out(rotation, A, 100.0) == [QueueTakenOut(A, OUT_FOR, ERROR)]
    assert {rotation.pick((), 100.0) for _ in range(50)} == {B}
    assert not rotation.has(A, 100.0 + OUT_FOR - 0.1)
    assert rotation.has(A, 100.0 + OUT_FOR)
    assert list(rotation.works(A)) == [QueueTakenBack(A)]
    assert list(rotation.works(A)) == []


def test_one_call_does_not_try_a_queue_twice() -> None:
    rotation = Rotation((A, B))
    assert {rotation.pick((A,), 0.0) for _ in range(20)} == {B}
    assert rotation.pick((A, B), 0.0) is None


def test_with_all_queues_out_the_one_that_is_out_longest_gets_one_try() -> None:
    rotation = Rotation((A, B, C))
    for now, queue in ((100.0, B), (101.0, A), (102.0, C)):
        out(rotation, queue, now)
    assert rotation.pick((), 110.0) == B
    assert rotation.pick((B,), 110.0) is None


def test_several_senders_that_find_out_at_the_same_time_are_told_of_once() -> None:
    rotation = Rotation((A, B))
    assert len(out(rotation, A, 100.0)) == 1
    assert out(rotation, A, 100.1) == []
