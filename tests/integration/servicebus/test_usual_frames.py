"""Frames that a regular expression recognises: the result equals decoding, and the frames of brokers are recognised."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from syphon.amqp import Malformed, decode
from syphon.amqp.frames import Accepted, Disposition, Rejected, Transfer, read_performative
from syphon.servicebus.wire_session import match_disposition, match_transfer
from tests.support.amqp_strategies import examples, mutated

TOKEN = bytes(range(16))
PAYLOAD = b"\x00\x53\x75\xa0\x04body"


def transfer_of(*fields: Any) -> bytes:
    return Transfer(*fields).to_bytes()


_numbers = st.one_of(st.none(), st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 255, 256]))
_flags = st.sampled_from([None, True, False])
_tags = st.one_of(st.none(), st.just(TOKEN), st.binary(max_size=20))
_states = st.sampled_from([None, Accepted(), Rejected()])

_transfers: SearchStrategy[bytes] = st.builds(
    lambda head, tag, body, tail, count, payload: transfer_of(*head, tag, *body, *tail[:count]) + payload,
    st.tuples(st.integers(0, 300), _numbers),
    _tags,
    st.tuples(_numbers, _flags, _flags),
    st.tuples(st.none(), st.none(), _flags, _flags, _flags),
    st.integers(0, 5),
    st.just(PAYLOAD),
)
_dispositions: SearchStrategy[bytes] = st.builds(
    lambda role, first, last, settled, state, batchable: Disposition(
        role, first, last, settled, state, batchable
    ).to_bytes(),
    st.booleans(),
    st.integers(0, 2**32 - 1),
    _numbers,
    _flags,
    _states,
    _flags,
)


def in_a_buffer(body: bytes) -> tuple[bytes, int, int]:
    """A frame's body between other bytes."""
    return b"before" + body + b"\x40\x40\x41behind", 6, 6 + len(body)


@examples(500)
@given(st.one_of(_transfers, mutated(_transfers)))
def test_a_matched_transfer_equals_the_decoded_one(body: bytes) -> None:
    data, start, end = in_a_buffer(body)
    matched = match_transfer(data, start, end)
    if matched is None:
        return
    handle, delivery_id, token, payload = matched
    transfer, behind = read_performative(body)
    assert isinstance(transfer, Transfer)
    assert (transfer.handle, transfer.delivery_id, transfer.delivery_tag) == (handle, delivery_id, token)
    assert data[payload:end] == body[behind:]
    assert not any((transfer.settled, transfer.more, transfer.aborted))


@examples(500)
@given(st.one_of(_dispositions, mutated(_dispositions)))
def test_a_matched_disposition_equals_the_decoded_one(body: bytes) -> None:
    data, start, end = in_a_buffer(body)
    matched = match_disposition(data, start, end)
    if matched is None:
        return
    found, _ = read_performative(body)
    assert isinstance(found, Disposition)
    assert (found.role, found.first) == matched
    assert found.last in (None, found.first)
    assert (found.settled, found.state) == (True, Accepted())


@pytest.mark.parametrize("handle", [0, 7, 300])
@pytest.mark.parametrize("delivery_id", [0, 200, 70_000])
@pytest.mark.parametrize("tail", [(), (None, None, False, False, True)])
def test_a_message_in_one_frame_is_recognised(handle: int, delivery_id: int, tail: tuple[bool | None, ...]) -> None:
    # With six fields, or with all eleven of them.
    body = transfer_of(handle, delivery_id, TOKEN, 0, False, False, *tail) + PAYLOAD
    data, start, end = in_a_buffer(body)
    assert match_transfer(data, start, end) == (handle, delivery_id, TOKEN, end - len(PAYLOAD))


@pytest.mark.parametrize("delivery_id", [0, 200, 70_000])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("batchable", [None, False, True])
def test_an_accepted_delivery_is_recognised(delivery_id: int, last: bool, batchable: bool | None) -> None:
    body = Disposition(False, delivery_id, delivery_id if last else None, True, Accepted(), batchable).to_bytes()
    assert match_disposition(*in_a_buffer(body)) == (False, delivery_id)


@pytest.mark.parametrize(
    "frame",
    [
        Transfer(0, 5, TOKEN, 0, False, True),
        Transfer(0, 5, TOKEN, 0, True, False),
        Transfer(0, None, TOKEN, 0),
        Transfer(0, 5, b"short", 0, False, False),
        Transfer(0, 5, TOKEN, 0, False, False, None, None, None, True),
        Transfer(0, 5, TOKEN, 0, False, False, None, None, False, True, True),
    ],
)
def test_another_transfer_is_left_to_the_decoder(frame: Transfer) -> None:
    assert match_transfer(*in_a_buffer(frame.to_bytes() + PAYLOAD)) is None


@pytest.mark.parametrize(
    "frame",
    [
        Disposition(False, 5, 6, True, Accepted()),
        Disposition(False, 5, None, False, Accepted()),
        Disposition(False, 5, None, True, Rejected()),
        Disposition(False, 5, None, True),
    ],
)
def test_another_disposition_is_left_to_the_decoder(frame: Disposition) -> None:
    assert match_disposition(*in_a_buffer(frame.to_bytes())) is None


@pytest.mark.parametrize(("place", "name"), [(4, "size"), (5, "count")])
def test_a_frame_whose_sizes_do_not_fit_is_left_to_the_decoder(place: int, name: str) -> None:
    def wrong(body: bytes) -> bytes:
        return body[:place] + bytes((body[place] + 1,)) + body[place + 1 :]

    transfer = wrong(Transfer(0, 5, TOKEN, 0, False, False).to_bytes()) + PAYLOAD
    assert match_transfer(*in_a_buffer(transfer)) is None, name
    disposition = wrong(Disposition(False, 5, None, True, Accepted()).to_bytes())
    assert match_disposition(*in_a_buffer(disposition)) is None, name
    for body in (transfer, disposition):
        with pytest.raises(Malformed):
            decode(body, 3)


def test_a_disposition_with_bytes_after_it_is_left_to_the_decoder() -> None:
    body = Disposition(False, 5, None, True, Accepted()).to_bytes()
    assert match_disposition(*in_a_buffer(body + b"?")) is None
    assert match_disposition(*in_a_buffer(body[:4] + bytes((body[4] + 1,)) + body[5:] + b"?")) is None
