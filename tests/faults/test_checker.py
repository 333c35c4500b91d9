"""The checker finds messages that are lost, altered, invented, in the wrong place, or repeated."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from syphon.amqp import (
    Header,
    Int,
    Long,
    Map,
    Message,
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
from syphon.emulator.broker.message import BrokeredMessage
from tests.faults.checker import BACKLOG, DEAD, HOME, Found, check
from tests.faults.messages import EVENTS, ORDERS, Input, every_kind, made, mixed, plain, with_bad_aliases

PUT = [*mixed(random.Random(7), 50), *every_kind(), *with_bad_aliases()]
PROPERTIES = Properties(message_id="m", group_id="s", subject="subject")
APPLICATION = Map.of({"a": Int(1), "b": "text"})


def seen(payload: bytes) -> bytes:
    """A message as a broker returns it, with its annotations."""
    kept = BrokeredMessage.parse(payload)
    kept.ordinal, kept.enqueued_at, kept.delivery_count, kept.dead_letter_source = 7, 1_700_000_000_000, 3, "q"
    return kept.to_bytes()


def at_home(put: Input) -> Found:
    return Found(HOME, put.destination, seen(put.original))


def all_of(inputs: list[Input]) -> set[bytes]:
    return {put.identity for put in inputs}


def test_messages_of_every_kind_are_recognised_wherever_they_are() -> None:
    able = [put for put in PUT if put.destination]
    places = [[at_home(put) for put in able], [Found(BACKLOG, "", seen(put.backlogged)) for put in PUT]]
    letters = []
    for put in PUT:
        letter = BrokeredMessage.parse(put.backlogged)
        letter.set_properties({"DeadLetterReason": "r", "DeadLetterErrorDescription": "d"})
        letters.append(Found(DEAD, "", letter.to_bytes()))
    for inputs, found in zip((able, PUT, PUT), (*places, letters), strict=True):
        verdict = check(inputs, all_of(inputs), found)
        assert verdict.problems(at_least=len(inputs), most_duplicates=0) == []
        assert verdict.home + verdict.backlog + verdict.dead == len(inputs)


def test_a_message_that_is_not_found_is_lost_unless_its_owner_has_deleted_it() -> None:
    inputs = [plain(number, ORDERS) for number in range(3)]
    verdict = check(inputs, all_of(inputs), [at_home(inputs[0])], removed=[inputs[1].identity])
    assert len(verdict.lost) == verdict.removed == 1
    assert "plain-2" in verdict.lost[0]
    assert "lost" in verdict.problems(0, 0)[0]


def test_a_message_that_was_never_acknowledged_may_be_found_or_not() -> None:
    inputs = [plain(number, ORDERS) for number in range(3)]
    verdict = check(inputs, {inputs[0].identity}, [at_home(inputs[0]), at_home(inputs[1])])
    assert verdict.problems(1, 0) == []
    assert (verdict.recovered, verdict.home) == (1, 2)


def test_a_message_that_was_never_sent_or_came_to_the_wrong_place_is_unexpected() -> None:
    put, stranger = plain(1, ORDERS), plain(2, ORDERS)
    verdict = check([put], all_of([put]), [at_home(stranger), Found(HOME, EVENTS, seen(put.original))])
    assert "it was never sent" in verdict.unexpected[0]
    assert "meant for orders" in verdict.unexpected[1]
    assert verdict.lost


def test_a_message_that_was_forwarded_with_its_aliases_is_unexpected() -> None:
    put = plain(1, ORDERS)
    verdict = check([put], all_of([put]), [Found(HOME, ORDERS, seen(put.backlogged))])
    assert "application properties" in verdict.unexpected[0]


WHOLE = made(
    ORDERS,
    header_bytes(Header(True, None, UInt(5000)))
    + section_bytes(Section.MESSAGE_ANNOTATIONS, Map.symbols({"x-opt-scheduled-enqueue-time": Timestamp(9)}))
    + properties_bytes(PROPERTIES)
    + section_bytes(Section.APPLICATION_PROPERTIES, APPLICATION)
    + data_section(b"body")
    + section_bytes(Section.FOOTER, Map.symbols({"f": Int(1)})),
    "m",
)


@pytest.mark.parametrize(
    ("part", "section", "changed"),
    [
        ("time to live", Section.HEADER, header_bytes(Header(True, None, UInt(4999)))),
        ("time to live", Section.HEADER, b""),
        ("priority", Section.HEADER, header_bytes(Header(True, Symbol("x"), UInt(5000)))),
        ("durable", Section.HEADER, header_bytes(Header(False, None, UInt(5000)))),
        ("annotations", Section.MESSAGE_ANNOTATIONS, b""),
        ("properties", Section.PROPERTIES, properties_bytes(replace(PROPERTIES, group_id="other"))),
        ("properties", Section.PROPERTIES, properties_bytes(replace(PROPERTIES, subject=Symbol("subject")))),
        ("application properties", Section.APPLICATION_PROPERTIES, b""),
        (
            "application properties",
            Section.APPLICATION_PROPERTIES,
            section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"a": Long(1), "b": "text"})),
        ),
        ("body", Section.DATA, data_section(b"Body")),
        ("body", Section.FOOTER, b""),
    ],
)
def test_any_part_that_has_changed_is_named(part: str, section: Section, changed: bytes) -> None:
    altered = Message(WHOLE.original).replace(section, changed)
    verdict = check([WHOLE], {WHOLE.identity}, [Found(HOME, ORDERS, altered)])
    assert f": {part} " in verdict.unexpected[0]
    assert verdict.lost


def test_repeats_are_counted_wherever_they_are_and_must_be_explained() -> None:
    put = plain(1, ORDERS)
    verdict = check([put], all_of([put]), [at_home(put), at_home(put), Found(BACKLOG, "", seen(put.backlogged))])
    assert verdict.duplicates == 2
    assert verdict.problems(1, most_duplicates=2) == []
    assert verdict.problems(1, most_duplicates=1) == ["2 duplicates, where 1 can be allowed_duplicates"]


def test_a_run_of_too_few_messages_proves_nothing() -> None:
    put = plain(1, ORDERS)
    verdict = check([put], all_of([put]), [at_home(put)])
    assert "only 1" in verdict.problems(at_least=2, most_duplicates=0)[0]
