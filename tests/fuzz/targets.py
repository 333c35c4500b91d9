"""Properties that must hold for all bytes: one function each, which fails with an AssertionError or any other error.

A property may refuse its input with the module's own error, and with no other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from syphon.amqp import Malformed, Message, Section, Span, batch_parts, content, decode, encode, split
from syphon.amqp.decoding import skip
from syphon.amqp.frames import read_performative
from syphon.amqp.section_edit import fields, keys
from syphon.backlog import NotForBacklog, Restored, Unrestorable, restore, stamps_of, to_backlog
from syphon.backlog.backlog_message import NOT_CARRIED
from syphon.backlog.layout_cache import Layout, layout_of, parse_layout
from syphon.model import TimeToLive
from syphon.servicebus.wire_session import match_disposition, match_transfer
from tests.support.amqp_equality import assert_same

NOW = 1_700_000_000_000
ALIASES = keys(("x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"))
SCHEDULED = keys(("x-opt-scheduled-enqueue-time",))
EXPIRY, CREATION, GROUP_ID = 8, 9, 10


def a_value_is_read_or_malformed(data: bytes) -> None:
    """Bytes are refused, or are a value that ends where `skip` says and that can be encoded again."""
    try:
        value, end = decode(data)
    except Malformed:
        with suppress(Malformed):
            assert 0 < skip(data, 0, len(data)) <= len(data)
        return
    assert 0 < end <= len(data)
    assert skip(data, 0, len(data)) == end
    assert_same(decode(encode(value))[0], value)


def sections_are_found_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        spans = split(data)
        assert b"".join(data[span.start : span.end] for span in spans) == data
    for read in (Message.header, Message.properties, Message.annotations, Message.application_properties):
        with suppress(Malformed):
            read(Message(data))
    with suppress(Malformed):
        batch_parts(data)


def a_frame_is_matched_as_it_is_decoded(data: bytes) -> None:
    transfer, disposition = match_transfer(data, 0, len(data)), match_disposition(data, 0, len(data))
    try:
        frame, payload = read_performative(data)
    except Malformed:
        assert transfer is None
        assert disposition is None
        return
    if transfer is not None:
        assert (frame.handle, frame.delivery_id, frame.delivery_tag, payload) == transfer  # type: ignore[attr-defined]
        assert not any((frame.more, frame.settled, frame.aborted))  # type: ignore[attr-defined]
    if disposition is not None:
        assert (frame.role, frame.first) == disposition  # type: ignore[attr-defined]
        assert frame.last in (None, frame.first)  # type: ignore[attr-defined]
        assert frame.settled  # type: ignore[attr-defined]


def a_cached_layout_equals_a_parsed_one(data: bytes) -> None:
    found: list[Layout | None] = []
    for find in (parse_layout, layout_of):
        try:
            found.append(find(data))
        except Malformed:
            found.append(None)
    assert found[0] == found[1]


def restoring_removes_the_aliases_and_nothing_else(data: bytes) -> None:  # M2, M4
    facts = stamps_of(data)
    for rule in TimeToLive:
        back = restore(data, enqueued_at=None, now=NOW, ttl=rule)
        if isinstance(back, Unrestorable):
            assert back.description.isprintable(), "the description goes into logs and terminals"
            continue
        assert back.stamps == facts
        assert back.size == len(back.payload)
        _assert_the_same_but_for_aliases(data, back.payload)
        aliasing_is_undone_by_restoring(back.payload)


def aliasing_is_undone_by_restoring(data: bytes) -> None:  # M1, M2
    with suppress(NotForBacklog):
        _assert_round_trip(data)


def _assert_round_trip(data: bytes) -> None:
    aliased = to_backlog(data, "orders")
    back = restore(aliased, enqueued_at=NOW, now=NOW)
    assert isinstance(back, Restored), back
    assert back.destination.name == "orders"
    _assert_the_same_but_for_aliases(aliased, back.payload)
    assert _tail(back.payload) == _tail(data)
    assert _pairs(back.payload, Section.APPLICATION_PROPERTIES) == _pairs(data, Section.APPLICATION_PROPERTIES)
    before, after = _fields(data, Section.PROPERTIES), _fields(back.payload, Section.PROPERTIES)
    assert after == before


def _assert_the_same_but_for_aliases(before: bytes, after: bytes) -> None:
    assert _tail(after) == _tail(before)
    kept = [pair for pair in _pairs(before, Section.APPLICATION_PROPERTIES) if pair[0] not in ALIASES]
    assert _pairs(after, Section.APPLICATION_PROPERTIES) == kept
    kept = [pair for pair in _pairs(before, Section.MESSAGE_ANNOTATIONS) if pair[0] not in NOT_CARRIED]
    now = _pairs(after, Section.MESSAGE_ANNOTATIONS)
    assert now[: len(kept)] == kept
    assert all(key in SCHEDULED for key, _ in now[len(kept) :])
    old, new = _fields(before, Section.PROPERTIES), _fields(after, Section.PROPERTIES)
    length = max(len(old), len(new))
    old, new = ([*found, *[b"\x40"] * (length - len(found))] for found in (old, new))
    for index in range(length):
        assert index in (EXPIRY, CREATION, GROUP_ID) or old[index] == new[index]


def _span(data: bytes, section: Section) -> Span | None:
    return next((span for span in split(data) if span.section == section), None)


def _tail(data: bytes) -> bytes:
    return b"".join(data[s.start : s.end] for s in split(data) if s.section > Section.APPLICATION_PROPERTIES)


def _pairs(data: bytes, section: Section) -> list[tuple[bytes, bytes]]:
    """The pairs of a map section as bytes, found by length alone."""
    span = _span(data, section)
    if span is None:
        return []
    pos, items = content(data, span, 0xC1)
    starts = [pos]
    for _ in range(items):
        starts.append(skip(data, starts[-1], span.end))
    found = [data[start:end] for start, end in pairwise(starts)]
    return list(zip(found[::2], found[1::2], strict=True))


def _fields(data: bytes, section: Section) -> list[bytes]:
    span = _span(data, section)
    return [data[start:end] for start, end in pairwise(fields(data, span))] if span is not None else []


Target = Callable[[bytes], None]
TARGETS: tuple[Target, ...] = (
    a_value_is_read_or_malformed,
    sections_are_found_or_malformed,
    a_frame_is_matched_as_it_is_decoded,
    a_cached_layout_equals_a_parsed_one,
    restoring_removes_the_aliases_and_nothing_else,
    aliasing_is_undone_by_restoring,
)
