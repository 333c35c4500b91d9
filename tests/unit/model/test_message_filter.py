"""Which messages are asked for: by destination, and by when they came into the backlog."""

from __future__ import annotations

import pytest

from syphon.model import EntityPath, MessageFilter, PathPatterns

ORDERS = EntityPath.of("orders")


def by_destination(*patterns: str) -> MessageFilter:
    return MessageFilter(PathPatterns.of(patterns))


def test_without_conditions_every_message_is_selected() -> None:
    everything = MessageFilter()
    assert everything.matches(ORDERS, 0)
    assert everything.matches(None, 0)  # it names no destination, or one that cannot be read
    assert not everything.needs_destination
    assert everything.sql() == "true"


@pytest.mark.parametrize(("enqueued_at", "is_match"), [(99, False), (100, True), (199, True), (200, False)])
def test_after_is_inclusive_and_before_is_exclusive(enqueued_at: int, is_match: bool) -> None:
    assert MessageFilter(after=100, before=200).matches(ORDERS, enqueued_at) is is_match


@pytest.mark.parametrize(("enqueued_at", "is_match"), [(99, False), (100, True)])
def test_after_alone_is_a_condition(enqueued_at: int, is_match: bool) -> None:
    assert MessageFilter(after=100).matches(None, enqueued_at) is is_match


@pytest.mark.parametrize(("enqueued_at", "is_match"), [(199, True), (200, False)])
def test_before_alone_is_a_condition(enqueued_at: int, is_match: bool) -> None:
    assert MessageFilter(before=200).matches(None, enqueued_at) is is_match


def test_a_limit_of_zero_is_a_limit() -> None:
    assert not MessageFilter(before=0).matches(ORDERS, 0)
    assert MessageFilter(after=0).matches(ORDERS, 0)


@pytest.mark.parametrize("pattern", ["orders", "orders/", "/Orders", "ORDERS", "ord*", "*rder?"])
def test_slashes_and_capitals_make_no_difference(pattern: str) -> None:
    assert by_destination(pattern).matches(EntityPath.of("/Orders/"), 0)
    assert not by_destination(pattern).matches(EntityPath.of("billing"), 0)


def test_a_star_passes_slashes() -> None:
    assert by_destination("billing/*").matches(EntityPath.of("billing/paid/eu"), 0)
    assert not by_destination("billing/*").matches(EntityPath.of("billing"), 0)


def test_a_message_without_a_destination_matches_only_the_star() -> None:
    assert by_destination("*").matches(None, 0)
    assert not by_destination("orders").matches(None, 0)
    assert not by_destination("").matches(None, 0)
    assert not by_destination().matches(None, 0)


def test_the_empty_pattern_matches_the_empty_path_alone() -> None:
    assert by_destination("").matches(EntityPath.of(""), 0)
    assert not by_destination("").matches(ORDERS, 0)


def test_all_conditions_must_hold() -> None:
    both = MessageFilter(PathPatterns.of(["orders"]), before=200, after=100)
    assert both.matches(ORDERS, 150)
    assert not both.matches(ORDERS, 99)
    assert not both.matches(EntityPath.of("billing"), 150)


def test_the_condition_for_spark_has_the_same_limits_and_escapes_the_patterns() -> None:
    condition = MessageFilter(PathPatterns.of(["it's\\n"]), before=200, after=100).sql()
    assert "unix_millis(enqueued_at) < 200" in condition
    assert "unix_millis(enqueued_at) >= 100" in condition
    assert "it\\'s" in condition
