"""What the driver remembers of destinations that take nothing: as much as it needs, however many messages name."""

from __future__ import annotations

import pytest

from syphon.transfer.pump import DestinationBackoff
from syphon.worker.backoffs import MOST_REMEMBERED, Backoffs


def waits(path: str, reason: str = "full") -> DestinationBackoff:
    return DestinationBackoff(path, 10.0, reason, 1)


def test_a_destination_that_waits_again_for_the_same_reason_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    waiting = Backoffs("contoso", now=lambda: now[0])
    for _ in range(3):
        waiting.learn([waits("orders")])
        now[0] += 60
    waiting.learn([waits("orders", "throttled")])
    assert [record.getMessage().count("takes no messages: full") for record in caplog.records] == [1, 0]


def test_those_that_have_waited_are_forgotten_when_there_are_many(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    waiting = Backoffs("contoso", now=lambda: now[0])
    for day in range(5):
        waiting.learn(waits(f"{day}-{number}") for number in range(MOST_REMEMBERED // 2))
        assert len(waiting.now()) == MOST_REMEMBERED // 2
        assert len(waiting._until) <= MOST_REMEMBERED + 1
        now[0] += 60
