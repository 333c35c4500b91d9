"""Dead letters in a file: what was written is read again byte for byte, and damage is noticed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.backlog import BadLine, fingerprint, letter_line, read_line, to_backlog
from syphon.backlog.dead_letters import read
from syphon.servicebus.peek_reply import MessageState, Peeked
from tests.support import backlog_messages
from tests.support.backlog_messages import Sent
from tests.unit.backlog.test_dead_letters import dead

QUEUE = "contoso/x-servicebus-transfer/0"


def line(payload: bytes, number: int = 7) -> str:
    return letter_line("contoso", read(QUEUE, Peeked(payload, number, MessageState.ACTIVE)))


@given(backlog_messages.sent, backlog_messages.paths)
def test_a_dead_letter_comes_back_byte_for_byte(sent: Sent, path: str) -> None:  # X4
    payload = dead(to_backlog(sent.payload, path))
    filed = read_line(line(payload))
    assert filed.letter.payload == payload
    assert (filed.pair, filed.letter.queue, filed.letter.sequence_number) == ("contoso", QUEUE, 7)
    assert filed.letter == read(QUEUE, Peeked(payload, 7, MessageState.ACTIVE))


@given(st.binary(max_size=300))
def test_bytes_that_are_no_message_come_back_too(payload: bytes) -> None:
    assert read_line(line(payload)).letter.payload == payload


def test_a_line_is_one_line_and_says_what_it_is() -> None:
    text = line(dead(to_backlog(backlog_messages.SIMPLE, "orders")))
    record = json.loads(text)
    assert "\n" not in text
    assert (record["format"], record["reason"], record["destination"], record["enqueued_at"]) == (
        "syphon-dead-letter/1",
        "DestinationMissing",
        "orders",
        "1970-01-01T00:00:00.005+00:00",
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"message": "AAAA"}, "message does not match sha256"),
        ({"message": "not base64!"}, "it is damaged"),
        ({"message": 5}, "it is damaged"),
        ({"sha256": "0" * 64}, "message does not match sha256"),
        ({"format": "other/1"}, "it has no format 'syphon-dead-letter/1'"),
        ({"queue": None}, "must be texts"),
        ({"sequence_number": True}, "a number"),
    ],
)
def test_a_line_that_was_changed_is_refused(change: dict[str, Any], why: str) -> None:
    record = json.loads(line(dead(to_backlog(backlog_messages.SIMPLE, "orders"))))
    with pytest.raises(BadLine, match=why):
        read_line(json.dumps(record | change))


@pytest.mark.parametrize(("text", "why"), [("", "damaged"), ("[]", "no format"), ("{", "damaged"), ("é", "damaged")])
def test_a_text_that_is_no_line_of_an_export_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadLine, match=why):
        read_line(text)


def test_a_line_that_was_cut_off_is_refused() -> None:
    text = line(dead(to_backlog(backlog_messages.SIMPLE, "orders")))
    for end in range(1, len(text)):
        with pytest.raises(BadLine):
            read_line(text[:end])


@pytest.mark.parametrize("key", ["pair", "queue", "sequence_number", "message", "sha256"])
def test_a_key_that_is_missing_is_named(key: str) -> None:
    record = json.loads(line(b""))
    del record[key]
    with pytest.raises(BadLine, match=key):
        read_line(json.dumps(record))


def test_a_fingerprint_is_of_what_the_sender_made() -> None:
    """A dead letter that is received has other stamps of the broker than the one that was peeked at."""
    backlog = to_backlog(backlog_messages.SIMPLE, "orders")
    assert fingerprint(dead(backlog)) == fingerprint(backlog) is not None
    assert fingerprint(dead(backlog)) != fingerprint(to_backlog(backlog_messages.SIMPLE, "billing"))
    assert fingerprint(b"\x00\x53\x74\xff\xff") is None
