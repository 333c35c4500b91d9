"""Outcomes by destination and reason: bounded, and added up over tasks and jobs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.model.outcomes import (
    DESTINATION_NOT_ALLOWED,
    MOST_DESTINATIONS,
    OTHERS,
    SECONDS_BUCKETS,
    Durations,
    Outcome,
    Result,
    Stats,
)


def outcome(destination: str, result: Result = Result.FORWARDED, **more: Any) -> Outcome:
    times = {"enqueued_at": 1_000, "received_at": 2_000, "forwarded_at": None, "settled_at": 2_030}
    return Outcome(
        "q",
        1,
        "id",
        destination,
        None,
        size=10,
        delivery_count=0,
        result=result,
        **{**times, **more},
    )


def stats_of(*outcomes: Outcome) -> Stats:
    stats = Stats()
    stats.count_all(outcomes)
    return stats


@given(
    st.lists(
        st.builds(
            outcome,
            st.sampled_from(["orders", "Orders", "billing", ""]),
            st.sampled_from(Result),
            reason=st.sampled_from(["", "MessageTooLarge: 300 KB", f"{DESTINATION_NOT_ALLOWED}: evil"]),
            enqueued_at=st.integers(1, 3),
            forwarded_at=st.sampled_from([None, 2_003, 2_030]),
            settled_at=st.integers(2_030, 14_000),
        )
    )
)
def test_many_outcomes_at_once_are_counted_like_one_after_the_other(outcomes: list[Outcome]) -> None:
    together, apart = Stats(), Stats()
    together.count_all(outcomes)
    for each in outcomes:
        apart.count(each)
    for one, other in ((together.process, apart.process), (together.settle, apart.settle)):
        assert one.counts == other.counts
        assert one.seconds == pytest.approx(other.seconds)
        one.seconds = other.seconds
    assert together == apart


def test_a_destination_is_counted_by_its_path_however_it_is_written() -> None:
    stats = stats_of(outcome("Orders"), outcome("/orders/"), outcome("orders", Result.LEFT, enqueued_at=500))
    (destination,) = stats.destinations.values()
    assert (destination.path, destination.forwarded, destination.left, destination.oldest_left) == ("Orders", 2, 1, 500)


def test_dead_letters_are_counted_by_reason_and_a_name_that_is_not_allowed_is_never_kept() -> None:
    refused = "DestinationNotAllowed: x-ms-path names 'evil'"
    stats = stats_of(
        outcome("gone", Result.DEAD_LETTERED, reason="DestinationMissing: Destination 'gone': amqp:not-found"),
        outcome("evil", Result.DEAD_LETTERED, reason=refused),
        outcome("", Result.DEAD_LETTERED, reason="NoDestination: x-ms-path is missing"),
    )
    assert stats.reasons == {"DestinationMissing": 1, "DestinationNotAllowed": 1, "NoDestination": 1}
    assert list(stats.destinations) == ["gone"]


def test_a_message_that_was_left_and_then_dead_lettered_does_not_wait_any_more() -> None:  # X7
    left = [outcome("orders", Result.LEFT), outcome("orders", Result.LEFT)]
    stats = stats_of(*(each._replace(sequence_number=at) for at, each in enumerate(left)))
    assert stats.destinations["orders"].left == 2
    stats.count(outcome("orders", Result.DEAD_LETTERED, reason="MessageTooLarge"))
    assert stats.destinations["orders"].left == 1
    stats.count(outcome("orders", Result.DEAD_LETTERED, reason="MessageTooLarge"))
    assert (stats.destinations["orders"].left, stats.destinations["orders"].oldest_left) == (0, None)


def test_destinations_beyond_the_bound_are_counted_together() -> None:
    stats = stats_of(*(outcome(f"d{number}") for number in range(MOST_DESTINATIONS + 50)))
    assert len(stats.destinations) == MOST_DESTINATIONS + 1
    assert stats.destinations[OTHERS].forwarded == 50
    more = stats_of(*(outcome(f"e{number}") for number in range(30)))
    stats.add(more)
    assert stats.destinations[OTHERS].forwarded == 80
    assert len(stats.destinations) == MOST_DESTINATIONS + 1


def test_durations_are_counted_in_their_bucket_and_keep_their_sum() -> None:
    durations = Durations()
    for seconds in (0.005, 0.0051, 10.0, 99.0):
        durations.count(seconds)
    assert durations.counts[0] == durations.counts[1] == durations.counts[len(SECONDS_BUCKETS) - 1] == 1
    assert durations.counts[-1] == 1
    other = Durations()
    other.count(0.2)
    durations.add(other)
    assert sum(durations.counts) == 5
    assert durations.seconds == pytest.approx(109.2101)


def test_a_message_that_is_left_counts_once_and_no_longer_when_its_destination_accepts_again() -> None:  # S4
    rounds = [outcome("full", Result.LEFT, enqueued_at=500)._replace(sequence_number=number) for number in (3, 4, 5)]
    stats = stats_of(*rounds, *rounds, *rounds)
    assert (stats.destinations["full"].left, stats.destinations["full"].oldest_left) == (3, 500)
    stats.count(outcome("full"))
    assert (stats.destinations["full"].left, stats.destinations["full"].oldest_left) == (0, None)
    stats.count(rounds[1])
    assert stats.destinations["full"].left == 1


def test_a_message_with_another_destination_is_counted_where_it_went() -> None:
    stats = stats_of(outcome("orders", renamed_to="orders-v2"), outcome("orders", Result.LEFT, renamed_to="orders-v2"))
    (destination,) = stats.destinations.values()
    assert (destination.path, destination.forwarded, destination.left) == ("orders-v2", 1, 1)
