"""Messages as sections (AMQP 1.0 part 3.2)."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import astuple
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import (
    Header,
    Int,
    Long,
    Malformed,
    Map,
    Message,
    Properties,
    Section,
    Span,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    Value,
    batch_parts,
    data_section,
    decode,
    encode,
    header_bytes,
    in_order,
    properties_bytes,
    section_bytes,
    split,
)
from syphon.amqp.sections import Entry, entries, map_section
from tests.support.amqp_equality import assert_same
from tests.support.amqp_strategies import (
    Parts,
    descriptors,
    examples,
    joined,
    maps,
    messages,
    mutated,
    noise,
    scalars,
    unreadable,
    values,
)

SECTIONS = pytest.mark.parametrize("section", Section, ids=lambda section: section.name.lower())
REPEATABLE = (Section.DATA, Section.SEQUENCE)
BODIES = (Section.DATA, Section.SEQUENCE, Section.VALUE)


def raw(section: Section) -> bytes:
    """A plain example of a section."""
    match section:
        case Section.HEADER | Section.PROPERTIES | Section.SEQUENCE:
            return section_bytes(section, [None, Int(1)])
        case Section.DATA:
            return section_bytes(section, b"body")
        case Section.VALUE:
            return section_bytes(section, "body")
        case _:
            return section_bytes(section, Map.symbols({"a": Int(1)}))


def found(data: bytes) -> Parts:
    """What `split` sees, as sections and their bytes."""
    return [(Section(span.section), data[span.start : span.end]) for span in split(data)]


# --- splitting -------------------------------------------------------------------------------------------------------


@given(messages)
@examples(200)
def test_a_message_falls_into_exactly_the_sections_it_was_made_of(parts: Parts) -> None:
    data = joined(parts)
    assert found(data) == parts
    assert b"".join(data[span.start : span.end] for span in split(data)) == data


@given(messages)
@examples(150)
def test_a_section_is_read_for_its_value_and_kept_with_its_descriptor(parts: Parts) -> None:
    data = joined(parts)
    message = Message(data)
    for section in Section:
        expected = next((part for kind, part in parts if kind is section), b"")
        assert message.raw(section) == expected
        span = message.span(section)
        if span is None:
            assert expected == b""
            assert message.read(section) is None
        else:
            assert data[span.start : span.end] == expected
            descriptor, value = decode(data, span.start + 1, span.end)
            assert value == span.value
            assert descriptor in (section, decode(descriptors(section)[2], 1)[0])
            if section not in BODIES:
                assert_same(message.read(section), decode(data, span.value)[0])


def test_a_message_without_a_byte_has_no_sections() -> None:
    message = Message(b"")
    assert message.spans == []
    assert message.header() == Header()
    assert message.properties() == Properties()
    assert message.annotations() == message.application_properties() == Map()
    assert message.bare() == b""


def test_all_sections_can_be_there_at_once() -> None:
    for body in BODIES:
        parts = [(section, raw(section)) for section in Section if section is body or section not in BODIES]
        assert found(joined(parts)) == parts


@SECTIONS
def test_a_descriptor_is_understood_in_its_short_long_and_symbolic_form(section: Section) -> None:
    value = raw(section)[3:]
    for descriptor in descriptors(section):
        data = descriptor + value
        assert split(data) == [Span(section, 0, len(descriptor), len(data))]
        assert_same(Message(data).read(section), decode(value)[0])


@pytest.mark.parametrize("section", REPEATABLE, ids=["data", "sequence"])
@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_data_and_sequence_sections_may_repeat(section: Section, count: int) -> None:
    data = raw(Section.PROPERTIES) + raw(section) * count + raw(Section.FOOTER)
    assert [kind for kind, _ in found(data)] == [Section.PROPERTIES, *[section] * count, Section.FOOTER]


@given(unreadable, st.sampled_from(BODIES))
@examples(100)
def test_a_body_that_cannot_be_decoded_still_passes(content: bytes, body: Section) -> None:
    parts: Parts = [
        (Section.PROPERTIES, raw(Section.PROPERTIES)),
        (body, descriptors(body)[0] + content),
        (Section.FOOTER, raw(Section.FOOTER)),
    ]
    message = Message(joined(parts))
    assert found(message.data) == parts
    assert message.properties() == Properties(None, Int(1))
    header = raw(Section.HEADER)
    assert found(message.replace(Section.HEADER, header)) == [(Section.HEADER, header), *parts]
    with pytest.raises(Malformed):
        message.read(body)


def test_a_described_body_value_is_passed_over_as_a_whole() -> None:
    data = bytes.fromhex("00 53 77 00 a3 01 61 00 53 05 c0 02 ff ff") + raw(Section.FOOTER)
    assert [kind for kind, _ in found(data)] == [Section.VALUE, Section.FOOTER]


# --- messages that are none ------------------------------------------------------------------------------------------


def ordered(one: Section, other: Section) -> bool:
    """Whether `other` may follow `one`: part 3.2, and a body is of one kind."""
    if one is other:
        return one in REPEATABLE
    return other > one and not (one in BODIES and other in BODIES)


@given(messages.flatmap(lambda parts: st.tuples(st.just(parts), st.permutations(parts))))
@examples(200)
def test_sections_in_any_order_are_put_into_the_order_of_the_standard(given_parts: tuple[Parts, Parts]) -> None:  # M8
    parts, shuffled = given_parts
    data = in_order(joined(shuffled))
    # The parts of a body keep the order in which they came.
    assert found(data) == sorted(shuffled, key=lambda part: part[0])
    assert Message(joined(shuffled)).data == data
    assert Message(data).application_properties() == Message(joined(parts)).application_properties()


def test_a_message_in_order_is_not_copied() -> None:  # M8
    data = raw(Section.HEADER) + raw(Section.DATA)
    assert in_order(data) is data


def test_delivery_annotations_after_the_body_and_a_footer_before_it_are_read() -> None:  # M8
    """The Python SDK writes the first, and rhea the second."""
    annotations, body, footer = map(raw, (Section.DELIVERY_ANNOTATIONS, Section.DATA, Section.FOOTER))
    assert Message(body + annotations).data == annotations + body
    assert Message(footer + body).data == body + footer


@pytest.mark.parametrize("between", [Section.HEADER, Section.FOOTER])
def test_a_section_occurs_once_in_any_order(between: Section) -> None:  # M8
    for section in Section:
        if section is between or section in REPEATABLE:
            continue
        with pytest.raises(Malformed, match="twice"):
            in_order(raw(section) + raw(between) + raw(section))
    with pytest.raises(Malformed, match="two kinds"):
        in_order(raw(Section.VALUE) + raw(between) + raw(Section.DATA))


@SECTIONS
@pytest.mark.parametrize("other", Section, ids=lambda section: section.name.lower())
def test_a_section_that_occurs_twice_is_malformed_and_so_is_a_body_of_two_kinds(
    section: Section, other: Section
) -> None:
    for first in descriptors(section):
        for second in descriptors(other):
            data = first + raw(section)[3:] + second + raw(other)[3:]
            if ordered(section, other):
                assert [kind for kind, _ in found(data)] == [section, other]
            else:
                with pytest.raises(Malformed, match=r"out of order|two kinds|twice"):
                    split(data)


@given(messages, st.sampled_from(list(Section)), st.integers(0, 12))
@examples(150)
def test_a_section_too_many_is_only_taken_where_it_may_stand(parts: Parts, section: Section, place: int) -> None:
    more = [*parts[:place], (section, raw(section)), *parts[place:]]
    kinds = [kind for kind, _ in more]
    if all(ordered(one, other) for one, other in pairwise(kinds)):
        assert found(joined(more)) == more
    else:
        with pytest.raises(Malformed):
            split(joined(more))


@pytest.mark.parametrize(
    "data",
    [
        "53 70 45",
        "40",
        "45",
        "c0 01 00",
        "00",
        "00 53",
        "00 53 70",
        "00 80",
        "00 a3 05 61",
        "00 40 45",
        "00 41 45",
        "00 53 6f 45",
        "00 53 79 45",
        "00 53 00 45",
        "00 44 45",
        "00 80 00 00 00 01 00 00 00 70 45",
        "00 52 70 45",
        "00 55 70 45",
        "00 50 70 45",
        "00 a3 01 61 45",
        "00 a0 01 70 45",
        "00 00 53 70 45 45",
        "00 c0 03 01 53 70 45",
        "00 53 70 45 ff",
        "00 53 70 45 00",
        "00 53 70 3f",
        "00 53 70 c0 05 00",
        "00 53 75 b0 00 00 00 02 00",
    ],
)
def test_bytes_that_are_no_section_are_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        split(bytes.fromhex(data))


@given(messages)
@examples(40)
def test_a_message_that_is_cut_short_is_malformed_unless_the_cut_is_between_sections(parts: Parts) -> None:
    data = joined(parts)
    boundaries = {span.start: place for place, span in enumerate(split(data))}
    for cut in range(len(data)):
        if cut in boundaries:
            assert found(data[:cut]) == parts[: boundaries[cut]]
        else:
            with pytest.raises(Malformed):
                split(data[:cut])


def everything(data: bytes) -> None:
    """Reads whatever can be read of a message."""
    message = Message(data)
    assert b"".join(data[span.start : span.end] for span in message.spans) == data
    for read in (message.header, message.properties, message.annotations, message.application_properties):
        with suppress(Malformed):
            read()
    for span in message.spans:
        with suppress(Malformed):
            entries(data, span)
        with suppress(Malformed):
            message.read(Section(span.section))


starts_well = st.builds(lambda section, rest: descriptors(section)[0] + rest, st.sampled_from(list(Section)), noise)


@given(st.one_of(noise, starts_well))
@examples(300)
def test_random_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        everything(data)
    with suppress(Malformed):
        batch_parts(data)


@given(mutated(messages.map(joined)))
@examples(200)
def test_a_damaged_message_is_a_message_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        everything(data)
    with suppress(Malformed):
        batch_parts(data)


def test_the_error_for_an_unknown_descriptor_is_short() -> None:
    with pytest.raises(Malformed) as caught:
        split(b"\x00" + encode(Symbol("x" * 100_000)) + b"\x45")
    assert len(str(caught.value)) < 300


# --- replacing -------------------------------------------------------------------------------------------------------


def with_section(parts: Parts, section: Section, new: bytes) -> Parts:
    """What replacing means, on the list of sections."""
    put = [(section, new)] if new else []
    kinds = [kind for kind, _ in parts]
    if section in kinds:
        place = kinds.index(section)
        return [*parts[:place], *put, *parts[place + 1 :]]
    place = sum(kind < section for kind in kinds)
    return [*parts[:place], *put, *parts[place:]]


@given(messages, st.sampled_from([section for section in Section if section not in BODIES]), maps(scalars))
@examples(120)
def test_a_replaced_or_inserted_section_reads_back_and_no_other_byte_changes(
    parts: Parts, section: Section, value: Map
) -> None:
    new = section_bytes(section, value)
    changed = Message(joined(parts)).replace(section, new)
    assert found(changed) == with_section(parts, section, new)
    assert Message(changed).raw(section) == new
    assert_same(Message(changed).read(section), value)


@given(messages, st.sampled_from(list(Section)))
@examples(120)
def test_a_section_is_removed_and_no_other_byte_changes(parts: Parts, section: Section) -> None:
    message = Message(joined(parts))
    assert found(message.replace(section, b"")) == with_section(parts, section, b"")
    assert message.data == joined(parts)


@given(messages, st.sampled_from(list(Section)))
@examples(100)
def test_a_section_put_back_makes_the_message_it_was(parts: Parts, section: Section) -> None:
    message = Message(joined(parts))
    assert message.replace(section, message.raw(section)) == message.data


@SECTIONS
def test_a_section_is_inserted_before_the_first_that_comes_after_it(section: Section) -> None:
    body = section if section in BODIES else Section.VALUE
    whole = [(kind, raw(kind)) for kind in Section if kind is body or kind not in BODIES]
    others = [part for part in whole if part[0] is not section]
    assert found(Message(joined(others)).replace(section, raw(section))) == whole


@given(messages)
@examples(100)
def test_the_bare_message_is_everything_from_the_properties_on(parts: Parts) -> None:
    expected = joined([(kind, part) for kind, part in parts if kind >= Section.PROPERTIES])
    assert Message(joined(parts)).bare() == expected


# --- header, properties, maps ----------------------------------------------------------------------------------------


@given(st.lists(scalars, max_size=5))
@examples(80)
def test_a_header_comes_back_and_ends_with_its_last_field_that_is_set(fields: list[Value]) -> None:
    data = header_bytes(Header(*fields))
    header = Message(data).header()
    padded = [*fields, *[None] * (5 - len(fields))]
    assert_same([header.durable, header.priority, header.ttl, header.first_acquirer, header.delivery_count], padded)
    written = Message(data).read(Section.HEADER)
    assert isinstance(written, list)
    assert not written or written[-1] is not None


@given(st.lists(scalars, max_size=13))
@examples(60)
def test_properties_come_back_and_end_with_the_last_field_that_is_set(fields: list[Value]) -> None:
    data = properties_bytes(Properties(*fields))
    properties = Message(data).properties()
    assert_same(list(astuple(properties)), [*fields, *[None] * (13 - len(fields))])
    written = Message(data).read(Section.PROPERTIES)
    assert isinstance(written, list)
    assert not written or written[-1] is not None


def test_the_fields_of_header_and_properties_stand_in_the_order_of_the_specification() -> None:
    header = Message(section_bytes(Section.HEADER, [True, UByte(4), UInt(5), False, UInt(7)])).header()
    assert header == Header(durable=True, priority=UByte(4), ttl=UInt(5), first_acquirer=False, delivery_count=UInt(7))
    names: list[Value] = [
        "message-id",
        "user-id",
        "to",
        "subject",
        "reply-to",
        "correlation-id",
        "content-type",
        "content-encoding",
        "absolute-expiry-time",
        "creation-time",
        "group-id",
        "group-sequence",
        "reply-to-group-id",
    ]
    properties = Message(section_bytes(Section.PROPERTIES, names)).properties()
    assert properties == Properties(**{str(name).replace("-", "_"): name for name in names})


@pytest.mark.parametrize("value", [Map(), "no list", Int(1), b"", [None] * 14])
def test_a_header_or_properties_that_are_no_such_list_are_malformed(value: Value) -> None:
    with pytest.raises(Malformed, match="header section is not a list of at most 5"):
        Message(section_bytes(Section.HEADER, value)).header()
    with pytest.raises(Malformed, match="properties section is not a list of at most 13"):
        Message(section_bytes(Section.PROPERTIES, value)).properties()


def test_a_header_has_five_fields_and_no_sixth() -> None:
    assert Message(section_bytes(Section.HEADER, [None] * 5)).header() == Header()
    with pytest.raises(Malformed, match="at most 5"):
        Message(section_bytes(Section.HEADER, [None] * 6)).header()


@given(maps(values))
@examples(30)
def test_annotations_and_application_properties_come_back_with_their_types(value: Map) -> None:
    data = section_bytes(Section.MESSAGE_ANNOTATIONS, value) + section_bytes(Section.APPLICATION_PROPERTIES, value)
    assert_same(Message(data).annotations(), value)
    assert_same(Message(data).application_properties(), value)


@pytest.mark.parametrize("value", [[], "no map", Int(1), [None, None]])
def test_annotations_that_are_no_map_are_malformed(value: Value) -> None:
    with pytest.raises(Malformed, match="message annotations section is not a map"):
        Message(section_bytes(Section.MESSAGE_ANNOTATIONS, value)).annotations()
    with pytest.raises(Malformed, match="application properties section is not a map"):
        Message(section_bytes(Section.APPLICATION_PROPERTIES, value)).application_properties()


# --- the pairs of a map section --------------------------------------------------------------------------------------


def only_span(data: bytes) -> Span:
    (span,) = split(data)
    return span


@given(maps(values), st.sampled_from(descriptors(Section.MESSAGE_ANNOTATIONS)))
@examples(40)
def test_the_entries_of_a_map_section_are_its_pairs_byte_by_byte(value: Map, descriptor: bytes) -> None:
    data = descriptor + encode(value)
    pairs = entries(data, only_span(data))
    assert len(pairs) == len(value)
    for entry, (key, item) in zip(pairs, value, strict=True):
        assert_same(entry.key, key)
        assert data[entry.start : entry.value] == encode(key)
        assert data[entry.value : entry.end] == encode(item)


@given(maps(values))
@examples(40)
def test_a_map_section_made_of_entries_is_the_one_they_came_from(value: Map) -> None:
    data = section_bytes(Section.APPLICATION_PROPERTIES, value)
    pairs = [data[entry.start : entry.end] for entry in entries(data, only_span(data))]
    assert map_section(Section.APPLICATION_PROPERTIES, pairs) == (data if value else b"")


def test_a_map_section_of_many_pairs_takes_its_long_form() -> None:
    pairs = [encode("k") + encode(Int(1))] * 200
    data = map_section(Section.FOOTER, pairs)
    assert_same(Message(data).read(Section.FOOTER), Map((("k", Int(1)),) * 200))
    assert len(entries(data, only_span(data))) == 200


@given(unreadable)
@examples(50)
def test_the_values_of_entries_need_not_be_readable(content: bytes) -> None:
    data = map_section(Section.FOOTER, [encode("a") + content, encode("b") + b"\x41"])
    first, second = entries(data, only_span(data))
    assert data[first.value : first.end] == content
    assert second == Entry("b", first.end, first.end + 3, len(data))


@pytest.mark.parametrize(
    "value",
    [
        "45",
        "40",
        "41",
        "c0 01 00",
        "a0 01 00",
        "c1 00",
        "c1 02 01 40",
        "c1 03 04 40 40",
        "c1 04 02 40 40 40",
        "c1 04 03 41 53 07",
        "c0 03 02 40 40",
        "d0 00 00 00 06 00 00 00 02 40 40",
        "e0 04 02 50 01 02",
        "c1 03 02 40 53",
        "d1 00 00 00 00",
        "d1 00 00 00 03 00 00 00",
        "c1 03 02 ff 40",
        "d1 00 00 00 06 ff ff ff fe 40 40",
        "d1 00 00 00 06 ff ff ff ff 40 40",
        "c1 04 02 a1 01 ff",
    ],
)
def test_entries_of_a_section_that_is_no_proper_map_are_malformed(value: str) -> None:
    data = b"\x00\x53\x72" + bytes.fromhex(value)
    with pytest.raises(Malformed):
        entries(data, only_span(data))


# --- bodies and batches ----------------------------------------------------------------------------------------------


@given(st.binary(max_size=300))
@examples(50)
def test_a_data_section_holds_its_bytes(body: bytes) -> None:
    data = data_section(body)
    assert found(data) == [(Section.DATA, data)]
    assert Message(data).read(Section.DATA) == body


@given(messages, st.lists(messages.map(joined), min_size=1, max_size=4))
@examples(100)
def test_a_batch_returns_the_messages_it_was_made_of(envelope: Parts, batch: list[bytes]) -> None:
    around = [(kind, part) for kind, part in envelope if kind not in BODIES]
    bodies: Parts = [(Section.DATA, data_section(message)) for message in batch]
    data = joined(sorted([*around, *bodies], key=lambda part: part[0]))
    assert batch_parts(data) == batch


def test_a_batch_of_a_short_data_section_is_read_too() -> None:
    assert batch_parts(section_bytes(Section.DATA, b"one") + data_section(b"two")) == [b"one", b"two"]


def test_a_batch_without_messages_has_none() -> None:
    assert batch_parts(b"") == []
    assert batch_parts(raw(Section.PROPERTIES)) == []


@pytest.mark.parametrize(
    "body",
    [
        section_bytes(Section.DATA, "a string"),
        section_bytes(Section.DATA, []),
        section_bytes(Section.DATA, None),
        b"\x00\x53\x75\x74\x00\x00\x00\x00",
        section_bytes(Section.VALUE, b"binary"),
        section_bytes(Section.SEQUENCE, [b"binary"]),
        data_section(b"one") + section_bytes(Section.DATA, Symbol("two")),
    ],
)
def test_a_batch_of_anything_but_binary_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed, match="only data sections of binary"):
        batch_parts(body)


def test_a_section_is_written_with_its_short_descriptor() -> None:
    value = Map.symbols({"x-opt-sequence-number": Long(5), "x-opt-enqueued-time": Timestamp(7), "n": ULong(1)})
    for section in Section:
        assert section_bytes(section, value) == b"\x00\x53" + struct.pack("B", section) + encode(value)
