"""What the broker wrote onto a message."""

from __future__ import annotations

from syphon.amqp import Int, Long, Map, Section, Timestamp, UInt, Value, data_section, encode
from syphon.backlog import BrokerStamps, stamps_of
from tests.support.backlog_messages import NOW

STAMPS: dict[str, Value] = {
    "x-opt-sequence-number": Long(70_000),
    "x-opt-enqueued-time": Timestamp(NOW - 5_000),
    "x-opt-locked-until": Timestamp(NOW),
    "x-opt-enqueue-sequence-number": Long(0),
    "x-opt-message-state": Int(0),
}


def test_a_stamp_that_is_no_number_says_nothing() -> None:
    values: list[Value] = ["seven..", True, b"1234567", 1.0, None]
    for value in values:
        annotations = Map.symbols(dict.fromkeys(list(STAMPS)[:3], value))
        data = b"\x00\x53\x72" + encode(annotations) + data_section(b"body")
        assert stamps_of(data) == BrokerStamps()


def stamped(behind: bytes) -> bytes:
    header = b"\x00\x53" + bytes((Section.HEADER,)) + encode([True, None, None, None, UInt(3)])
    return header + b"\x00\x53\x72" + encode(Map.symbols(STAMPS)) + behind


def test_facts_are_read_whatever_the_sender_wrote_behind_them() -> None:  # D9: a dead letter is found by its number
    for behind in (data_section(b"body"), data_section(b"body")[:-2], b"\x00\x53\x74\xc1", b"\xff not AMQP"):
        assert stamps_of(stamped(behind)) == BrokerStamps(70_000, NOW - 5_000, NOW, 3)


def test_what_the_broker_wrote_and_is_cut_off_says_nothing() -> None:
    whole = stamped(b"")
    assert {stamps_of(whole[:end]) for end in range(len(whole) - 20, len(whole))} == {BrokerStamps()}
