"""Messages as fields, read by hand: the same as the codec finds, and never an error."""

from __future__ import annotations

import pytest
from hypothesis import given

from syphon.amqp import Malformed, Map, Message, data_section
from syphon.datasource.message_fields import read_fields
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import joined, messages, mutated, noise
from tests.support.property_kinds import BODIES, TYPES
from tests.support.spark_source import message


def check(payload: bytes) -> None:
    found = read_fields(payload, with_body=True)
    try:
        expected = Message(payload)
        header, properties = expected.header(), expected.properties()
        annotations, application = expected.annotations(), expected.application_properties()
    except Malformed:
        return
    if not found.is_readable:  # more than the codec reads: the body is not AMQP
        return
    assert_same([*found.header, *[None] * (5 - len(found.header))], [getattr(header, n) for n in header.__slots__])
    assert_same(
        [*found.properties, *[None] * (13 - len(found.properties))],
        [getattr(properties, n) for n in properties.__slots__],
    )
    assert_same(dict(found.annotations), _as_dict(annotations))
    assert_same(dict(found.application), _as_dict(application))


def _as_dict(found: Map) -> dict[str, object]:
    return {key if isinstance(key, str) else str(key): value for key, value in found}


def assert_same_dict(one: dict[str, object], other: dict[str, object]) -> None:
    assert list(one) == list(other)


@given(messages.map(joined))
def test_it_finds_what_the_codec_finds(payload: bytes) -> None:
    check(payload)


@given(mutated(messages.map(joined)) | noise)
def test_bytes_that_are_no_message_are_no_error(payload: bytes) -> None:
    check(payload)


def test_every_type_of_property_is_found() -> None:
    found = read_fields(message(b"x", dict(TYPES), message_id="m"), with_body=False)
    assert_same(list(found.application.values()), list(TYPES.values()))
    assert found.body is None


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data", b"hello"),
        ("empty data", b""),
        ("several data sections", b"ab"),
        ("with a footer", b"f"),
        ("value null", BODIES["value null"]),
        ("value map", BODIES["value map"]),
        ("sequences", BODIES["sequences"]),
    ],
)
def test_a_body_is_its_bytes_or_its_encoding(name: str, content: bytes) -> None:
    head = message(b"")[: -len(data_section(b""))]
    assert read_fields(head + BODIES[name], with_body=True).body == content


def test_what_the_broker_wrote_is_read_although_the_senders_part_is_not_amqp() -> None:
    good = message(b"x", annotations={"x-opt-sequence-number": "7"})
    found = read_fields(good[: -len(data_section(b"x"))] + b"\x00\x53\x73\xff", with_body=True)
    assert not found.is_readable
    assert found.annotations == {"x-opt-sequence-number": "7"}
