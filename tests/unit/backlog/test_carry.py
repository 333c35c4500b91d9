"""Messages that a move carries from one queue to another entity, as bytes (X12)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from syphon.amqp import Message, Section
from syphon.backlog import LetterEdit, Restored, Unrestorable
from syphon.backlog.carry import carried_over
from syphon.model import EntityPath
from tests.support import backlog_messages
from tests.support.backlog_messages import SIMPLE, Sent

TARGET = EntityPath.of("orders")


def carried(payload: bytes, **options: Any) -> Restored:
    found = carried_over(payload, TARGET, **options)
    assert isinstance(found, Restored)
    return found


@given(backlog_messages.sent)
def test_all_that_no_broker_may_change_is_carried_byte_for_byte(sent: Sent) -> None:
    found = carried(sent.payload)
    assert Message(found.payload).bare() == Message(sent.payload).bare()
    assert (found.destination, found.size) == (TARGET, len(found.payload))


@given(backlog_messages.sent)
def test_the_time_to_live_and_the_priority_are_the_senders(sent: Sent) -> None:
    before, after = Message(sent.payload).header(), Message(carried(sent.payload).payload).header()
    assert (after.durable, after.priority, after.ttl) == (before.durable, before.priority, before.ttl)
    assert (after.first_acquirer, after.delivery_count) == (None, None)


def test_an_edit_changes_one_property_and_keeps_the_senders_reason() -> None:
    edit = LetterEdit.of(["DeadLetterReason=mine", "n=1"])
    before = carried(SIMPLE, edit=edit).payload
    kept, cleared = carried(before), carried(before, are_dead_letters=True)
    assert Message(kept.payload).application_properties().get("DeadLetterReason") == "mine"
    assert Message(cleared.payload).application_properties().get("DeadLetterReason") is None
    assert Message(cleared.payload).application_properties().get("n") == "1"
    assert Message(cleared.payload).raw(Section.DATA) == Message(SIMPLE).raw(Section.DATA)


@pytest.mark.parametrize("payload", [b"\x00\x53\x74\xff", bytes.fromhex("005370a1026162") + SIMPLE])
@pytest.mark.parametrize("are_dead_letters", [False, True])
def test_bytes_that_are_no_message_are_not_carried(payload: bytes, are_dead_letters: bool) -> None:
    assert isinstance(carried_over(payload, TARGET, are_dead_letters=are_dead_letters), Unrestorable)
