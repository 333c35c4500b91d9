"""Invalid input: random bytes, and AMQP conversations with errors, while another client works normally.

The input depends on a seed alone. `SYPHON_FUZZ_SEED` repeats a run, `SYPHON_FUZZ_COUNT` makes it longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import uuid
from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from syphon.amqp import (
    Array,
    Described,
    Int,
    Long,
    Map,
    Properties,
    Section,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    encode,
    properties_bytes,
    section_bytes,
)
from syphon.amqp.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    FRAME_SASL,
    SASL_HEADER,
    Accepted,
    Begin,
    Close,
    Composite,
    Detach,
    Disposition,
    End,
    Flow,
    Modified,
    Open,
    Rejected,
    Released,
    SaslInit,
    Transfer,
    frame,
)
from syphon.emulator import Kind, QueueDescription, SubscriptionDescription, TopicDescription
from syphon.emulator.settings import ROOT_KEY, ROOT_POLICY
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.amqp_peer import receiver, sas, sender, text, token_request
from tests.support.waiting import TIMEOUT, async_eventually

SEED = int(os.environ.get("SYPHON_FUZZ_SEED", "20240229"))
COUNT = int(os.environ.get("SYPHON_FUZZ_COUNT", "400"))
AT_ONCE = 12
CODES = [0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x30, 0x41, 0x99]


KEYS = [
    "from-sequence-number",
    "message-count",
    "lock-tokens",
    "session-id",
    "sequence-numbers",
    "messages",
    "skip",
    "top",
    "disposition-status",
    "receiver-settle-mode",
    "rule-name",
    "rule-description",
    "last-updated-time",
    "session-state",
    "properties-to-modify",
    "deadletter-reason",
    "deadletter-description",
]
OPERATIONS: list[Value] = [
    "put-token",
    *(
        f"com.microsoft:{name}"
        for name in (
            "peek-message",
            "renew-lock",
            "update-disposition",
            "receive-by-sequence-number",
            "schedule-message",
            "cancel-scheduled-message",
            "get-session-state",
            "set-session-state",
            "renew-session-lock",
            "get-message-sessions",
            "add-rule",
            "remove-rule",
            "enumerate-rules",
        )
    ),
]


def said(performative: Composite, payload: bytes = b"") -> bytes:
    return frame(0, performative.to_bytes() + payload)


class Nonsense:
    """One conversation, made up from a seed."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def said(self) -> bytes:
        kinds: list[tuple[Callable[[], bytes], int]] = [
            (self.noise, 1),
            (self.mutated, 6),
            (self.shuffled, 2),
            (self.made_up, 5),
            (self.asked, 5),
            (self.http, 1),
        ]
        make = self.random.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        return make()

    def noise(self) -> bytes:
        starts = [b"", b"", AMQP_HEADER, SASL_HEADER, b"AMQP", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"]
        start = self.random.choice(starts)
        return start + self.random.randbytes(self.random.randrange(1, 2000))

    def mutated(self) -> bytes:
        """A proper conversation with a few bytes changed, lost, repeated or put in."""
        data = bytearray(b"".join(self.conversation()))
        for _ in range(self.random.randrange(1, 6)):
            at = self.random.randrange(len(data))
            some = self.random.randrange(1, 9)
            match self.random.randrange(5):
                case 0:
                    data[at] ^= 1 << self.random.randrange(8)
                case 1:
                    data[at] = self.random.choice([0, 1, 0x40, 0x7F, 0x80, 0xFE, 0xFF])
                case 2:
                    del data[at : at + some]
                case 3:
                    data[at:at] = data[at : at + some]
                case _:
                    data[at:at] = self.random.randbytes(some)
        return bytes(data[: self.random.randrange(1, len(data))] if self.random.random() < 0.1 else data)

    def shuffled(self) -> bytes:
        """Proper frames in an order that is not."""
        frames = self.conversation()
        start, rest = frames[:5], frames[5:]
        chosen = [self.random.choice(rest) for _ in range(self.random.randrange(1, 40))]
        return b"".join(start + chosen)

    def made_up(self) -> bytes:
        """Frames that are well-formed and mean nothing."""
        frames = self.conversation()[: self.random.randrange(4, 9)]
        for _ in range(self.random.randrange(1, 20)):
            fields = [self.value(2) for _ in range(self.random.randrange(0, 14))]
            body = encode(Described(ULong(self.random.choice(CODES)), fields))
            payload = self.random.randbytes(self.random.choice([0, 0, 5, 300]))
            channel = self.random.choice([0, 0, 0, 1, 7, 4999, 65535])
            frames.append(frame(channel, body + payload, self.random.choice([0, 0, 0, 1])))
        return b"".join(frames)

    def asked(self) -> bytes:
        """Requests to the management nodes and messages to the queues, with what no client would write in them."""
        node = self.random.choice(["orders/$management", "sessions/$management", "news/subscriptions/all/$management"])
        frames = self.conversation()[:5]
        frames += [said(sender(node, 4)), said(receiver(node, 5)), said(Flow(0, 100, 3, 100, 5, 0, 100))]
        frames += [said(sender("orders", 2)), said(sender("sessions", 3)), said(sender("$cbs", 6))]
        for number in range(self.random.randrange(1, 12)):
            request = b"".join(
                (
                    properties_bytes(
                        Properties(message_id=self.value(0), reply_to=self.random.choice(["", "peer", None]))
                    ),
                    section_bytes(
                        Section.APPLICATION_PROPERTIES,
                        Map.of(
                            {
                                "operation": self.random.choice([*OPERATIONS, *OPERATIONS, self.value(0)]),
                                "name": self.value(0),
                            }
                        ),
                    ),
                    section_bytes(Section.VALUE, self.request_body() if self.random.random() < 0.9 else self.value(2)),
                )
            )
            message = b"".join(
                section_bytes(section, self.value(2)) for section in self.random.sample(list(Section), 3)
            )
            handle = self.random.choice([4, 4, 4, 2, 3, 6])
            frames.append(said(Transfer(handle, number, b"t", 0, False), request if handle in (4, 6) else message))
        return b"".join(frames)

    def request_body(self) -> Map:
        keys = self.random.sample(KEYS, self.random.randrange(len(KEYS) // 2, len(KEYS) + 1))
        return Map(tuple((key, self.value(2) if self.random.random() < 0.1 else self.likely(key)) for key in keys))

    def likely(self, key: str) -> Value:
        """What belongs to a key, now and then: requests that are right in part go further."""
        if key == "lock-tokens":
            return Array(0x98, (uuid.UUID(int=1), uuid.UUID(int=2)))
        if key == "sequence-numbers":
            return Array(0x81, (Long(1), Long(-1), Long(2**62)))
        if key == "messages":
            return [Map.of({"message": self.random.choice([text("x"), self.random.randbytes(20)])}), self.value(1)]
        if key in ("disposition-status", "session-id", "rule-name"):
            return self.random.choice(["completed", "abandoned", "defered", "suspended", "s", "$Default", "new"])
        if key == "rule-description":
            return Map(((Symbol("sql-filter"), Map.of({"expression": self.value(0)})), (self.value(0), self.value(1))))
        others: list[Value] = [Int(0), Int(1), Int(-1), Long(2**62), Long(-(2**62)), UInt(1), b"state", Map()]
        return self.random.choice(others)

    def http(self) -> bytes:
        request = bytearray(b"PUT /orders?api-version=2021-05 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
        for _ in range(self.random.randrange(1, 5)):
            request[self.random.randrange(1, len(request))] = self.random.randrange(256)
        return bytes(request)

    def value(self, depth: int) -> Value:
        pick = self.random.choice
        number = pick([0, 1, 2, 7, 255, 256, 65535, 0x7FFFFFFF])
        simple: list[Value] = [
            None,
            True,
            False,
            UInt(number),
            UInt(pick([0, 1, 0xFFFFFFFF])),
            ULong(number),
            UByte(number % 256),
            UShort(number % 65536),
            Int(number),
            Long(-number),
            1.5,
            Timestamp(number),
            uuid.UUID(int=number),
            pick(["", "orders", "$cbs", "orders/$management", "amqp://[x", "\N{SNOWMAN}" * 50]),
            Symbol("amqp:any"),
            self.random.randbytes(number % 40),
        ]
        if depth == 0:
            return pick(simple)
        nested: list[Value] = [
            *simple,
            [self.value(depth - 1) for _ in range(number % 4)],
            Map(tuple((self.value(0), self.value(depth - 1)) for _ in range(number % 3))),
            Described(ULong(pick(CODES)), [self.value(depth - 1) for _ in range(number % 6)]),
            Array(0xA3, (Symbol("one"), Symbol("two"))),
        ]
        return pick(nested)

    def conversation(self) -> list[bytes]:
        """Everything a client does, in the order in which clients do it."""
        root = f"\0{ROOT_POLICY}\0{ROOT_KEY}".encode()
        token = token_request(sas("sb://127.0.0.1/orders"), "sb://127.0.0.1/orders")
        peek = b"".join(
            (
                properties_bytes(Properties(message_id="1")),
                section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"operation": "com.microsoft:peek-message"})),
                section_bytes(Section.VALUE, Map.of({"from-sequence-number": Long(0), "message-count": Int(2)})),
            )
        )
        sessions = receiver("sessions", 6)
        sessions.source.filter = Map(((Symbol("com.microsoft:session-filter"), None),))  # type: ignore[union-attr]

        return [
            SASL_HEADER,
            frame(0, SaslInit("PLAIN", root).to_bytes(), FRAME_SASL),
            AMQP_HEADER,
            said(Open("fuzz", "127.0.0.1", 65536, 100, 1000)),
            said(Begin(None, 0, 100, 100)),
            said(sender("$cbs", 0)),
            said(receiver("$cbs", 1)),
            said(Flow(0, 100, 0, 100, 1, 0, 10)),
            said(Transfer(0, 0, b"t", 0, True), token),
            said(sender("orders", 2)),
            said(receiver("orders", 3)),
            said(Transfer(2, 1, b"t", 0, False), text("hello")),
            said(Transfer(2, 2, b"t", 0, False, True), text("in two")[:6]),
            said(Transfer(2, 2, None, None, False, False), text("in two")[6:]),
            said(Transfer(2, 3, b"t", 0, False, True), b"x"),
            said(Transfer(2, 3, b"t", 0, False, False, aborted=True)),
            said(Flow(0, 100, 3, 100, 3, 0, 2, None, False, True)),
            said(Disposition(True, 0, 1, False, Accepted())),
            said(Disposition(True, 0, 1, False, self.random.choice([Released(), Rejected(), Modified(True, True)]))),
            EMPTY_FRAME,
            said(sender("orders/$management", 4)),
            said(receiver("orders/$management", 5)),
            said(Flow(0, 100, 3, 100, 5, 0, 10)),
            said(Transfer(4, 4, b"t", 0, True), peek),
            said(sessions),
            said(Flow(0, 100, 3, 100, 6, 0, 1)),
            said(Flow(0, 100, 3, 100, 3, 2, 5, None, True)),
            said(Detach(3, True)),
            said(End()),
            said(Close()),
        ]


class Pestered:
    """A namespace at which nonsense is thrown."""

    def __init__(self, emulated: EmulatedNamespace) -> None:
        self._bench = emulated
        self._room = asyncio.Semaphore(AT_ONCE)

    async def throw(self, number: int) -> None:
        async with self._room:
            data = Nonsense(f"{SEED}/{number}").said()
            try:
                await self._say(data)
            except TimeoutError:
                raise AssertionError(f"SYPHON_FUZZ_SEED={SEED}, number {number}: it does not end: {data!r}") from None

    async def _say(self, data: bytes) -> None:
        """Says it all, hangs up, and listens until the other side has hung up too."""
        port = self._bench.running.amqp_port
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                writer.write_eof()
                while await reader.read(65536):
                    pass
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def work(emulated: EmulatedNamespace, done: asyncio.Event) -> tuple[list[str], list[str]]:
    """A client that sends and receives until it is told that it is enough: what it sent, and what it got."""
    sent: list[str] = []
    got: list[str] = []
    async with (
        ServiceBusClient.from_connection_string(emulated.connection_string, retry_total=0) as client,
        client.get_queue_sender("steady") as sending,
        client.get_queue_receiver("steady") as receiving,
    ):
        while not done.is_set() or len(got) < len(sent):
            if not done.is_set():
                fresh = [f"number {len(sent) + each}" for each in range(5)]
                await sending.send_messages([ServiceBusMessage(each) for each in fresh])
                sent += fresh
            for message in await receiving.receive_messages(max_message_count=5, max_wait_time=TIMEOUT):
                await receiving.complete_message(message)
                got.append(str(message))
    return sent, got


@pytest.mark.timeout(120 + COUNT // 10)
async def test_invalid_bytes_harm_no_other_client_and_leave_nothing_behind(
    emulated: EmulatedNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for name in ("steady", "orders", "sessions"):
        emulated.namespace.create_queue(QueueDescription(name, requires_session=name == "sessions"))
    emulated.namespace.create_topic(TopicDescription("news"))
    emulated.namespace.create_subscription(SubscriptionDescription("news", "all"))
    done = asyncio.Event()
    working = asyncio.create_task(work(emulated, done))
    await async_eventually(
        lambda: emulated.namespace.counters.of("steady", Kind.RECEIVE) or working.done(), "the client is at work"
    )
    before = emulated.running.connection_count
    pestered = Pestered(emulated)
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(COUNT):
                group.create_task(pestered.throw(number))
        await async_eventually(
            lambda: emulated.running.connection_count <= before, "all clients with invalid bytes are disconnected"
        )
    finally:
        done.set()
        sent, got = await working
    assert got == sent
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == [], f"SYPHON_FUZZ_SEED={SEED}: the log says what happened"
    for name in ("orders", "sessions"):
        assert not emulated.namespace.entity(name).links, f"SYPHON_FUZZ_SEED={SEED}"
    # Not all of it was nonsense: the test would prove little if every conversation ended at the first frame.
    assert emulated.namespace.counters.of("orders", Kind.SEND) > 0
    assert emulated.namespace.counters.of("orders", Kind.RECEIVE) > 0
    await async_eventually(lambda: emulated.running.connection_count == 0, "the client has disconnected too")
