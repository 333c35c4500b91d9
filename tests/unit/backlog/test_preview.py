"""The preview of what a pump would do with a backlog message."""

from __future__ import annotations

import pytest
from hypothesis import given

from syphon.amqp import (
    Header,
    Map,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UInt,
    Value,
    header_bytes,
    properties_bytes,
)
from syphon.amqp import section_bytes as section
from syphon.backlog import Restored, restore, to_backlog
from syphon.backlog.preview import MessagePreview, PreviewRules, preview_message, read_fully, read_quickly
from syphon.model import TimeToLive
from syphon.model.entity_path import PathPatterns
from tests.support import backlog_messages
from tests.support.amqp_equality import assert_same
from tests.support.backlog_messages import Sent

NOW = 1_700_000_000_000
HOUR = 3_600_000
USUAL = PreviewRules()
SHORT: dict[str, Value] = {"path": "orders", "timetolive": "PT30M"}


def previewed(aliases: dict[str, Value], rules: PreviewRules = USUAL, ttl: int | None = None) -> MessagePreview:
    """A message that came into the backlog an hour ago, with x-ms-… aliases."""
    payload = b"".join(
        (
            header_bytes(Header(ttl=None if ttl is None else UInt(ttl), delivery_count=UInt(2))),
            section(Section.MESSAGE_ANNOTATIONS, Map(((Symbol("x-opt-enqueued-time"), Timestamp(NOW - HOUR)),))),
            properties_bytes(Properties(message_id="m1")),
            section(Section.APPLICATION_PROPERTIES, Map.of({f"x-ms-{name}": value for name, value in aliases.items()})),
            section(Section.VALUE, "body"),
        )
    )
    return preview_message(payload, NOW, rules)


def test_a_message_that_can_be_forwarded_has_no_reason() -> None:
    found = previewed({"path": "orders", "sessionid": "alice"})
    assert (found.message_id, found.destination, found.session_id) == ("m1", "orders", "alice")
    assert (found.enqueued_at, found.delivery_count) == (NOW - HOUR, 2)
    assert (found.scheduled_for, found.expires_at, found.reason, found.description) == (None, None, None, None)
    assert found.restored_size is not None
    assert 0 < found.restored_size < found.size  # without the aliases and the stamps of the broker (M7)
    assert previewed({}).restored_size is None


@pytest.mark.parametrize(
    ("aliases", "reason", "words"),
    [
        ({}, "NoDestination", "x-ms-path is missing"),
        ({"path": "orders", "timetolive": "soon"}, "BadAlias", "x-ms-timetolive"),
        ({"path": "orders", "sessionid": UInt(1)}, "BadAlias", "x-ms-sessionid"),
        ({"path": "secret"}, "DestinationNotAllowed", "'secret'"),
        ({"path": "orders/$management"}, "DestinationNotAllowed", "$"),
    ],
)
def test_what_cannot_says_why(aliases: dict[str, Value], reason: str, words: str) -> None:  # M4, D13
    found = previewed(aliases, PreviewRules(allow=PathPatterns.of(["orders*"])))
    assert found.reason == reason
    assert found.description is not None
    assert words in found.description
    assert found.message_id == "m1"


def test_a_time_to_live_counts_from_the_backlog_or_from_the_scheduled_time() -> None:  # M5
    assert previewed(SHORT).expires_at == NOW - HOUR // 2
    due = previewed({**SHORT, "scheduledenqueuetimeutc": Timestamp(NOW + HOUR)})
    assert (due.scheduled_for, due.expires_at) == (NOW + HOUR, NOW + HOUR + HOUR // 2)


def test_an_expired_message_is_forwarded_unless_only_the_remaining_time_counts() -> None:  # M5
    assert previewed(SHORT).reason is None
    remaining = PreviewRules(ttl=TimeToLive.REMAINING)
    assert previewed(SHORT, remaining).reason == "Expired"
    assert previewed({"path": "orders", "timetolive": "PT2H"}, remaining).reason is None


def test_a_life_of_its_own_ends_in_the_backlog() -> None:
    assert previewed({"path": "orders"}, ttl=1000).expires_at == NOW - HOUR + 1000
    assert previewed({"path": "orders"}, ttl=2**32 - 1).expires_at is None


def test_what_is_no_message_is_judged_too() -> None:
    found = preview_message(b"\x00\x53\x74\xff\xff", NOW, PreviewRules())
    assert (found.reason, found.destination, found.size) == ("MalformedMessage", None, 5)


@given(backlog_messages.sent, backlog_messages.paths)
def test_the_quick_look_at_a_message_finds_what_the_codec_finds(sent: Sent, path: str) -> None:
    payload = to_backlog(sent.payload, path)
    assert isinstance(restore(payload, enqueued_at=None, now=NOW), Restored)
    assert_same(list(read_quickly(payload)), list(read_fully(payload)))
