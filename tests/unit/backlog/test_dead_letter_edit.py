"""What an operator may change in a dead letter: the bytes of the edit, and that nothing else changes."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from hypothesis import given

from syphon.amqp import (
    Int,
    Long,
    Message,
    Properties,
    Section,
    Symbol,
    Timestamp,
    ULong,
    Value,
    data_section,
    in_order,
    properties_bytes,
)
from syphon.amqp.section_edit import extract, keys, outline
from syphon.backlog import BadEdit, LetterEdit, message_id_of, put_back, to_backlog, with_message_id
from syphon.backlog.dotnet_times import timespan
from tests.support import backlog_messages
from tests.support.backlog_messages import Sent
from tests.unit.backlog.test_dead_letters import dead


def edited(*edits: str, unset: tuple[str, ...] = ()) -> Message:
    letter = dead(to_backlog(backlog_messages.SIMPLE, "orders"))
    return Message(put_back(letter, LetterEdit.of(edits, unset)))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("colour=red", "colour", "red"),
        ("colour=", "colour", ""),
        ("sum=a=b", "sum", "a=b"),
        ("retries:int=-3", "retries", Int(-3)),
        ("big:long=5000000000", "big", Long(5_000_000_000)),
        ("on:boolean=True", "on", True),
        ("ratio:double=0.5", "ratio", 0.5),
        ("at:timestamp=2026-11-17T05:00:00Z", "at", Timestamp(1_794_891_600_000)),
        ("id:uuid=12345678-1234-5678-1234-567812345678", "id", uuid.UUID("12345678-1234-5678-1234-567812345678")),
        ("raw:binary=00ff", "raw", b"\x00\xff"),
        ("urn:x:string=y", "urn:x", "y"),
        ("x-ms-path=billing", "x-ms-path", "billing"),
    ],
)
def test_a_property_is_set_with_its_type(text: str, name: str, value: Value) -> None:  # X4
    found = edited(text).application_properties().get(name)
    assert (found, type(found)) == (value, type(value))


def test_a_time_span_is_what_the_old_sdk_wrote() -> None:  # M3
    found = edited("x-ms-timetolive:timespan=01:30:00").application_properties().get("x-ms-timetolive")
    assert timespan(found) == 90 * 60 * 10_000_000


def test_properties_of_amqp_are_set_in_their_section() -> None:
    properties = edited("properties.subject=new", "properties.content-type=text/plain").properties()
    assert (properties.subject, properties.content_type) == ("new", Symbol("text/plain"))
    assert isinstance(properties.content_type, Symbol)


def test_properties_are_removed() -> None:
    message = edited("colour=red", unset=("colour", "properties.subject"))
    assert message.application_properties().get("colour") is None
    assert message.properties().subject is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("colour", "write NAME=VALUE or NAME:TYPE=VALUE"),
        ("=red", "is not an edit"),
        ("n:number=5", "'number' is not a type. Types are string, boolean, int"),
        ("n:int=5000000000", "is not a value of the type int"),
        ("n:int=five", "is not a value of the type int"),
        ("b:boolean=yes", "is not a value of the type boolean"),
        ("t:timespan=soon", "is not a value of the type timespan, which"),
        ("t:timestamp=1712101234567", "is not a value of the type timestamp, which"),
        ("properties.message-id=1", "this property cannot be edited. These can: to, subject"),
        ("properties.subject:int=1", "properties.subject is a string"),
        ("x-ms-path:int=1", "x-ms-path is a string"),
    ],
)
def test_an_edit_that_makes_no_sense_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadEdit, match=f"(?s).*{why}"):
        LetterEdit.of([text])


def test_the_path_cannot_be_removed() -> None:
    with pytest.raises(BadEdit, match="would have no destination"):
        LetterEdit.of((), ["x-ms-path"])


@given(backlog_messages.sent, backlog_messages.paths)
def test_everything_else_keeps_its_bytes(sent: Sent, path: str) -> None:  # M2, X4
    letter = dead(to_backlog(sent.payload, path))
    plain, changed = put_back(letter), put_back(letter, LetterEdit.of(["a-new-one=1"]))
    before, after = outline(plain), outline(changed)
    assert changed[after.body :] == plain[before.body :]
    for one, other in ((before.header, after.header), (before.properties, after.properties)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert plain[one.start : one.end] == changed[other.start : other.end]
    pairs = extract(changed, after.application, keys(["a-new-one"]))
    assert list(pairs.found) == ["a-new-one"]
    assert pairs.remaining(changed) == extract(plain, before.application, keys(())).remaining(plain)


@pytest.mark.parametrize("message_id", ["m1", "", uuid.UUID(int=7), ULong(7), b"\xff"])
def test_a_new_message_id_changes_no_other_byte(message_id: Value) -> None:  # M2, X4
    letter = to_backlog(properties_bytes(Properties(message_id=message_id, subject="s")) + data_section(b"x"), "orders")
    assert message_id_of(letter) == message_id
    changed = with_message_id(letter, "new")
    assert message_id_of(changed) == "new"
    assert with_message_id(changed, "m1") == with_message_id(letter, "m1")
    before, after = Message(letter), Message(changed)
    assert after.properties() == replace(before.properties(), message_id="new")
    assert after.raw(Section.APPLICATION_PROPERTIES) == before.raw(Section.APPLICATION_PROPERTIES)
    assert changed.endswith(data_section(b"x"))


def test_a_message_can_have_no_id() -> None:
    assert message_id_of(data_section(b"x")) is None
    assert message_id_of(properties_bytes(Properties(subject="s")) + data_section(b"x")) is None


def test_sections_in_another_order_are_put_into_order() -> None:  # M8
    letter = dead(to_backlog(backlog_messages.SIMPLE, "orders"))
    found = outline(letter)
    assert found.properties is not None
    first = letter[found.properties.start : found.properties.end]
    turned = first + letter.replace(first, b"", 1)
    assert put_back(turned) == put_back(in_order(turned)) == put_back(letter)
