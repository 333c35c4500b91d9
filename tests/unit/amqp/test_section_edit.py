"""Editing sections as bytes agrees with decoding them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syphon.amqp import Int, Malformed, Map, Section, Symbol, Value, decode, encode, split
from syphon.amqp.section_edit import extract, fields, keys, outline, with_fields
from tests.support.amqp_strategies import examples, joined, maps, messages, mutated, values

NAMES = keys(("name", "other"))
A_BODY = b"\x00\x53\x75\xa0\x01x"


def map_section(value: Map) -> bytes:
    return b"\x00\x53\x74" + encode(value)


@examples(300)
@given(st.one_of(messages.map(joined), mutated(messages.map(joined))))
def test_an_outline_finds_what_splitting_finds(data: bytes) -> None:
    try:
        spans = split(data)
    except Malformed:
        with pytest.raises(Malformed):
            outline(data)
        return
    place = {span.section: span for span in spans}
    bodies = [span.start for span in spans if span.section > Section.APPLICATION_PROPERTIES]
    assert outline(data) == (
        place.get(Section.HEADER),
        place.get(Section.MESSAGE_ANNOTATIONS),
        place.get(Section.PROPERTIES),
        place.get(Section.APPLICATION_PROPERTIES),
        bodies[0] if bodies else len(data),
    )


@pytest.mark.parametrize(
    "data",
    [
        "005370 c00100 005370 c00100",
        "005370 c00100 005370 c00100 005375 b000000001 78",
        "005374 c10100 005372 c10100",
        "005374 c10100 005372 c10100 005375 b000000001 78",
        "005375 b000000001 78 ff",
        "005375 b000000001 78 0053",
        "005375 b000000001 78 005374 c10100",
        "005375 b000000001 78 005377 40",
        "005370 c009",
        "005375 b0ffffffff",
        "005379 c00100",
        "005370",
        "00",
    ],
)
def test_sections_that_do_not_belong_there_are_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        outline(bytes.fromhex(data))


@examples(200)
@given(maps(values), values, st.sampled_from(["name", Symbol("name")]))
def test_a_pair_is_taken_out_and_the_others_stay_byte_by_byte(others: Map, value: Value, key: str) -> None:
    pairs = [pair for pair in others.pairs if not (isinstance(pair[0], str) and pair[0] in ("name", "other"))]
    middle = len(pairs) // 2
    data = map_section(Map((*pairs[:middle], (key, value), *pairs[middle:])))
    taken = extract(data, split(data)[0], NAMES)
    assert taken.remaining(data) == b"".join(encode(one) + encode(other) for one, other in pairs)
    assert taken.pairs == len(pairs)
    assert {name: data[start:end] for name, (start, end) in taken.found.items()} == {"name": encode(value)}


@examples(200)
@given(st.lists(values, max_size=8))
def test_the_fields_of_a_list_are_found_where_they_stand(items: list[Value]) -> None:
    data = b"\x00\x53\x73" + encode(items)
    starts = fields(data, split(data)[0])
    assert [data[start:end] for start, end in pairwise(starts)] == [encode(item) for item in items]


@examples(200)
@given(st.lists(values, max_size=8), st.dictionaries(st.integers(0, 12), values, min_size=1, max_size=3))
def test_fields_are_changed_and_the_others_stay_byte_by_byte(items: list[Value], changes: dict[int, Value]) -> None:
    data = b"\x00\x53\x73" + encode(items)
    encoded = {index: encode(value) for index, value in changes.items()}
    changed = with_fields(data, split(data)[0], Section.PROPERTIES, encoded)
    expected = [encode(item) for item in items] + [b"\x40"] * (max(changes) + 1 - len(items))
    for index, value in encoded.items():
        expected[index] = value
    span = split(changed)[0]
    assert changed[span.start : span.value] == b"\x00\x53\x73"
    assert [changed[start:end] for start, end in pairwise(fields(changed, span))] == expected
    if not items:
        assert with_fields(b"", None, Section.PROPERTIES, encoded) == changed


def test_a_list_that_grows_too_long_for_the_short_form_takes_the_long_one() -> None:
    data = b"\x00\x53\x73" + encode(["x" * 200])
    changed = with_fields(data, split(data)[0], Section.PROPERTIES, {1: encode("y" * 100)})
    assert changed[3] == 0xD0
    assert decode(changed, 3)[0] == ["x" * 200, "y" * 100]


@pytest.mark.parametrize("size", range(240, 262))
def test_a_list_of_any_length_is_written_as_it_can_be_read(size: int) -> None:
    data = b"\x00\x53\x73\x45"
    changed = with_fields(data, split(data)[0], Section.PROPERTIES, {0: encode("x" * size)})
    assert split(changed)[0].end == len(changed)
    assert decode(changed, 3)[0] == ["x" * size]


BROKEN = [
    "45",
    "c0 01 00",
    "40",
    "c1 00",
    "c1 01 01",
    "c1 02 02 40",
    "c1 03 04 40 40",
    "d1 00000004 00000001",
    "c1 03 02 a1 05",
    "c1 05 02 a1 00 a1 05",
    "c1 04 02 a1 01 61",
    "c1 05 02 40 40 40 40",
    "d1 00000002 0000",
    "c1 04 02 40 b0 00",
    "c1 03 02 3f 40",
    "c1 03 02 40 3f",
]


@pytest.mark.parametrize("content", BROKEN)
@pytest.mark.parametrize("behind", [b"", A_BODY])
def test_a_map_that_is_none_is_malformed(content: str, behind: bytes) -> None:
    raw = bytes.fromhex(content)
    data = b"\x00\x53\x74" + raw + behind
    span = split(b"\x00\x53\x74\x40")[0]._replace(end=3 + len(raw))
    with pytest.raises(Malformed):
        extract(data, span, NAMES)


NO_LISTS = ["c1 01 00", "40", "c0 00", "c0 02 02 40", "c0 03 01 40 40", "c0 02 01 a1", "d0 0000"]


@pytest.mark.parametrize("content", NO_LISTS)
@pytest.mark.parametrize("behind", [b"", A_BODY])
def test_a_list_that_is_none_is_malformed(content: str, behind: bytes) -> None:
    raw = bytes.fromhex(content)
    span = split(b"\x00\x53\x73\x40")[0]._replace(end=3 + len(raw))
    with pytest.raises(Malformed):
        fields(b"\x00\x53\x73" + raw + behind, span)


def test_a_name_that_occurs_twice_is_malformed() -> None:
    data = map_section(Map((("name", Int(1)), (Symbol("name"), Int(2)))))
    with pytest.raises(Malformed, match="name twice"):
        extract(data, split(data)[0], NAMES)
