"""The protocol, frame by frame: windows, credit, split messages, ranges, and peers that violate its rules."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from syphon.amqp import Described, ULong, encode
from syphon.amqp.frames import (
    AMQP_HEADER,
    FRAME_SASL,
    SASL_HEADER,
    Accepted,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Received,
    Released,
    SaslInit,
    SaslMechanisms,
    Transfer,
    frame,
)
from syphon.emulator import (
    Action,
    Emulator,
    EmulatorSettings,
    Fault,
    Kind,
    NamespaceSettings,
    Operation,
    QueueDescription,
)
from syphon.emulator.amqp_front import attach, links, nodes
from syphon.emulator.broker.entities import QueueEntity
from tests.integration.emulator.conftest import EmulatedNamespace, settings
from tests.support.amqp_peer import WIDE, AmqpPeer, peer, sender, text, text_of, token_request
from tests.support.waiting import async_eventually

FRAMING = "amqp:connection:framing-error"


@pytest.fixture
def orders(emulated: EmulatedNamespace) -> QueueEntity:
    return make(emulated, "orders")


def make(emulated: EmulatedNamespace, name: str) -> QueueEntity:
    emulated.namespace.create_queue(QueueDescription(name))
    queue = emulated.namespace.entity(name)
    assert isinstance(queue, QueueEntity)
    return queue


@asynccontextmanager
async def signed_in(
    emulated: EmulatedNamespace, opening: Open | None = None, window: int = WIDE
) -> AsyncIterator[AmqpPeer]:
    async with peer(emulated.running.amqp_port) as one:
        await one.connect(opening, window)
        yield one


async def fill(emulated: EmulatedNamespace, words: Iterable[str]) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders")
        sent = 0
        for word in words:
            one.send(Transfer(0, sent, b"t", 0, False), text(word))
            sent += 1
        for _ in range(sent):
            while not isinstance(found := (await one.next_frame()).performative, Disposition):
                assert isinstance(found, Flow)
            assert isinstance(found.state, Accepted)


def words_in(queue: QueueEntity) -> list[str]:
    return [text_of(message.peeked()) for message in queue.main.peek(0, 1000)]


@asynccontextmanager
async def a_bystander(emulated: EmulatedNamespace) -> AsyncIterator[None]:
    """Another client, connected all the time: afterwards its links work as before, and it is the only client."""
    make(emulated, "bystanders")
    async with signed_in(emulated) as one:
        await one.attach_sender("bystanders", 0)
        await one.attach_receiver("bystanders", 1)
        yield
        one.send(Transfer(0, 0, b"t", 0, False), text("still here"))
        assert isinstance((await one.expect(Disposition)).state, Accepted)
        one.flow(1, 1)
        assert text_of((await one.next_frame()).payload) == "still here"
        await async_eventually(lambda: emulated.running.connection_count == 1, "only the bystander is connected")


# --- mistakes, and the errors they are answered with -----------------------------------------------------------------


def raw_frame(body: bytes, *, size: int | None = None, offset: int = 2, kind: int = 0, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8 if size is None else size, offset, kind, channel) + body


def performative(code: int, *fields: object) -> bytes:
    return encode(Described(ULong(code), list(fields)))  # type: ignore[arg-type]  # mistakes included


CLOSES = {
    "a frame above max-frame-size": (raw_frame(b"", size=65537), FRAMING),
    "a frame of four gigabytes": (raw_frame(b"", size=0xFFFFFFFF), FRAMING),
    "a frame shorter than its header": (raw_frame(b"", size=7), FRAMING),
    "a data offset under 2": (raw_frame(b"xxxx", offset=1), FRAMING),
    "a data offset beyond the frame": (raw_frame(b"xxxx", offset=200), FRAMING),
    "a SASL frame after SASL": (raw_frame(SaslInit("ANONYMOUS").to_bytes(), kind=1), FRAMING),
    "a frame of an unknown type": (raw_frame(b"xxxx", kind=9), FRAMING),
    "an unknown performative": (raw_frame(performative(0x99)), "amqp:decode-error"),
    "a performative that is a value": (raw_frame(encode("hello")), "amqp:decode-error"),
    "bytes that are no value": (raw_frame(b"\xff\xff\xff"), "amqp:decode-error"),
    "half a performative": (raw_frame(Open("x").to_bytes()[:-1]), "amqp:decode-error"),
    "a field of another type": (raw_frame(performative(0x11, None, "zero", "one", "two")), "amqp:decode-error"),
    "a field too many": (raw_frame(performative(0x18, None, None)), "amqp:decode-error"),
    "a begin without its windows": (raw_frame(performative(0x11)), "amqp:decode-error"),
    "a second open": (raw_frame(Open("again").to_bytes()), "amqp:illegal-state"),
    "a second begin": (raw_frame(Begin(None, 0, 1, 1).to_bytes()), "amqp:not-allowed"),
    "a begin over channel-max": (raw_frame(Begin(None, 0, 1, 1).to_bytes(), channel=5000), FRAMING),
    "a begin on the last channel": (raw_frame(Begin(None, 0, 1, 1).to_bytes(), channel=65535), FRAMING),
    "an attach without a session": (raw_frame(sender("orders").to_bytes(), channel=3), "amqp:not-allowed"),
    "an end without a session": (raw_frame(End().to_bytes(), channel=3), "amqp:not-allowed"),
    "an attach over handle-max": (raw_frame(sender("orders", 256).to_bytes()), FRAMING),
    "an attach on the last handle": (raw_frame(sender("orders", 0xFFFFFFFF).to_bytes()), FRAMING),
    "an outcome as a performative": (raw_frame(Accepted().to_bytes()), "amqp:decode-error"),
    "a SASL performative in an AMQP frame": (raw_frame(SaslInit("PLAIN").to_bytes()), "amqp:decode-error"),
}


@pytest.mark.parametrize("mistake", CLOSES)
async def test_a_mistake_of_the_connection_closes_it_with_its_error_and_harms_no_other_connection(
    emulated: EmulatedNamespace, orders: QueueEntity, mistake: str
) -> None:
    data, condition = CLOSES[mistake]
    async with a_bystander(emulated), signed_in(emulated) as one:
        one.write(data)
        assert (await one.error_of(Close)).condition == condition
        assert await one.rest() == b""


ENDS = {
    "a transfer on a handle without a link": (Transfer(7, 0, b"t", 0), "amqp:session:unattached-handle"),
    "a flow on a handle without a link": (Flow(0, 1, 0, 1, 7, 0, 1), "amqp:session:unattached-handle"),
    "a detach of a handle without a link": (Detach(7, True), "amqp:session:unattached-handle"),
    "a handle attached twice": (sender("orders", 0, "another"), "amqp:session:handle-in-use"),
    "a transfer to a link that sends": (Transfer(1, 0, b"t", 0), "amqp:not-allowed"),
}


@pytest.mark.parametrize("mistake", ENDS)
async def test_a_mistake_of_a_session_ends_that_session_and_not_its_neighbour(
    emulated: EmulatedNamespace, orders: QueueEntity, mistake: str
) -> None:
    wrong, condition = ENDS[mistake]
    async with a_bystander(emulated), signed_in(emulated) as one:
        await one.attach_sender("orders", 0)
        await one.attach_receiver("orders", 1)
        await one.begin(channel=1)
        await one.attach_sender("orders", 0, channel=1)
        one.send(wrong, b"")
        found = await one.next_frame()
        assert isinstance(found.performative, End)
        assert found.channel == 0
        assert found.performative.error is not None
        assert found.performative.error.condition == condition
        # What was on its way is dropped in silence, and one end is answer enough to another.
        one.send(Transfer(0, 0, b"t", 0), text("too late"))
        one.send(End())
        one.send(Transfer(0, 0, b"t", 0, False), text("next door"), channel=1)
        assert isinstance((await one.expect(Disposition)).state, Accepted)
        await one.begin(channel=0)
        one.send(Close())
        await one.expect(Close)
        assert words_in(orders) == ["next door"]


@pytest.mark.parametrize("early", [Begin(None, 0, 1, 1), Close(), sender("orders"), Flow(0, 1, 0, 1)])
async def test_nothing_goes_before_open(emulated: EmulatedNamespace, orders: QueueEntity, early: Composite) -> None:
    async with a_bystander(emulated), peer(emulated.running.amqp_port) as one:
        one.write(AMQP_HEADER)
        one.send(early)
        assert await one.bytes_of(8) == AMQP_HEADER
        await one.expect(Open)  # AMQP wants one before a close
        assert (await one.error_of(Close)).condition == "amqp:illegal-state"
        assert await one.rest() == b""


@pytest.mark.parametrize(
    ("opening", "condition"),
    [
        (Open("peer", None, 511), "amqp:invalid-field"),
        (Open("peer", None, 0), "amqp:invalid-field"),
        (Open("peer", None, None, None, 1), "amqp:not-allowed"),
    ],
)
async def test_an_open_that_asks_for_too_little_is_answered_and_closed(
    emulated: EmulatedNamespace, opening: Open, condition: str
) -> None:
    async with peer(emulated.running.amqp_port) as one:
        await one.open(opening)
        assert (await one.error_of(Close)).condition == condition


@pytest.mark.parametrize(
    ("garbage", "answer"),
    [
        (b"\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09", SASL_HEADER),
        (b"\xff", AMQP_HEADER),
        (b"AMQP\x00\x00\x09\x01", SASL_HEADER),  # AMQP 0-9-1
        (b"AMQP\x02\x01\x00\x00", SASL_HEADER),  # TLS within AMQP
    ],
)
async def test_what_is_no_header_is_answered_with_one_and_the_connection_ends(
    emulated: EmulatedNamespace, orders: QueueEntity, garbage: bytes, answer: bytes
) -> None:
    async with a_bystander(emulated), peer(emulated.running.amqp_port) as one:
        one.write(garbage)
        assert await one.rest() == answer


@pytest.mark.parametrize("garbage", [b"hello?\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"Z" * 100_000])
async def test_what_is_no_request_gets_status_400(
    emulated: EmulatedNamespace, orders: QueueEntity, garbage: bytes
) -> None:
    async with a_bystander(emulated), peer(emulated.running.amqp_port) as one:
        one.write(garbage)
        assert (await one.rest()).startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))


async def test_a_header_may_come_byte_by_byte(emulated: EmulatedNamespace) -> None:
    async with peer(emulated.running.amqp_port) as one:
        for byte in AMQP_HEADER + frame(0, Open("peer").to_bytes()):
            one.write(bytes((byte,)))
            await one.writer.drain()
            await asyncio.sleep(0)
        assert await one.bytes_of(8) == AMQP_HEADER
        await one.expect(Open)


async def test_sasl_comes_once(emulated: EmulatedNamespace) -> None:
    async with peer(emulated.running.amqp_port) as one:
        assert await one.sasl() == 0
        one.write(SASL_HEADER)
        assert await one.rest() == SASL_HEADER


async def test_another_performative_instead_of_sasl_init_ends_the_connection(emulated: EmulatedNamespace) -> None:
    async with peer(emulated.running.amqp_port) as one:
        one.write(SASL_HEADER + frame(0, SaslMechanisms("ANONYMOUS").to_bytes(), FRAME_SASL))
        assert await one.bytes_of(8) == SASL_HEADER
        await one.expect(SaslMechanisms)
        assert await one.rest() == b""


async def test_a_peer_that_closes_before_our_last_words_is_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    async with Emulator(settings()) as emulator:
        with socket.socket() as one:
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", emulator["contoso"].amqp_port))
            await loop.sock_sendall(one, AMQP_HEADER[:4])
            await async_eventually(lambda: emulator["contoso"].connection_count == 1, "it is connected")
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # The client reset the connection, and the emulator stops before it has noticed: its close frames go nowhere.
        await emulator.stop()
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_the_last_words_reach_a_peer_that_is_still_sending(emulated: EmulatedNamespace) -> None:
    """A socket closed with bytes unread resets the connection, and the error would be lost on its way."""
    async with signed_in(emulated) as one:
        one.write(raw_frame(b"", size=1 << 20) + bytes(4 << 20))
        await one.writer.drain()
        assert (await one.error_of(Close)).condition == FRAMING


# --- messages in -----------------------------------------------------------------------------------------------------


async def test_a_message_may_come_in_many_frames_between_those_of_another(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    make(emulated, "bills")
    async with signed_in(emulated) as one:
        await one.attach_sender("orders", 0)
        await one.attach_sender("bills", 1)
        first, second = text("a" * 100_000), text("b" * 1000)
        one.send(Transfer(0, 0, b"0", 0, False, True), first[:60_000])
        one.send(Transfer(1, 1, b"1", 0, False, True), second[:1])
        one.send(Transfer(0, 0, None, None, None, True), first[60_000:60_001])
        one.send(Transfer(0, None, None, None, None, True))  # nothing, for once
        one.send(Transfer(1, None, None, None, None, False), second[1:])
        one.send(Transfer(0, None, None, None, None, False), first[60_001:])
        for delivery in (1, 0):
            answer = await one.expect(Disposition)
            assert (answer.first, answer.settled, answer.state) == (delivery, True, Accepted())
        assert words_in(orders) == ["a" * 100_000]


async def test_an_aborted_delivery_leaves_nothing_behind(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders")
        one.send(Transfer(0, 0, b"0", 0, False, True), text("never mind")[:5])
        one.send(Transfer(0, 0, None, None, None, False, aborted=True))
        one.send(Transfer(0, 1, b"1", 0, False), text("mind"))
        assert (await one.expect(Disposition)).first == 1
        one.flow(0, echo=True)
        assert (await one.expect(Flow)).delivery_count == 2
    assert words_in(orders) == ["mind"]


async def test_a_presettled_message_is_taken_without_an_answer(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders")
        one.send(Transfer(0, 0, b"0", 0, True), text("no reply, please"))
        one.flow(0, echo=True)
        await one.expect(Flow)
    assert words_in(orders) == ["no reply, please"]


@pytest.mark.parametrize("second", [1, 0xFFFFFFFF])
async def test_a_delivery_that_changes_its_id_half_way_ends_the_link(
    emulated: EmulatedNamespace, orders: QueueEntity, second: int
) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders")
        one.send(Transfer(0, 0, b"0", 0, False, True), b"x")
        one.send(Transfer(0, second, b"1", 0, False), b"y")
        assert (await one.error_of(Detach)).condition == "amqp:invalid-field"


async def test_a_delivery_without_an_id_ends_the_link(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders")
        one.send(Transfer(0, None, b"0", 0), text("who am I?"))
        assert (await one.error_of(Detach)).condition == "amqp:invalid-field"


async def test_a_message_without_end_is_cut_off_at_the_limit_of_its_link(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    async with a_bystander(emulated), signed_in(emulated) as one:
        assert (await one.attach_sender("orders")).max_message_size == 256 * 1024
        for _ in range(6):
            one.send(Transfer(0, 0, b"0", 0, False, True), bytes(60_000))
        assert (await one.error_of(Detach)).condition == "amqp:link:message-size-exceeded"
        # What follows belongs to a link that is detached, until the peer has seen that; then the handle is free again.
        one.send(Detach(0, True))
        await one.attach_sender("orders", 0)


async def test_a_stranger_can_leave_only_a_little_unfinished(
    emulated: EmulatedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "UNFINISHED_OF_STRANGERS", 100_000)
    async with peer(emulated.running.amqp_port) as one:
        await one.sasl()
        await one.open()
        await one.begin()
        await one.attach_sender("$cbs", 0)
        await one.attach_sender("$cbs", 1)
        one.send(Transfer(0, 0, b"0", 0, False, True), bytes(60_000))
        one.send(Transfer(1, 1, b"1", 0, False, True), bytes(60_000))
        detach, _ = await one.until(Detach)
        assert detach.handle == 1
        assert detach.error is not None
        assert detach.error.condition == "amqp:resource-limit-exceeded"
        one.send(Detach(1, True))
        one.send(Detach(0, True))  # with its message unfinished
        await one.expect(Detach)
        await one.attach_sender("$cbs", 2)
        one.send(Transfer(2, 2, b"2", 0, False, True), bytes(60_000))
        one.flow(2, echo=True)
        await one.expect(Flow)


async def test_a_token_has_a_largest_size(emulated: EmulatedNamespace) -> None:
    async with peer(emulated.running.amqp_port) as one:
        await one.sasl()
        await one.open()
        await one.begin()
        assert (await one.attach_sender("$cbs")).max_message_size == nodes.LARGEST_TOKEN
        for _ in range(5):
            one.send(Transfer(0, 0, b"0", 0, False, True), bytes(60_000))
        assert (await one.error_of(Detach)).condition == "amqp:link:message-size-exceeded"


async def test_replies_without_credit_do_not_pile_up(
    emulated: EmulatedNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "WAITING_REPLIES", 3)
    async with peer(emulated.running.amqp_port) as one:
        await one.sasl()
        await one.open()
        await one.begin()
        await one.attach_sender("$cbs", 0)
        await one.attach_receiver("$cbs", 1)
        for number in range(4):
            one.send(Transfer(0, number, b"t", 0, True), token_request("nonsense", "nowhere"))
        detach, _ = await one.until(Detach)
        assert detach.handle == 1
        assert detach.error is not None
        assert detach.error.condition == "amqp:resource-limit-exceeded"


# --- messages out: credit, windows, draining -------------------------------------------------------------------------


async def test_credit_is_kept_to_the_message(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    await fill(emulated, map(str, range(10)))
    async with signed_in(emulated) as one:
        await one.attach_receiver("orders")
        one.flow(0, 3, echo=True)
        transfers = await one.transfers_before(Flow)
        assert [transfer.delivery_id for transfer in transfers] == [0, 1, 2]
        # Absolute, from where the peer was: two of these four it has had already.
        one.flow(0, 4, seen=3, count=1, echo=True)
        assert len(await one.transfers_before(Flow)) == 2
        one.flow(0, 1, seen=5, count=5, echo=True)
        assert len(await one.transfers_before(Flow)) == 1
        # Less than was given out already is nothing.
        one.flow(0, 1, seen=5, count=3, echo=True)
        flow, before = await one.until(Flow)
        assert (flow.link_credit, flow.delivery_count, before) == (0, 6, [])
        one.flow(0, 0xFFFFFFFF, seen=6, count=6, echo=True)
        assert len(await one.transfers_before(Flow)) == 4


async def test_a_withdrawn_credit_is_not_used(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    async with signed_in(emulated) as one:
        await one.attach_receiver("orders")
        one.flow(0, 5)
        one.flow(0, 0, echo=True)
        await one.expect(Flow)
        await fill(emulated, ["late"])
        one.flow(0, echo=True)
        assert await one.transfers_before(Flow) == []


async def test_draining_delivers_what_exists_and_uses_up_the_rest(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    await fill(emulated, ["one", "two"])
    async with signed_in(emulated) as one:
        await one.attach_receiver("orders")
        one.flow(0, 10, drain=True)
        flow, before = await one.until(Flow)
        assert len(before) == 2
        assert (flow.drain, flow.link_credit, flow.delivery_count) == (True, 0, 10)
        await fill(emulated, ["three"])
        one.flow(0, 1, seen=2, count=10, echo=True)
        assert [transfer.delivery_id for transfer in await one.transfers_before(Flow)] == [2]


async def test_a_flow_is_echoed_for_a_session_and_for_both_kinds_of_links(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders", 0)
        await one.attach_receiver("orders", 1)
        one.flow(echo=True)
        assert (await one.expect(Flow)).handle is None
        one.flow(0, echo=True)
        flow = await one.expect(Flow)
        assert (flow.handle, flow.link_credit) == (0, 1000)
        one.flow(1, 7, echo=True)
        flow = await one.expect(Flow)
        assert (flow.handle, flow.link_credit) == (1, 7)


async def test_a_sender_is_given_more_credit_before_it_runs_out(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    async with signed_in(emulated) as one:
        await one.attach_sender("orders")
        granted = 1000
        for number in range(1500):
            while number >= granted:
                flow, _ = await one.until(Flow)
                assert flow.link_credit is not None
                assert flow.delivery_count is not None
                granted = flow.delivery_count + flow.link_credit
            one.send(Transfer(0, number, b"t", 0, True), text("x"))
        one.flow(echo=True)
        while (await one.expect(Flow)).handle is not None:
            pass
    assert len(orders.main) == 1500


async def test_nothing_is_sent_beyond_the_window_of_the_session(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    await fill(emulated, ["one", "two", "three", "four"])
    async with signed_in(emulated, window=1) as one:
        await one.attach_receiver("orders")
        one.flow(0, 4, window=1, echo=True)
        assert len(await one.transfers_before(Flow)) == 1
        one.flow(seen=1, window=0, echo=True)
        assert await one.transfers_before(Flow) == []
        one.flow(seen=1, window=2, echo=True)
        assert len(await one.transfers_before(Flow)) == 2
        one.flow(seen=1, window=2, echo=True)  # written before the two were seen: they are what it has room for
        assert await one.transfers_before(Flow) == []
        one.flow(seen=3, window=0xFFFFFFFF, echo=True)
        assert len(await one.transfers_before(Flow)) == 1
        await fill(emulated, ["five"])
        one.flow(0, 1, seen=4, count=4, window=0xFFFFFFFF, echo=True)
        assert len(await one.transfers_before(Flow)) == 1


async def test_a_window_that_is_shut_from_the_start_locks_no_message(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    await fill(emulated, ["one", "two"])
    async with signed_in(emulated, window=0) as shut, signed_in(emulated) as other:
        await shut.attach_receiver("orders")
        shut.flow(0, 100, window=0, echo=True)
        assert await shut.transfers_before(Flow) == []
        await other.attach_receiver("orders")
        other.flow(0, 1, echo=True)
        assert len(await other.transfers_before(Flow)) == 1
        shut.flow(window=10, echo=True)
        assert len(await shut.transfers_before(Flow)) == 1


async def test_a_large_message_goes_out_as_the_window_opens(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    words = "x" * 2000
    await fill(emulated, [words, "small"])
    async with signed_in(emulated, Open("peer", None, 512), window=2) as one:
        await one.attach_receiver("orders")
        one.flow(0, 2, window=2)
        pieces, seen = b"", 0
        while True:
            found = await one.next_frame()
            assert isinstance(found.performative, Transfer)
            assert found.performative.delivery_id == 0
            assert found.size <= 512
            pieces += found.payload
            seen += 1
            if not found.performative.more:
                break
            if seen % 2 == 0:
                one.flow(seen=seen, window=2)
        assert seen > 4
        assert text_of(pieces) == words
        one.flow(seen=seen, window=9)
        assert text_of((await one.next_frame()).payload) == "small"


async def test_draining_waits_for_the_window(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    await fill(emulated, ["one", "two"])
    async with signed_in(emulated, window=1) as one:
        await one.attach_receiver("orders")
        one.flow(0, 10, window=1, drain=True)
        assert isinstance((await one.next_frame()).performative, Transfer)
        one.flow(seen=1, window=5)
        flow, before = await one.until(Flow)
        assert len(before) == 1
        assert (flow.drain, flow.delivery_count) == (True, 10)


async def test_a_peer_that_does_not_read_gets_no_more_than_it_can_take(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    body = "x" * 50_000
    await fill(emulated, [body] * 400)  # 20 MB, far more than all the buffers on the way
    async with signed_in(emulated) as one:
        await one.attach_receiver("orders")
        one.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is one that reads
        one.flow(0, 1000)
        counters = emulated.namespace.counters
        await async_eventually(lambda: counters.of("orders", Kind.RECEIVE) > 0, "the first messages are on their way")
        async with signed_in(emulated) as other:  # whose round trip takes longer than handing out all would
            await other.attach_receiver("orders")
        assert counters.of("orders", Kind.RECEIVE) < 400
        one.writer.transport.resume_reading()  # type: ignore[attr-defined]
        got: list[int | None] = []
        while len(got) < 400:
            transfer = await one.expect(Transfer)
            if not transfer.more:
                got.append(transfer.delivery_id)
        assert got == list(range(400))


# --- settling --------------------------------------------------------------------------------------------------------


async def receive(one: AmqpPeer, count: int) -> None:
    await one.attach_receiver("orders")
    one.flow(0, count, echo=True)
    assert len(await one.transfers_before(Flow)) == count


async def test_one_disposition_settles_a_range(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    await fill(emulated, map(str, range(10)))
    async with signed_in(emulated) as one:
        await receive(one, 10)
        one.send(Disposition(True, 4, None, False, Accepted()))
        one.send(Disposition(True, 2, 6, False, Accepted()))
        answered = [(await one.expect(Disposition)).first for _ in range(5)]
        assert answered == [4, 2, 3, 5, 6]
        one.send(Disposition(True, 0, 1, True, Released()))  # settled: no answer
        one.flow(echo=True)
        await one.expect(Flow)
    assert words_in(orders) == ["0", "1", "7", "8", "9"]


async def test_a_range_over_all_there_could_be_settles_all_there_are(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    await fill(emulated, map(str, range(5)))
    async with signed_in(emulated) as one:
        await receive(one, 5)
        one.send(Disposition(True, 0, 0xFFFFFFFF, False, Accepted()))
        assert [(await one.expect(Disposition)).first for _ in range(5)] == [0, 1, 2, 3, 4]
    assert words_in(orders) == []


async def test_a_disposition_that_says_nothing_ends_nothing(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    await fill(emulated, ["one"])
    async with signed_in(emulated) as one:
        await receive(one, 1)
        one.send(Disposition(True, 0, None, False, Received(0, 0)))
        one.send(Disposition(True, 0, None, False))
        one.send(Disposition(True, 5, 9, False, Accepted()))  # about deliveries that never were
        one.send(Disposition(True, 9, 5, False, Accepted()))
        one.send(Disposition(True, 0, None, False, Accepted()))
        assert (await one.expect(Disposition)).first == 0


async def test_delivery_ids_and_handles_belong_to_a_session(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    await fill(emulated, ["one", "two"])
    async with signed_in(emulated) as one:
        await one.begin(channel=1)
        for channel in (0, 1):
            await one.attach_receiver("orders", 5, channel)
            one.flow(5, 1, channel=channel)
            found = await one.next_frame()
            assert isinstance(found.performative, Transfer)
            assert (found.channel, found.performative.handle, found.performative.delivery_id) == (channel, 5, 0)
        one.send(Disposition(True, 0, None, False, Accepted()), channel=1)
        assert (await one.next_frame()).channel == 1
        assert words_in(orders) == ["one"]
        one.send(End(), channel=0)
        await one.expect(End)
        one.flow(5, 1, seen=1, count=1, echo=True, channel=1)
        await one.expect(Flow)


async def test_an_answer_that_comes_too_late_for_its_session_is_not_sent(tmp_path: Path) -> None:
    kept = EmulatorSettings(namespaces=[NamespaceSettings(name="contoso")], state=tmp_path)
    async with Emulator(kept) as emulator:
        emulated = EmulatedNamespace(emulator["contoso"])
        queue = make(emulated, "orders")
        async with signed_in(emulated) as one:
            await one.attach_sender("orders")
            # The answer waits until the message is on disk, and by then the session is over.
            one.send(Transfer(0, 0, b"t", 0, False), text("kept"))
            one.send(End())
            one.send(Begin(None, 0, WIDE, WIDE), channel=1)
            one.flow(echo=True, channel=1)
            _, before = await one.until(Flow)
            assert [type(found.performative) for found in before] == [End, Begin]
            await one.attach_sender("orders", 0, channel=1)
            one.send(Transfer(0, 0, b"t", 0, False), text("answered"), channel=1)
            found = await one.next_frame()
            assert (found.channel, type(found.performative)) == (1, Disposition)
        assert words_in(queue) == ["kept", "answered"]


# --- links -----------------------------------------------------------------------------------------------------------


async def test_a_link_name_can_be_used_again(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    async with signed_in(emulated) as one:
        await one.begin(channel=1)
        for _ in range(3):
            for channel in (0, 1):
                one.ask_to_receive("orders", 3, channel, "the same")
                assert (await one.expect(Attach)).name == "the same"
            for channel in (0, 1):
                one.send(Detach(3, True), channel=channel)
                await one.expect(Detach)
    await async_eventually(lambda: not orders.links, "no link is left")


async def test_a_session_takes_as_many_links_as_it_has_handles(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    async with signed_in(emulated) as one:
        for handle in range(256):
            one.ask_to_send("orders", handle)
        for handle in range(256):
            attach, _ = await one.until(Attach)
            assert attach.handle == handle
        assert len(orders.links) == 256
        one.send(Transfer(255, 0, b"t", 0, False), text("x"))
        await one.until(Disposition)
    await async_eventually(lambda: not orders.links, "the links went with their connection")


async def test_a_connection_has_room_for_so_many_links(
    emulated: EmulatedNamespace, orders: QueueEntity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "LINKS_MAX", 3)
    async with signed_in(emulated) as one:
        await one.begin(channel=1)
        await one.attach_receiver("orders", 0)
        await one.attach_receiver("orders", 1)
        await one.attach_receiver("orders", 0, channel=1)
        one.ask_to_receive("orders", 1, channel=1)
        assert (await one.error_of(Detach)).condition == "amqp:resource-limit-exceeded"
        one.send(End())
        await one.expect(End)
        await one.attach_receiver("orders", 2, channel=1)
        await one.attach_receiver("orders", 3, channel=1)
        assert len(orders.links) == 3


@pytest.mark.parametrize("address", ["amqps://[half/orders", "", "amqp://x/"])
async def test_an_address_that_is_none_is_refused(emulated: EmulatedNamespace, address: str) -> None:
    async with signed_in(emulated) as one:
        one.ask_to_send(address)
        await one.expect(Attach)
        assert (await one.error_of(Detach)).condition in ("amqp:invalid-field", "amqp:not-found")


async def test_what_is_sent_to_a_refused_link_is_passed_over(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    async with signed_in(emulated) as one:
        one.ask_to_send("nowhere")
        one.send(Transfer(0, 0, b"t", 0, False), text("optimism"))
        one.flow(0, echo=True)
        assert (await one.error_of(Detach)).condition == "amqp:not-found"
        one.send(Detach(0, True))
        await one.attach_sender("orders", 0)


async def test_a_delayed_attach_is_dropped_with_its_session(clocked: EmulatedNamespace) -> None:
    queue = make(clocked, "orders")
    clocked.namespace.faults.add(Fault(Action.DELAY, Operation.ATTACH, seconds=10))
    async with signed_in(clocked) as one:
        one.ask_to_receive("orders", 0)
        one.send(End())
        await one.expect(End)
        assert clocked.clock is not None
        clocked.clock.advance(20)
        assert not queue.links
        await one.begin()
        one.flow(echo=True)
        await one.expect(Flow)


async def test_a_delayed_attach_can_be_cancelled(clocked: EmulatedNamespace) -> None:
    queue = make(clocked, "orders")
    clocked.namespace.faults.add(Fault(Action.DELAY, Operation.ATTACH, seconds=10))
    async with signed_in(clocked) as one:
        one.ask_to_send("orders", 0)
        one.send(Detach(0, True))
        await one.expect(Attach)
        await one.expect(Detach)
        assert clocked.clock is not None
        clocked.clock.advance(20)
        assert not queue.links
        one.flow(echo=True)
        await one.expect(Flow)


async def test_credit_granted_before_the_attach_was_answered_counts(clocked: EmulatedNamespace) -> None:
    make(clocked, "orders")
    await fill(clocked, ["early"])
    clocked.namespace.faults.add(Fault(Action.DELAY, Operation.ATTACH, seconds=10))
    async with signed_in(clocked) as one:
        one.ask_to_receive("orders", 0)
        one.flow(0, 1)
        one.flow(echo=True)
        await one.expect(Flow)
        assert clocked.clock is not None
        clocked.clock.advance(10)
        await one.expect(Attach)
        assert text_of((await one.next_frame()).payload) == "early"


async def test_a_delayed_connection_is_silent_until_its_time_and_loses_nothing(clocked: EmulatedNamespace) -> None:
    clocked.namespace.faults.add(Fault(Action.DELAY, Operation.CONNECT, seconds=10, times=1))
    async with peer(clocked.running.amqp_port) as one:
        one.write(AMQP_HEADER)
        one.send(Open("peer"))
        await async_eventually(lambda: clocked.running.connection_count == 1, "the connection is open")
        async with signed_in(clocked):  # a later one is answered before it
            assert one.reader._buffer == b""  # type: ignore[attr-defined]  # nothing has come
        assert clocked.clock is not None
        clocked.clock.advance(10)
        assert await one.bytes_of(8) == AMQP_HEADER
        await one.expect(Open)


async def test_links_leave_with_a_connection_that_breaks(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    await fill(emulated, ["one", "two"])
    async with signed_in(emulated) as one:
        await one.attach_receiver("orders", 0)
        await one.attach_sender("orders", 1)
        one.send(Transfer(1, 0, b"t", 0, False, True), b"half a mess")
        one.flow(0, 1)
        await one.until(Transfer)
        assert len(orders.links) == 2
    await async_eventually(lambda: emulated.running.connection_count == 0, "the connection is closed")
    assert not orders.links
    async with signed_in(emulated) as other:  # and the next message goes to the remaining client
        await other.attach_receiver("orders")
        other.flow(0, 5, echo=True)
        assert len(await other.transfers_before(Flow)) == 1


# --- small frames ----------------------------------------------------------------------------------------------------


async def test_a_peer_with_the_smallest_frames_gets_no_larger_ones(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    await fill(emulated, ["x" * 3000])
    async with signed_in(emulated, Open("peer", None, 512)) as one:
        await one.attach_receiver("orders", 0)
        one.flow(0, 1)
        pieces = []
        while True:
            found = await one.next_frame()
            assert found.size <= 512
            assert isinstance(found.performative, Transfer)
            pieces.append(found.payload)
            if not found.performative.more:
                break
        assert text_of(b"".join(pieces)) == "x" * 3000


async def test_an_error_is_shortened_to_fit_into_a_frame(emulated: EmulatedNamespace, orders: QueueEntity) -> None:
    async with signed_in(emulated, Open("peer", None, 512)) as one:
        one.ask_to_send("ä" * 150 + "/" + "ö" * 100)
        await one.expect(Attach)
        found = await one.next_frame()
        assert found.size <= 512
        assert isinstance(found.performative, Detach)
        assert found.performative.error is not None
        assert found.performative.error.condition == "amqp:not-found"
        assert (found.performative.error.description or "").startswith("The messaging entity")


async def test_an_attach_that_does_not_fit_into_a_frame_closes_the_connection(
    emulated: EmulatedNamespace, orders: QueueEntity
) -> None:
    async with signed_in(emulated, Open("peer", None, 512)) as one:
        one.ask_to_send("orders", 0, name="n" * 600)
        assert (await one.error_of(Close)).condition == "amqp:frame-size-too-small"
    await async_eventually(lambda: not orders.links, "no link is left")
