"""Adding aliases: what must be cleared for a backlog queue, and what cannot be put there (M1)."""

from __future__ import annotations

import pytest

from syphon.amqp import (
    Header,
    Int,
    Map,
    Message,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UInt,
    Value,
    data_section,
    encode,
    header_bytes,
    properties_bytes,
    section_bytes,
)
from syphon.backlog import NotForBacklog, Restored, destination_of, restore, to_backlog
from syphon.model import EntityPath
from syphon.model.errors import SyphonError
from tests.support.backlog_messages import NOW

BODY = data_section(b"body")


def annotated(annotations: dict[str, Value]) -> bytes:
    return section_bytes(Section.MESSAGE_ANNOTATIONS, Map.symbols(annotations)) + BODY


def refusal(payload: bytes, path: str = "orders") -> str:
    with pytest.raises(NotForBacklog) as caught:
        to_backlog(payload, path)
    assert isinstance(caught.value, SyphonError)
    return str(caught.value)


def test_a_bare_body_gets_its_path_and_nothing_else() -> None:  # M1
    durable, path = header_bytes(Header(durable=True)), Map.of({"x-ms-path": "orders"})
    expected = durable + section_bytes(Section.APPLICATION_PROPERTIES, path) + BODY
    assert to_backlog(durable + BODY, "orders") == expected


def test_even_no_bytes_at_all_are_a_message() -> None:  # M1: a ping has no body
    back = restore(to_backlog(b"", "orders"), enqueued_at=None, now=NOW)
    assert isinstance(back, Restored)
    assert back.payload == b""


def test_a_time_to_live_is_written_as_dotnet_writes_a_time_span() -> None:  # M1, M3
    aliased = to_backlog(header_bytes(Header(ttl=UInt(60_000))) + BODY, "orders")
    written = encode("x-ms-timetolive") + b"\x00\xa3\x16com.microsoft:timespan\x81" + (600_000_000).to_bytes(8, "big")
    assert written in aliased


def test_a_schedule_that_is_null_was_never_set() -> None:  # M1
    aliased = Message(to_backlog(annotated({"x-opt-scheduled-enqueue-time": None, "mine": Int(1)}), "orders"))
    assert aliased.annotations() == Map.symbols({"mine": Int(1)})
    assert aliased.application_properties() == Map.of({"x-ms-path": "orders"})


def test_a_partition_key_equal_to_the_session_id_stays_where_it_is() -> None:  # M1, S8: the backlog is not partitioned
    payload = (
        section_bytes(Section.MESSAGE_ANNOTATIONS, Map.symbols({"x-opt-partition-key": "s"}))
        + properties_bytes(Properties(group_id="s", group_sequence=UInt(3)))
        + BODY
    )
    aliased = Message(to_backlog(payload, "orders"))
    assert aliased.annotations().get("x-opt-partition-key") == "s"
    assert aliased.properties() == Properties(group_sequence=UInt(3))
    back = restore(aliased.data, enqueued_at=None, now=NOW)
    assert isinstance(back, Restored)
    assert (back.payload, back.session_id, back.partition_key) == (payload, "s", "s")


def test_delivery_annotations_are_not_lost_on_the_way_in() -> None:
    hop = section_bytes(Section.DELIVERY_ANNOTATIONS, Map.symbols({"hop": Int(1)}))
    payload = header_bytes(Header(ttl=UInt(5))) + hop + annotated({"x-opt-scheduled-enqueue-time": Timestamp(NOW)})
    assert Message(to_backlog(payload, "orders")).raw(Section.DELIVERY_ANNOTATIONS) == hop


@pytest.mark.parametrize("alias", ["x-ms-path", "x-ms-sessionid", "x-ms-timetolive", "x-ms-scheduledenqueuetimeutc"])
def test_a_message_that_has_an_alias_is_not_aliased_again(alias: str) -> None:  # M1
    told = refusal(section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"a": Int(1), alias: None})) + BODY)
    assert alias in told
    assert "restore it before" in told


@pytest.mark.parametrize("path", ["", "  ", "x" * 261])
def test_a_path_that_could_not_be_used_later_is_refused_now(path: str) -> None:  # M1, M4
    assert "1 to 260 characters" in refusal(BODY, path)


def test_the_longest_path_is_allowed() -> None:  # M1
    assert destination_of(to_backlog(BODY, "x" * 260)) == EntityPath.of("x" * 260)


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (header_bytes(Header(ttl=Int(5))) + BODY, "time to live (header ttl) is int 5; expected a uint"),
        (
            header_bytes(Header(ttl=UInt(0))) + BODY,
            "time to live (header ttl) is uint 0; expected a uint of milliseconds, 1 or more",
        ),
        (properties_bytes(Properties(group_id=b"s")) + BODY, "session id (group-id) is binary b's'; expected a"),
        (properties_bytes(Properties(group_id=Symbol("s"))) + BODY, "session id (group-id) is symbol 's'"),
        (annotated({"x-opt-scheduled-enqueue-time": "soon"}), "is string 'soon'; expected a timestamp"),
        (annotated({"x-opt-scheduled-enqueue-time": Timestamp(2**62)}), "a timestamp between the years 1 and 9999"),
        (b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff" + BODY, "a string is not UTF-8"),  # the message id
        (b"\x00\x53\x72\xc1\x19\x02" + encode(Symbol("x-opt-partition-key")) + b"\xa1\x01\xff" + BODY, "not UTF-8"),
        (b"\x00\x53\x75", "not well-formed AMQP 1.0"),
        (b"\x00\x53\x74\x45", "not well-formed AMQP 1.0"),
    ],
)
def test_a_message_that_could_not_be_restored_is_refused(payload: bytes, told: str) -> None:  # M1, M4
    assert told in refusal(payload)
