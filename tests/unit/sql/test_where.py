"""`--where`: SQL filters over messages as they lie in a queue (D23)."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from syphon.amqp import (
    Header,
    Int,
    Long,
    Map,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UInt,
    data_section,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.sql import BadExpression, Where

ENQUEUED = 1_793_000_000_000
"""26 October 2026, 07:33:20 UTC."""


def message(body: bytes = b"hello", /, **application: Any) -> bytes:
    annotations = {"x-opt-enqueued-time": Timestamp(ENQUEUED), "x-opt-sequence-number": Long(7)}
    return b"".join(
        (
            header_bytes(Header(ttl=UInt(90_000), delivery_count=UInt(3))),
            section_bytes(
                Section.MESSAGE_ANNOTATIONS, Map(tuple((Symbol(name), value) for name, value in annotations.items()))
            ),
            properties_bytes(Properties(message_id="m1", subject="invoice", group_id="s1")),
            section_bytes(Section.APPLICATION_PROPERTIES, Map.of(application)),
            data_section(body),
        )
    )


@pytest.mark.parametrize(
    "expression",
    [
        "priority = 5",
        "user.priority > 4 AND sys.Label = 'invoice'",
        "sys.MessageId = 'm1' AND sys.SessionId LIKE 's%' AND sys.SequenceNumber = 7",
        "sys.DeliveryCount = 3",
        "sys.EnqueuedTimeUtc > '2026-10-26'",
        "'2026-10-26T07:33:20' = sys.EnqueuedTimeUtc",
        "sys.EnqueuedTimeUtc IN ('2026-10-26T09:33:20+02:00', '2001-01-01')",
        "sys.TimeToLive = '1m30s'",
        "sys.DeadLetterReason = 'Timeout' AND EXISTS(DeadLetterReason)",
        "sys.ScheduledEnqueueTimeUtc IS NULL",
    ],
)
def test_a_filter_reads_system_and_application_properties(expression: str) -> None:
    payload = message(priority=Int(5), DeadLetterReason="Timeout")
    assert Where(expression).holds(payload)
    assert not Where(f"NOT ({expression})").holds(payload)


def test_a_filter_reads_values_in_a_json_body() -> None:
    payload = message(json.dumps({"customer": {"id": 7, "name": "ACME"}, "paid": False}).encode())
    assert Where("body.customer.id = 7 AND body.customer.name LIKE 'AC%' AND body.paid = FALSE").holds(payload)
    assert not Where("EXISTS(body.customer.street) OR body.customer.id.x = 1").holds(payload)


@pytest.mark.parametrize("body", [b"not JSON", b"\xff", b'{"id": 7}' + b" " * 262_144, b"[" * 100_000])
def test_values_of_a_body_that_is_not_json_or_too_large_are_unknown(body: bytes) -> None:
    assert not Where("body.id = 7 OR NOT body.id = 7").holds(message(body))


@pytest.mark.parametrize(
    ("expression", "character", "expected"),
    [
        ("sys.Colour = 1", 5, "the name of a system property"),
        ("sys.EnqueuedTimeUtc > 'yesterday'", 23, "a time such as"),
        ("sys.TimeToLive < 'short'", 18, "a duration such as"),
        ("sys.TimeToLive < '9999999999999d'", 18, "a duration such as"),
        ("priority >", 11, "a property, a value or ("),
        ("other.name = 1", 1, "sys, user or body before the dot"),
        ("body. = 1", 7, "a name in the body"),
    ],
)
def test_an_error_names_the_character_and_what_was_expected(expression: str, character: int, expected: str) -> None:
    with pytest.raises(BadExpression, match=rf"at character {character}: expected {expected.replace('(', '[(]')}"):
        Where(expression)


def test_a_message_that_cannot_be_read_is_not_selected() -> None:
    assert not Where("1 = 1 AND priority IS NULL").holds(b"\x00\x53\x74\xff")


def test_executors_get_the_text_of_a_filter() -> None:
    filed = pickle.loads(pickle.dumps(Where("priority = 5")))
    assert filed == Where("priority = 5")
    assert filed.holds(message(priority=Int(5)))
