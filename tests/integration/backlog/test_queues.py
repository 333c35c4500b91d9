"""The names of backlog queues (P1), their description (P2, P3), and paths that are never a destination (D13)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.backlog import backlog_queues, not_allowed, primary_label
from syphon.backlog.queues import DOCUMENTED, BacklogQueue, as_written, differences_from_documented, parse_queue_name
from syphon.model.entity_path import EntityPath, PathPatterns, never_a_destination


def test_the_queues_of_a_primary_are_numbered_from_zero() -> None:  # P1
    assert [queue.name for queue in backlog_queues("contoso", 3)] == [
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
        "contoso/x-servicebus-transfer/2",
    ]


@given(st.from_regex(r"[a-z0-9-]{1,50}", fullmatch=True), st.integers(0, 999_999_999))
def test_a_name_is_read_as_it_was_written(primary: str, index: int) -> None:  # P1
    queue = BacklogQueue(primary, index)
    assert parse_queue_name(queue.name) == queue


def test_capitals_make_no_difference_in_a_name() -> None:
    assert parse_queue_name("Contoso/X-ServiceBus-Transfer/7") == BacklogQueue("Contoso", 7)


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "contoso/x-servicebus-transfer",
        "contoso/x-servicebus-transfer/",
        "contoso/x-servicebus-transfer/07",
        "contoso/x-servicebus-transfer/-1",
        "contoso/x-servicebus-transfer/1/2",
        "/x-servicebus-transfer/1",
        "a/b/x-servicebus-transfer/1",
        "contoso/x-servicebus-transfer/1x",
        "contoso/x-servicebus-transfer/١",
        "contoso/x-servicebus-transfer/1\n",
        "contoso/y-servicebus-transfer/1",
        "contoso/x-servicebus-transfer/00",
    ],
)
def test_other_names_are_no_backlog_queues(name: str) -> None:  # P4: a queue of another owner does not count as extra
    assert parse_queue_name(name) is None


@pytest.mark.parametrize(
    ("host", "label"),
    [
        ("contoso.servicebus.windows.net", "contoso"),
        ("Contoso.ServiceBus.Windows.net:5671", "contoso"),
        ("contoso-dr.servicebus.usgovcloudapi.net.", "contoso-dr"),
        ("emulator", "emulator"),
        ("emulator:5672", "emulator"),
        ("127.0.0.1", "pair"),
        ("127.0.0.1:5672", "pair"),
        ("localhost", "pair"),
        ("LOCALHOST:5673", "pair"),
        ("::1", "pair"),
        ("[::1]:5672", "pair"),
        ("[fe80::1]", "pair"),
        ("sb.localhost", "pair"),
    ],
)
def test_a_primary_is_called_by_the_first_label_of_its_host_or_else_by_its_pair(host: str, label: str) -> None:  # P1
    assert primary_label(host, "pair") == label
    assert primary_label(host, "pair", override="other") == "other"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("contoso/x-servicebus-transfer/0", "backlog queue"),
        ("/Any/X-ServiceBus-Transfer/12/", "backlog queue"),
        ("$management", "($…)"),
        ("orders/$DeadLetterQueue", "($…)"),
        ("orders/$management/", "($…)"),
        ("events/Subscriptions/all", "subscription"),
        ("a/events/subscriptions/all", "subscription"),
        ("billing/../orders", "can be called"),
        ("billing/./orders", "can be called"),
        ("..", "can be called"),
        ("billing//orders", "can be called"),
        ("billing/%2e%2e/orders", "can be called"),
        ("", "can be called"),
        ("billing\\..\\orders", "can be called"),
        ("orders?sig=x", "can be called"),
        ("orders#x", "can be called"),
        ("sb://me@elsewhere/orders", "can be called"),
        ("orders\n", "can be called"),
        ("\x1b[2J", "can be called"),
        ("orders%2f$management", "can be called"),
        ("\u202eorders", "can be called"),
        ("*", "can be called"),
    ],
)
def test_some_paths_are_never_a_destination(path: str, why: str) -> None:  # D13
    assert why in (never_a_destination(EntityPath.of(path)) or "")


ORDINARY = [
    "orders",
    "billing/eu",
    "subscriptions",
    "my/subscriptions",
    "a$b",
    "x-servicebus-transfer",
    "/orders/",
    "a.b",
    "..a",
    "größe",
]


@pytest.mark.parametrize("path", ORDINARY)
def test_ordinary_paths_may_be_a_destination(path: str) -> None:  # D13
    assert never_a_destination(EntityPath.of(path)) is None


@pytest.mark.parametrize(
    ("path", "allow", "allowed"),
    [
        ("orders", ["*"], True),
        ("orders", ["orders"], True),
        ("ORDERS", ["orders"], True),
        ("orders", ["Orders"], True),
        ("/orders/", ["orders"], True),
        ("orders", ["/orders/"], True),
        ("billing/eu/paid", ["billing/*"], True),
        ("orders", ["billing/*", "ord*"], True),
        ("orders2", ["orders"], False),
        ("my/orders", ["orders"], False),
        ("billing", ["billing/*"], False),
        ("orders", [], False),
        ("orders/$management", ["*", "orders/$management"], False),
    ],
)
def test_the_operators_patterns_decide_whatever_the_capitals_and_never_beyond_nature(  # D13
    path: str, allow: list[str], allowed: bool
) -> None:
    assert (not_allowed(EntityPath.of(path), PathPatterns.of(allow)) is None) is allowed


def test_the_documented_description_is_the_articles() -> None:  # P2
    assert as_written(DOCUMENTED) == {
        "max_size_in_megabytes": "5120",
        "max_delivery_count": "2147483647",
        "default_message_time_to_live": "P10675199DT2H48M5.4775807S",
        "auto_delete_on_idle": "P10675199DT2H48M5.4775807S",
        "lock_duration": "PT1M",
        "dead_lettering_on_message_expiration": "true",
        "enable_batched_operations": "true",
    }


def test_a_queue_as_documented_differs_in_nothing() -> None:  # P3
    assert differences_from_documented(dataclasses.replace(DOCUMENTED)) == []


def test_each_difference_is_reported_by_its_property() -> None:  # P3
    found = dataclasses.replace(
        DOCUMENTED, max_delivery_count=10, lock_duration=30_000, dead_lettering_on_message_expiration=False
    )
    assert [str(difference) for difference in differences_from_documented(found)] == [
        "max_delivery_count is 10, documented is 2147483647",
        "lock_duration is PT30S, documented is PT1M",
        "dead_lettering_on_message_expiration is false, documented is true",
    ]
