"""The sender's trace context is found wherever senders write it, and nowhere else."""

from __future__ import annotations

import pytest

from syphon.amqp import Map, Properties, Section, Symbol, Value, data_section, encode, properties_bytes, section_bytes
from syphon.backlog import TraceContext, restore, to_backlog, trace_context

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
RECORDED = f"00-{TRACE}-{SPAN}-01"
FOUND = TraceContext(TRACE, SPAN)
APPLICATION, ANNOTATIONS = Section.APPLICATION_PROPERTIES, Section.MESSAGE_ANNOTATIONS


def message(section: Section, pairs: dict[Value, Value], body: bytes = b"x") -> bytes:
    made = section_bytes(section, Map(tuple(pairs.items())))
    properties = properties_bytes(Properties(message_id="m1"))
    parts = (made, properties) if section is ANNOTATIONS else (properties, made)
    return b"".join(parts) + data_section(body)


@pytest.mark.parametrize("section", [APPLICATION, ANNOTATIONS])
@pytest.mark.parametrize("key", ["traceparent", "Diagnostic-Id", Symbol("traceparent"), b"Diagnostic-Id"])
@pytest.mark.parametrize("value", [RECORDED, RECORDED.encode(), Symbol(RECORDED), f"01-{TRACE}-{SPAN}-03-more"])
def test_it_is_found_under_both_names_in_both_places_whatever_its_type(
    section: Section, key: Value, value: Value
) -> None:
    assert trace_context(message(section, {"other": "1", key: value, "tracestate": "a=b"})) == FOUND


def test_one_that_is_written_twice_counts() -> None:  # as the Python SDK does
    pairs = (encode("traceparent") + encode(RECORDED)) * 2
    application = b"\x00\x53\x74\xc1" + bytes((len(pairs) + 1, 4)) + pairs
    assert trace_context(properties_bytes(Properties(message_id="m1")) + application + data_section(b"")) == FOUND


@pytest.mark.parametrize(
    "value",
    [
        f"00-{TRACE}-{SPAN}-00",  # its sender did not record it: a link would lead nowhere
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"|{TRACE}.{SPAN}.",  # an older kind of Diagnostic-Id
        "",
        True,
        None,
    ],
)
def test_what_is_no_recorded_context_is_none(value: Value) -> None:
    assert trace_context(message(APPLICATION, {"traceparent": value})) is None


def test_a_body_is_not_read_and_what_is_no_message_has_none() -> None:
    inner = message(APPLICATION, {"traceparent": RECORDED})
    assert trace_context(message(APPLICATION, {"other": "1"}, body=inner)) is None
    assert trace_context(inner[:-4]) is None


def test_it_passes_the_backlog_unchanged() -> None:  # M2
    sent = message(APPLICATION, {"traceparent": RECORDED, "Diagnostic-Id": RECORDED, "tracestate": "a=b"})
    restored = restore(to_backlog(sent, "orders"), enqueued_at=None, now=0)
    assert not isinstance(restored, str)
    assert getattr(restored, "payload", b"") == sent
