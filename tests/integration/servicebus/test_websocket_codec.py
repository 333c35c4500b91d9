"""The WebSocket between socket and wire: it goes on where the SDK stopped, and ends as a connection does."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import websocket
from wsproto.connection import SERVER, Connection
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import Opcode

import syphon.amqp.websocket_frames as websocket_frames
from syphon.amqp.frames import Accepted, Attach, Begin, Close, Disposition, Error, Flow, Source, Target, frame
from syphon.model.errors import DestinationBusy
from syphon.servicebus.links import RawSender
from syphon.servicebus.sdk_sockets import OpenSocket
from syphon.servicebus.websocket_codec import WebSocketCodec, take_over
from syphon.servicebus.wire_session import CHANNEL, Wire
from tests.support.far_websocket import FarWebSocket

# --- taking over -----------------------------------------------------------------------------------------------------


def server_bytes() -> tuple[bytes, bytes, list[int]]:
    """Frames of all kinds and lengths; the bytes inside them; and the places to cut at."""
    server = Connection(SERVER)
    chance = random.Random(7)
    pieces = [chance.randbytes(size) for size in (5, 125, 126, 300, 65_535, 65_536, 9, 0, 11)]
    data = b"".join(server.send(BytesMessage(data=piece)) for piece in pieces[:6])
    small = len(data)
    # One message in three frames, with a ping between them.
    data += server.send(BytesMessage(data=pieces[6], message_finished=False))
    data += server.send(BytesMessage(data=pieces[7], message_finished=False))
    data += server.send(Ping(payload=b"there?"))
    data += server.send(BytesMessage(data=pieces[8], message_finished=True))
    assert data[small] == Opcode.BINARY  # without the bit of the last frame
    # Every byte of the short frames, and of the heads of the long ones.
    cuts = [*range(700), *range(65_500, 66_200), *range(small - 5, len(data) + 1)]
    return data, b"".join(pieces), [cut for cut in cuts if cut <= len(data)]


def test_no_byte_is_lost_wherever_the_sdk_stopped() -> None:
    data, inside, cuts = server_bytes()
    for cut in random.Random(7).sample(cuts, 300) + cuts[-60:]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.sendall(data[:cut])
            stopped = websocket.WebSocket(skip_utf8_validation=True)
            stopped.sock, stopped.connected = ours, True
            stopped.settimeout(0.001)
            read = b""
            try:
                while True:
                    read += stopped.recv()  # type: ignore[operator]  # binary messages only
            except websocket.WebSocketTimeoutException:
                pass
            taken, goes_on = take_over(stopped)
            assert taken is ours
            assert stopped.sock is None
            read += b"".join(goes_on.decode(data[cut:]))
            assert read == inside, f"cut after {cut} bytes"
            assert goes_on.ended is None


# --- masking ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 200_000])
@pytest.mark.parametrize("way", ["of websockets", "of wsproto"])
def test_what_is_sent_is_masked_and_a_server_can_read_it(size: int, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert websocket_frames.apply_mask is not None, (
        "this version of websockets has no function in C, which is much faster"
    )
    if way == "of wsproto":
        monkeypatch.setattr(websocket_frames, "apply_mask", None)
    data = random.Random(7).randbytes(size)
    sent = WebSocketCodec().encode(memoryview(data))
    assert size < 100 or data not in sent
    server = Connection(SERVER)
    server.receive_data(sent)
    (message,) = server.events()
    assert message == BytesMessage(data=data, frame_finished=True, message_finished=True)


# --- control frames --------------------------------------------------------------------------------------------------


@dataclass
class Talk:
    """A wire, and the far end of its WebSocket."""

    wire: Wire
    far: FarWebSocket


@pytest.fixture
def talk() -> Iterator[Talk]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    wire = Wire(OpenSocket(ours, b"", 65_536, 60.0, 60.0, WebSocketCodec()), "contoso")
    with FarWebSocket(theirs) as far:
        far.sendall(frame(0, Begin(CHANNEL, 0, 5000, 5000).to_bytes()))
        wire.read()
        yield Talk(wire, far)
        wire.close()


def test_a_ping_is_answered_with_the_next_write(talk: Talk) -> None:
    talk.wire.flush()
    talk.far.recv(1000)
    for number in range(3):
        talk.far.post(Ping(payload=b"%d" % number))
    talk.wire.read()
    assert talk.wire.wants_to_write()
    talk.wire.write(b"more")
    talk.wire.flush()
    assert talk.far.recv(1000) == b"more"
    assert talk.far.heard == [Pong(payload=b"2")]  # of several, the last one is enough


def test_an_answer_waits_for_the_end_of_a_frame_that_is_being_written(talk: Talk) -> None:
    payload = random.Random(7).randbytes(2**21)
    talk.wire.write(payload)
    talk.wire.flush()
    assert talk.wire.wants_to_write()  # the socket has taken a part of the frame
    talk.far.post(Ping(payload=b"there?"))
    talk.wire.read()
    received = b""
    while talk.wire.wants_to_write() or not talk.far.heard:
        talk.wire.flush()
        received += talk.far.recv(2**20)
    while len(received) < len(payload):
        received += talk.far.recv(2**20)
    assert received.endswith(payload)
    assert talk.far.heard == [Pong(payload=b"there?")]


def test_an_unsolicited_pong_changes_nothing(talk: Talk) -> None:
    talk.far.post(Pong(payload=b"hello"))
    talk.wire.read()
    assert talk.wire.failure is None


def test_a_close_frame_is_a_lost_connection_and_is_answered(talk: Talk) -> None:  # D10
    sender: RawSender[str] = RawSender(talk.wire, "orders")
    talk.wire.write(b"never sent")
    talk.far.post(CloseConnection(code=1001, reason="restarting"))
    talk.wire.read()
    assert str(talk.wire.failure) == "contoso closed the WebSocket (1001: restarting)."
    assert sender.error is talk.wire.failure
    assert talk.far.recv(1000) == b""
    assert talk.far.is_closed


def test_an_outcome_counts_although_the_peer_closes_and_disconnects(talk: Talk) -> None:  # S2, D10
    sender: RawSender[str] = RawSender(talk.wire, "orders")
    talk.far.sendall(
        frame(0, Attach(sender.name, 0, True, source=Source("there"), target=Target("here")).to_bytes())
        + frame(0, Flow(0, 5000, 0, 5000, 0, 0, 2).to_bytes())
    )
    talk.wire.read()
    for ticket in ("accepted", "unknown"):
        sender.send(b"x", 0, ticket)
    talk.wire.flush()
    talk.far.sendall(frame(0, Disposition(True, 0, None, True, Accepted()).to_bytes()))
    talk.far.post(CloseConnection(code=1001))
    talk.far.close()  # our answer to its farewell cannot be written any more
    talk.wire.read()
    assert talk.wire.failure is not None
    assert [(sent.ticket, sent.unknown) for sent in sender.results] == [("accepted", False), ("unknown", True)]


def test_the_reason_in_an_amqp_close_counts_more_than_the_close_frame(talk: Talk) -> None:  # S5
    close = Close(Error("com.microsoft:server-busy", "wait"))
    talk.far.sendall(frame(0, close.to_bytes()))
    talk.far.post(CloseConnection(code=1000))
    talk.wire.read()
    assert isinstance(talk.wire.failure, DestinationBusy)


def test_the_end_of_the_connection_without_a_close_frame_is_a_lost_connection(talk: Talk) -> None:
    talk.far.wrapped.shutdown(socket.SHUT_RDWR)
    talk.wire.read()
    assert str(talk.wire.failure) == "contoso closed the connection."


@pytest.mark.parametrize("broken", [b"\x82\x84abcdAMQP", b"\x83\x00", b"\x82\x7e\x00\x01x"])
def test_bytes_that_are_no_frames_are_a_lost_connection(talk: Talk, broken: bytes) -> None:
    talk.far.wrapped.sendall(broken)
    talk.wire.read()
    assert "contoso broke the rules of WebSockets" in str(talk.wire.failure)


def test_text_is_a_lost_connection(talk: Talk) -> None:
    talk.far.post(TextMessage(data="hello"))
    talk.wire.read()
    assert "contoso broke the rules of WebSockets: a text message." in str(talk.wire.failure)


def test_a_wire_that_closes_says_farewell(talk: Talk) -> None:
    talk.wire.close()
    while talk.far.recv(1000):
        pass
    assert talk.far.is_closed
