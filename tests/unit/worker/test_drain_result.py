"""What a drain says of the messages that it had to leave, by destination. What peeks find is given (S4, X7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from syphon.amqp import data_section
from syphon.backlog import to_backlog
from syphon.model import DestinationError
from syphon.servicebus import MessageState, Peeked
from syphon.transfer import DestinationBackoff
from syphon.worker.drain import result
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.result import DrainResult
from tests.unit.worker.test_pair_drain import Scene

BACK_OFFS = tuple(DestinationBackoff(path, 10.0, "why", 99, 2, DestinationError.MISSING) for path in ("orders", "news"))


def left(
    monkeypatch: pytest.MonkeyPatch, queues: dict[str, list[Peeked]], options: DrainOptions | None = None
) -> list[tuple[str, int]]:
    """The destinations of which a drain says that messages for them are left, and how many."""

    @contextmanager
    def connected(*_: object) -> Iterator[None]:
        yield None

    def peek(connection: Any, queue: str) -> Iterator[Peeked]:
        return iter(queues[queue])

    monkeypatch.setattr(result, "connected", connected)
    monkeypatch.setattr(result, "peek", peek)
    scene = Scene(options)
    scene.drain.backoffs.record(BACK_OFFS)
    found = result.waiting_destinations(DrainResult(tuple(scene.queues), 1.0))
    return [(destination.path, destination.left) for destination in found]


def peeked(*paths: str, state: MessageState = MessageState.ACTIVE) -> list[Peeked]:
    return [Peeked(to_backlog(data_section(b"x"), path), number, state) for number, path in enumerate(paths, 1)]


def test_messages_are_counted_by_destination_over_all_queues_and_the_most_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # S4
    queues = {"a": peeked("news", "orders", "other"), "b": peeked("Orders", "orders")}
    assert left(monkeypatch, queues) == [("orders", 3), ("news", 1)]


def test_messages_that_a_drain_would_not_take_are_not_left_by_it(monkeypatch: pytest.MonkeyPatch) -> None:  # X2, X7
    queues = {"a": peeked("orders") + peeked("orders", state=MessageState.SCHEDULED), "b": peeked("news", "orders")}
    assert left(monkeypatch, queues) == [("orders", 2), ("news", 1)]
    only_news = DrainOptions(destinations=["news"])
    assert left(monkeypatch, queues, only_news) == [("news", 1)]


def test_deferred_messages_are_left_like_active_ones(monkeypatch: pytest.MonkeyPatch) -> None:  # X7
    queues = {"a": peeked("orders"), "b": peeked("orders", "news", state=MessageState.DEFERRED)}
    assert left(monkeypatch, queues) == [("orders", 2), ("news", 1)]


def test_a_count_ends_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:  # X7
    monkeypatch.setattr(result, "MOST_COUNTED", 2)
    assert left(monkeypatch, {"a": peeked(*["orders"] * 5), "b": peeked("orders")}) == [("orders", 3)]
