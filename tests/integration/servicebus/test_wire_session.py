"""A wire joins frames to messages and splits messages into frames, over a socket whose other end is the test."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from syphon.amqp.frames import (
    EMPTY_FRAME,
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Target,
    Transfer,
    frame,
    read_performative,
)
from syphon.emulator.tls import ServerTls, server_tls
from syphon.model.errors import DestinationBusy, Interrupted
from syphon.servicebus.links import Arrival, RawReceiver, RawSender
from syphon.servicebus.management_node import RequestLink
from syphon.servicebus.sdk_sockets import OpenSocket
from syphon.servicebus.websocket_codec import WebSocketCodec
from syphon.servicebus.wire_session import CHANNEL, NoMoreLinks, Wire
from tests.support.far_websocket import FarWebSocket

TAG, OTHER_TAG = bytes(16), bytes(range(16))
FRAME_SIZE = 1024


@dataclass
class Peer:
    """The far end of a wire: it sends what a test tells it to, and records what it receives."""

    socket: socket.socket | FarWebSocket
    wire: Wire
    clock: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(now=1000.0))

    def says(self, performative: Composite, payload: bytes = b"") -> None:
        self.socket.sendall(frame(0, performative.to_bytes() + payload))
        self.wire.read()

    def attaches(self, link: RawReceiver | RawSender[str], handle: int) -> None:
        role = isinstance(link, RawSender)
        self.says(Attach(link.name, handle, role, source=Source("there"), target=Target("here")))

    def hears(self) -> list[bytes]:
        """The bodies of all frames that were sent to it."""
        self.wire.flush()
        data = self.socket.recv(2**20)
        self.socket.setblocking(False)
        with suppress(BlockingIOError, ssl.SSLWantReadError):
            while piece := self.socket.recv(2**20):  # TLS returns one record at a time
                data += piece
        self.socket.settimeout(10)
        bodies = []
        while data:
            size = int.from_bytes(data[:4], "big")
            bodies.append(data[8:size])
            data = data[size:]
        return bodies


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> ServerTls:
    return server_tls(tmp_path_factory.mktemp("tls"), ["contoso"])


@pytest.fixture(params=["in the clear", "over TLS", "in a WebSocket", "in a WebSocket over TLS"])
def peer(request: pytest.FixtureRequest, certificates: ServerTls) -> Iterator[Peer]:
    ours, theirs = socket.socketpair()
    if "TLS" in request.param:
        ours, theirs = encrypted(ours, theirs, certificates)
    ours.setblocking(False)
    theirs.settimeout(10)
    clock = SimpleNamespace(now=1000.0)
    websocket = WebSocketCodec() if "WebSocket" in request.param else None
    wire = Wire(OpenSocket(ours, b"", FRAME_SIZE, 60.0, 60.0, websocket), "contoso", lambda: clock.now)
    with theirs:
        far = Peer(theirs if websocket is None else FarWebSocket(theirs), wire, clock)
        far.says(Begin(CHANNEL, 0, 5000, 5000))
        yield far
        wire.close()


def encrypted(
    ours: socket.socket, theirs: socket.socket, certificates: ServerTls
) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    trusting = ssl.create_default_context(cafile=str(certificates.ca_file))
    with ThreadPoolExecutor(1) as other:
        far = other.submit(certificates.context.wrap_socket, theirs, server_side=True)
        return trusting.wrap_socket(ours, server_hostname="contoso"), far.result()


@pytest.fixture
def receiver(peer: Peer) -> RawReceiver:
    receiver = RawReceiver(peer.wire, "backlog")
    peer.attaches(receiver, 0)
    return receiver


def arrived(receiver: RawReceiver) -> list[tuple[int, bytes, bytes]]:
    def told(arrival: Arrival) -> tuple[int, bytes, bytes]:
        return arrival.delivery_id, arrival.lock_token, arrival.payload

    return [told(arrival) for arrival in receiver.arrivals]


def test_a_message_comes_in_one_frame_or_in_several(peer: Peer, receiver: RawReceiver) -> None:
    peer.says(Transfer(0, 1, TAG, 0, False, False), b"whole")
    peer.says(Transfer(0, 2, OTHER_TAG, 0, False, True), b"in ")
    peer.says(Transfer(0, None, None, None, False, True), b"three ")
    peer.says(Transfer(0), b"pieces")
    assert arrived(receiver) == [(1, TAG, b"whole"), (2, OTHER_TAG, b"in three pieces")]


def test_the_last_frame_may_repeat_which_message_it_is_of(peer: Peer, receiver: RawReceiver) -> None:
    # It then looks like a new message.
    peer.says(Transfer(0, 1, TAG, 0, False, True), b"two ")
    peer.says(Transfer(0, 1, TAG, 0, False, False), b"pieces")
    assert arrived(receiver) == [(1, TAG, b"two pieces")]


def test_a_message_that_its_sender_aborts_is_dropped(peer: Peer, receiver: RawReceiver) -> None:
    peer.says(Transfer(0, 1, TAG, 0, False, True), b"half of")
    peer.says(Transfer(0, aborted=True))
    peer.says(Transfer(0, 2, TAG, 0, False, False), b"another")
    assert arrived(receiver) == [(2, TAG, b"another")]


def test_frames_of_two_links_may_alternate(peer: Peer, receiver: RawReceiver) -> None:
    other = RawReceiver(peer.wire, "other")
    peer.attaches(other, 1)
    peer.says(Transfer(0, 1, TAG, 0, False, True), b"begun, ")
    peer.says(Transfer(1, 2, OTHER_TAG, 0, False, False), b"between")
    peer.says(Transfer(0), b"ended")
    assert arrived(receiver) == [(1, TAG, b"begun, ended")]
    assert arrived(other) == [(2, OTHER_TAG, b"between")]


def test_half_a_message_is_dropped_with_its_link(peer: Peer, receiver: RawReceiver) -> None:
    peer.says(Transfer(0, 1, TAG, 0, False, True), b"half of")
    peer.says(Detach(0, True))
    again = RawReceiver(peer.wire, "backlog")
    peer.attaches(again, 0)
    peer.says(Transfer(0, 2, TAG, 0, False, False), b"another")
    assert (arrived(receiver), arrived(again)) == ([], [(2, TAG, b"another")])


def test_a_message_without_a_delivery_id_ends_the_connection(peer: Peer, receiver: RawReceiver) -> None:
    peer.says(Transfer(0, 1, None, 0, False, False), b"whose?")
    assert "not AMQP" in str(peer.wire.failure)
    assert arrived(receiver) == []


def test_frames_are_read_wherever_the_socket_cuts_them(peer: Peer, receiver: RawReceiver) -> None:
    data = frame(0, Transfer(0, 1, TAG, 0, False, False).to_bytes() + b"one")
    data += frame(0, Transfer(0, 2, OTHER_TAG, 0, False, False).to_bytes() + b"two")
    for byte in data:
        peer.socket.sendall(bytes((byte,)))
        peer.wire.read()
    assert arrived(receiver) == [(1, TAG, b"one"), (2, OTHER_TAG, b"two")]


@pytest.mark.parametrize("size", [0, 1, 959, 960, 961, 1920, 5000])
def test_a_message_goes_out_in_frames_that_the_peer_can_take(peer: Peer, size: int) -> None:
    sender: RawSender[str] = RawSender(peer.wire, "orders")
    peer.attaches(sender, 0)
    peer.says(Flow(0, 5000, 0, 5000, 0, 0, 100))
    peer.hears()
    payload = bytes(number % 251 for number in range(size))
    sender.send(payload, 0, "ticket")
    frames = [(body, *read_performative(body)) for body in peer.hears()]
    assert b"".join(body[start:] for body, _, start in frames) == payload
    assert [transfer.more for _, transfer, _ in frames if isinstance(transfer, Transfer)] == [
        number < len(frames) - 1 for number in range(len(frames))
    ]
    assert all(len(body) + 8 <= FRAME_SIZE for body, _, _ in frames)


def test_frames_that_a_slow_peer_does_not_read_yet_arrive_later_and_in_order(peer: Peer) -> None:
    sender: RawSender[str] = RawSender(peer.wire, "orders")
    peer.attaches(sender, 0)
    peer.says(Flow(0, 60_000, 0, 5000, 0, 0, 100))
    peer.hears()
    payload = random.Random(7).randbytes(2**21)
    sender.send(payload, 0, "ticket")
    peer.wire.flush()
    assert peer.wire.wants_to_write()
    taken = b""
    while peer.wire.wants_to_write():
        taken += peer.socket.recv(2**20)
        peer.wire.flush()
    peer.wire.close()
    while piece := peer.socket.recv(2**20):
        taken += piece
    received = b""
    while taken:
        size = int.from_bytes(taken[:4], "big")
        performative, start = read_performative(taken[8:size])
        received += taken[8 + start : size] if isinstance(performative, Transfer) else b""
        taken = taken[size:]
    assert received == payload


@pytest.mark.parametrize("condition", ["amqp:not-allowed", "amqp:not-found", "amqp:connection:forced", "new:one"])
@pytest.mark.parametrize("kind", [Close, End])
def test_a_connection_that_is_closed_says_nothing_of_an_entity(
    peer: Peer, receiver: RawReceiver, kind: type[Close | End], condition: str
) -> None:  # S4: otherwise messages for every destination would be dead-lettered
    peer.says(kind(Error(condition, "it is over")))
    assert isinstance(peer.wire.failure, Interrupted)
    assert f"{condition}: it is over" in str(receiver.error)


def test_a_connection_that_is_closed_by_a_busy_service_is_left_alone_for_ten_seconds(peer: Peer) -> None:  # S5
    peer.says(Close(Error("com.microsoft:server-busy", "slowly")))
    assert isinstance(peer.wire.failure, DestinationBusy)


def test_nothing_counts_after_a_close(peer: Peer, receiver: RawReceiver) -> None:  # S2, D10
    """Outcomes that have not come before it are unknown."""
    sender: RawSender[str] = RawSender(peer.wire, "orders")
    peer.attaches(sender, 1)
    peer.says(Flow(0, 5000, 0, 5000, 1, 0, 1))
    sender.send(b"x", 0, "ticket")
    late = (Close(), Disposition(True, 0, None, True, Accepted()), Transfer(0, 1, TAG, 0, False, False))
    peer.socket.sendall(b"".join(frame(0, performative.to_bytes()) for performative in late))
    peer.wire.read()
    assert str(peer.wire.failure) == "contoso closed the connection."
    assert [(sent.ticket, sent.unknown) for sent in sender.results] == [("ticket", True)]
    assert arrived(receiver) == []


@pytest.fixture
def sender(peer: Peer) -> RawSender[str]:
    """A link that may send one message."""
    sender: RawSender[str] = RawSender(peer.wire, "orders")
    peer.attaches(sender, 0)
    peer.says(Flow(0, 5000, 0, 5000, 0, 0, 1))
    peer.hears()
    return sender


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (Accepted(), None),
        (Rejected(Error("com.microsoft:server-busy", "slowly")), "com.microsoft:server-busy: slowly"),
        (Rejected(), "'rejected', not 'accepted' as requested"),
        (Released(), "'released', not 'accepted' as requested"),
        (Modified(), "'modified', not 'accepted' as requested"),
    ],
)
def test_only_what_was_accepted_has_arrived(  # S2
    peer: Peer, sender: RawSender[str], state: Composite, told: str | None
) -> None:
    sender.send(b"x", 0, "ticket")
    peer.says(Disposition(True, 0, None, True, state))
    (sent,) = sender.results
    assert (sent.ticket, sent.unknown) == ("ticket", False)
    assert sent.error is None if told is None else told in str(sent.error)


def test_a_delivery_settled_without_an_outcome_may_have_arrived(peer: Peer, sender: RawSender[str]) -> None:  # D10
    sender.send(b"x", 0, "ticket")
    peer.says(Disposition(True, 0, None, True))
    (sent,) = sender.results
    assert sent.unknown
    assert "without an outcome" in str(sent.error)


def test_no_more_is_sent_than_the_peer_has_granted(peer: Peer, sender: RawSender[str]) -> None:
    assert sender.has_room()
    sender.send(b"x", 0, "first")
    assert not sender.has_room()
    peer.says(Disposition(True, 0, None, True, Accepted()))
    assert not sender.has_room()
    peer.says(Flow(1, 5000, 0, 5000, 0, 1, 1))
    assert sender.has_room()


def test_a_quiet_wire_sends_a_heartbeat_three_times_as_often_as_the_peer_wants_one(peer: Peer) -> None:  # S1, WIRE
    peer.hears()
    peer.clock.now += 20
    peer.wire.tick()
    assert not peer.wire.wants_to_write()
    peer.clock.now += 1
    peer.wire.tick()
    peer.wire.flush()
    assert peer.socket.recv(100) == EMPTY_FRAME


def test_a_peer_that_owes_an_answer_for_a_minute_and_says_nothing_is_dead(  # S8, D10, WIRE
    peer: Peer, sender: RawSender[str]
) -> None:
    sender.send(b"x", 0, "ticket")
    peer.clock.now += 59
    peer.socket.sendall(EMPTY_FRAME)
    peer.wire.read()  # alive, but it has not answered
    peer.clock.now += 60
    peer.wire.tick()
    assert peer.wire.failure is None
    peer.clock.now += 1
    peer.wire.tick()
    assert "contoso has not answered for 60 seconds" in str(peer.wire.failure)
    assert [(sent.ticket, sent.unknown) for sent in sender.results] == [("ticket", True)]


def test_a_settlement_that_is_no_longer_awaited_does_not_hide_that_the_peer_is_silent(  # S8, D10, WIRE
    peer: Peer, receiver: RawReceiver
) -> None:
    for number in range(2):
        peer.says(Transfer(0, number, TAG, 0, False, False), b"x")
    for arrival in receiver.arrivals:
        receiver.complete(arrival)
        peer.clock.now += 1
    peer.clock.now += 18
    for _ in range(2):  # one settlement at a time
        peer.clock.now += 1
        receiver.stop_awaiting(peer.clock.now - 20)
    assert [settled.unknown for settled in receiver.settled] == [True, True]
    peer.clock.now += 38  # 60 s since the first one
    peer.wire.tick()
    assert peer.wire.failure is None
    peer.clock.now += 1
    peer.wire.tick()
    assert "contoso has not answered for 60 seconds" in str(peer.wire.failure)


def test_a_settlement_that_is_no_longer_awaited_is_forgotten_when_the_peer_is_heard(  # S8, D10, WIRE
    peer: Peer, receiver: RawReceiver
) -> None:
    peer.says(Transfer(0, 1, TAG, 0, False, False), b"x")
    receiver.complete(receiver.arrivals.popleft())
    peer.clock.now += 21
    receiver.stop_awaiting(peer.clock.now - 20)
    for _ in range(3):
        peer.clock.now += 59
        peer.socket.sendall(EMPTY_FRAME)
        peer.wire.read()
        peer.wire.tick()
    assert peer.wire.failure is None


def test_bytes_that_the_sdk_had_read_already_are_not_lost() -> None:  # WIRE
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    begin = frame(0, Begin(CHANNEL, 0, 5000, 5000).to_bytes())
    with theirs:
        wire = Wire(OpenSocket(ours, begin[:11], FRAME_SIZE, None, heartbeat=60.0), "contoso")
        theirs.sendall(begin[11:] + frame(0, Close(Error("amqp:connection:forced", "understood")).to_bytes()))
        wire.read()
        assert "understood" in str(wire.failure)


def test_frames_held_back_by_the_window_are_dropped_with_their_link_and_never_sent_to_another(peer: Peer) -> None:  # S2
    """The next link has the same handle: the frames of one destination would arrive at another."""
    orders: RawSender[str] = RawSender(peer.wire, "orders")
    peer.attaches(orders, 0)
    peer.says(Flow(0, 1, 0, 5000, 0, 0, 100))  # a window of one frame
    orders.send(bytes(3 * FRAME_SIZE), 0, "for orders")
    orders.close()
    billing: RawSender[str] = RawSender(peer.wire, "billing")
    peer.attaches(billing, 0)
    assert billing.handle == orders.handle
    peer.hears()
    peer.says(Flow(1, 5000, 0, 5000, 0, 0, 100))
    billing.send(b"for billing", 0, "for billing")
    transfers = [body[start:] for body in peer.hears() for _, start in (read_performative(body),)]
    assert transfers == [b"for billing"]


def test_an_answer_to_a_link_that_was_dropped_does_not_reopen_it(peer: Peer) -> None:
    link = RequestLink(peer.wire, "$cbs")
    replies, requests = (read_performative(body)[0] for body in peer.hears()[-2:])
    link.close()
    peer.hears()
    for attach in (replies, requests):
        assert isinstance(attach, Attach)
        peer.says(Attach(attach.name, attach.handle, not attach.role, source=Source("there"), target=Target("here")))
    assert not peer.wire.wants_to_write()  # above all no credit for the link that has its handle now
    assert link.error is not None


@pytest.mark.parametrize("owes", ["attach", "settlement", "reply"])
def test_a_peer_that_is_alive_and_never_answers_fails_the_wire(owes: str) -> None:  # WIRE: watchdogs
    now = [1000.0]
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    wire = Wire(OpenSocket(ours, b"", FRAME_SIZE, None, heartbeat=30.0), "contoso", lambda: now[0])
    with theirs:
        far = Peer(theirs, wire)
        far.says(Begin(CHANNEL, 0, 5000, 5000))
        if owes == "reply":
            RequestLink(wire, "$cbs").ask({}, None, lambda reply: None)  # noqa: ARG005
        else:
            receiver = RawReceiver(wire, "backlog")
        if owes == "settlement":
            far.attaches(receiver, 0)
            far.says(Transfer(0, 1, TAG, 0, False, False), b"x")
            receiver.complete(receiver.arrivals.popleft())
        for _ in range(11):
            now[0] += 10
            theirs.sendall(EMPTY_FRAME)
            wire.read()
            wire.tick()
        assert wire.failure is None
        now[0] += 11
        theirs.sendall(EMPTY_FRAME)
        wire.read()
        wire.tick()
        assert "has not answered" in str(wire.failure)
        wire.close()


def test_no_link_is_attached_beyond_the_handles_that_the_peer_allows() -> None:  # D5
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(10)
    wire = Wire(OpenSocket(ours, b"", FRAME_SIZE, idle_timeout=60.0, heartbeat=60.0), "contoso")
    with theirs:
        peer = Peer(theirs, wire)
        peer.says(Begin(CHANNEL, 0, 5000, 5000, handle_max=3))
        links = [RawReceiver(wire, f"queue {number}") for number in range(3)]
        with pytest.raises(NoMoreLinks, match="contoso allows 4 links"):
            RequestLink(wire, "queue/$management")  # it needs two
        links.append(RawReceiver(wire, "the last one"))  # the first of the two has given its handle back
        with pytest.raises(NoMoreLinks):
            RawReceiver(wire, "one more")
        links[1].close()
        assert RawReceiver(wire, "in its place").handle == 1
        attached = [body for body in map(read_performative, peer.hears()) if isinstance(body[0], Attach)]
        assert max(attach.handle for attach, _ in attached if isinstance(attach, Attach)) == 3
        assert wire.failure is None
        wire.close()
