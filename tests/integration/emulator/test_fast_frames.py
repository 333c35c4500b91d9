"""Frames that the emulator reads and writes without the codec: the codec gives the same result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from syphon.amqp.frames import Accepted, Disposition, Rejected, Transfer, read_performative
from syphon.emulator.amqp_front.fast_frames import (
    DELIVERY_OVERHEAD,
    accepted_frame,
    delivery_frame,
    match_completion,
)
from tests.support.amqp_strategies import examples, mutated

_uints = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 255, 256]))
_flags = st.sampled_from([None, True, False])
_dispositions: SearchStrategy[bytes] = st.builds(
    lambda role, first, last, settled, state, batchable: Disposition(
        role, first, first if last == "first" else last, settled, state, batchable
    ).to_bytes(),
    st.booleans(),
    _uints,
    st.one_of(st.none(), st.just("first"), _uints),
    _flags,
    st.sampled_from([None, Accepted(), Rejected()]),
    _flags,
)
CLIENTS = {
    "the Python SDK": "005315c00d06560152014056000053244540",
    "the pump": "005315c00d05417000000005404200532445",
}


@examples(500)
@given(st.one_of(_dispositions, mutated(_dispositions)))
def test_a_matched_completion_equals_the_decoded_one(body: bytes) -> None:
    matched = match_completion(body)
    if matched is None:
        return
    found, end = read_performative(body)
    assert isinstance(found, Disposition)
    assert end == len(body)
    assert (found.role, found.first, found.settled, found.state) == (True, *matched, Accepted())
    assert found.last in (None, found.first)


@pytest.mark.parametrize("client", CLIENTS)
def test_the_completions_of_clients_are_recognised(client: str) -> None:
    body = bytes.fromhex(CLIENTS[client])
    found, _ = read_performative(body)
    assert isinstance(found, Disposition)
    assert match_completion(body) == (found.first, False)


@given(st.integers(0, 4999), st.booleans(), _uints)
def test_an_answer_is_what_the_codec_writes(channel: int, role: bool, delivery_id: int) -> None:
    frame = accepted_frame(channel, role, delivery_id)
    assert (int.from_bytes(frame[:4], "big"), frame[4:6], int.from_bytes(frame[6:8], "big")) == (
        len(frame),
        b"\x02\x00",
        channel,
    )
    assert read_performative(frame[8:]) == (Disposition(role, delivery_id, None, True, Accepted()), len(frame) - 8)


@given(st.integers(0, 255), _uints, st.binary(max_size=32), st.binary(max_size=100), st.booleans())
def test_a_delivery_is_what_the_codec_writes(
    handle: int, delivery_id: int, tag: bytes, payload: bytes, settled: bool
) -> None:
    frame = delivery_frame(7, handle, delivery_id, tag, payload, settled)
    assert int.from_bytes(frame[:4], "big") == len(frame) == DELIVERY_OVERHEAD + len(tag) + len(payload)
    found, end = read_performative(frame[8:])
    assert found == Transfer(handle, delivery_id, tag, 0, settled, False)
    assert frame[8 + end :] == payload
