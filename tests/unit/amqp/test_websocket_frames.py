"""Frames of AMQP over WebSockets, against wsproto: whatever arrives, and however it is cut, both read the same."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wsproto.connection import CLIENT, SERVER, Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

import syphon.amqp.websocket_frames as frames
from syphon.amqp.websocket_frames import FrameSorter, client_message, server_message

SIZES = st.sampled_from([0, 1, 3, 4, 5, 125, 126, 127, 1000, 65_535, 65_536, 70_001])
PARTS = st.lists(SIZES, min_size=2, max_size=4)
CONTROL: list[Event] = [Ping(payload=b"there?"), Pong(payload=b""), Ping(payload=b"")]


def payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def messages(sender: Connection, items: list[int | list[int] | Event]) -> bytes:
    """Whole messages, messages in several frames with a ping between them, and control frames."""
    data = b""
    for item in items:
        if isinstance(item, int):
            data += sender.send(BytesMessage(data=payload(item)))
        elif isinstance(item, list):
            for place, size in enumerate(item):
                data += sender.send(BytesMessage(data=payload(size), message_finished=place == len(item) - 1))
                data += sender.send(Ping(payload=b"between")) if place == 0 else b""
        else:
            data += sender.send(item)
    return data


def as_wsproto_reads(kind: ConnectionType, pieces: list[bytes]) -> tuple[bytes, list[Event]]:
    """The payload, and all other events up to the end of the connection."""
    connection = Connection(kind)
    inside, others = b"", list[Event]()
    for piece in pieces:
        connection.receive_data(piece)
        for event in connection.events():
            if isinstance(event, BytesMessage):
                inside += event.data
            elif not isinstance(event, TextMessage) or event.message_finished:
                others.append(event)
            if isinstance(event, CloseConnection):
                return inside, others
    return inside, others


def as_sorted(kind: ConnectionType, pieces: list[bytes]) -> tuple[bytes, list[Event]]:
    connection, sorter = Connection(kind), FrameSorter(masked=kind is SERVER)
    inside, others = b"", list[Event]()
    for data in pieces:
        for is_payload, piece in sorter.sort(data):
            if is_payload:
                inside += piece
                continue
            connection.receive_data(bytes(piece))
            for event in connection.events():
                if isinstance(event, BytesMessage):
                    inside += event.data
                elif not isinstance(event, TextMessage) or event.message_finished:
                    others.append(event)
                if isinstance(event, CloseConnection):
                    return inside, others
    return inside, others


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in itertools.pairwise(bounds)]


PLACES = st.lists(st.integers(0, 2**20), max_size=12)


@pytest.mark.parametrize("kind", [CLIENT, SERVER], ids=["the client", "the server"])
@given(items=st.lists(SIZES | PARTS | st.sampled_from(CONTROL), max_size=6), places=PLACES)
@example(items=[5, 126], places=list(range(0, 200)))
@example(items=[[3, 0, 70_001], 5], places=[1, 2, 3, 4, 5, 6, 7, 70_010])
def test_every_frame_is_read_however_it_is_cut(
    kind: ConnectionType, items: list[int | list[int] | Event], places: list[int]
) -> None:
    data = messages(Connection(SERVER if kind is CLIENT else CLIENT), items)
    pieces = cut(data, places)
    assert as_sorted(kind, pieces) == as_wsproto_reads(kind, pieces)


@pytest.mark.parametrize("kind", [CLIENT, SERVER], ids=["the client", "the server"])
@given(data=st.data(), places=PLACES)
def test_damaged_frames_end_the_connection_as_with_wsproto(
    kind: ConnectionType, data: st.DataObject, places: list[int]
) -> None:
    items = data.draw(st.lists(st.sampled_from([0, 3, 126, 300]) | st.sampled_from(CONTROL), min_size=1, max_size=4))
    damaged = bytearray(messages(Connection(SERVER if kind is CLIENT else CLIENT), list(items)))
    for place in data.draw(st.lists(st.integers(0, min(20, len(damaged) - 1)), min_size=1, max_size=3)):
        damaged[place] = data.draw(st.integers(0, 255))
    # With empty frames at the end, which complete each head: wsproto refuses some heads before they are complete.
    pieces = cut(bytes(damaged) + bytes(16), places)
    ours, theirs = as_sorted(kind, pieces), as_wsproto_reads(kind, pieces)
    assert ours[1] == theirs[1]
    assert ours[0] == theirs[0]


@pytest.mark.parametrize("kind", [CLIENT, SERVER])
@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
def test_what_is_made_here_is_read_by_wsproto(kind: ConnectionType, size: int) -> None:
    data = payload(size)
    made = client_message(memoryview(data), b"\x01\xfe\x55\xaa") if kind is SERVER else server_message(data)
    assert made is not None
    assert as_wsproto_reads(kind, [made]) == (data, [])
    if kind is SERVER and size > 100:
        assert data not in made


@given(items=st.lists(SIZES, min_size=1, max_size=3), places=PLACES)
def test_without_the_function_in_c_masked_frames_are_left_to_wsproto(items: list[int], places: list[int]) -> None:
    pieces = cut(messages(Connection(CLIENT), list(items)), places)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "apply_mask", None)
        assert client_message(b"x", b"1234") is None
        assert not any(is_payload for data in pieces for is_payload, _ in FrameSorter(masked=True).sort(data))
        assert as_sorted(SERVER, pieces) == as_wsproto_reads(SERVER, pieces)


def test_payload_is_passed_on_before_its_frame_is_complete() -> None:
    sorter = FrameSorter(masked=True)
    made = client_message(payload(1000), b"abcd")
    assert made is not None
    head, rest = made[:300], made[300:]
    (is_payload, first), *_ = sorter.sort(head)
    assert is_payload
    assert bytes(first) == payload(1000)[: 300 - 8]
    ((_, second),) = sorter.sort(rest)
    assert bytes(first) + bytes(second) == payload(1000)
