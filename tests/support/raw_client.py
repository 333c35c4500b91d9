"""A minimal AMQP client with SASL PLAIN: it sends bytes that no SDK sends, and reads the bytes that arrive."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from syphon.amqp import Map, Message, Properties, Section, Value, properties_bytes, section_bytes
from syphon.amqp.frames import (
    AMQP_HEADER,
    FRAME_SASL,
    SASL_HEADER,
    Attach,
    Begin,
    Composite,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Error,
    Flow,
    Open,
    Rejected,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    frame,
    read_performative,
)
from syphon.emulator.settings import ROOT_KEY, ROOT_POLICY
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.waiting import TIMEOUT

F = TypeVar("F", bound=Composite)
PIECE = 60_000


class LinkEnded(Exception):
    """The broker has detached the link."""

    def __init__(self, error: Error | None) -> None:
        super().__init__(error)
        self.condition = error.condition if error else None


@dataclass
class Arrival:
    """A received message: its bytes, its delivery id and its delivery tag."""

    payload: bytes
    delivery_id: int
    tag: bytes


@dataclass
class TemporaryQueue:
    """The handle of a receiver, and the address of its queue."""

    handle: int
    address: str


class RawClient:
    """One connection with one session. Its links have the handles 0, 1, 2 …"""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._handles = itertools.count()
        self._deliveries = itertools.count()
        self._nodes: dict[str, tuple[int, int]] = {}
        self._received: Counter[int] = Counter()

    async def sign_in(self, policy: str = ROOT_POLICY, key: str = ROOT_KEY, host: str | None = None) -> None:
        plain = f"\0{policy}\0{key}".encode()
        self._writer.write(SASL_HEADER + frame(0, SaslInit("PLAIN", plain).to_bytes(), FRAME_SASL))
        assert await self._reader.readexactly(8) == SASL_HEADER
        await self.next(SaslMechanisms)
        assert (await self.next(SaslOutcome))[0].code == 0
        self._writer.write(AMQP_HEADER)
        self.post(Open("raw", host))
        self.post(Begin(None, 0, 1 << 20, 1 << 20))
        assert await self._reader.readexactly(8) == AMQP_HEADER
        await self.next(Begin)

    async def attach_sender(self, address: str, properties: Map | None = None) -> int:
        return await self._attach_sending(Target(address), properties)

    async def attach_coordinator(self) -> int:
        return await self._attach_sending(Coordinator(), None)

    async def _attach_sending(self, target: Composite, properties: Map | None) -> int:
        handle = next(self._handles)
        self.post(
            Attach(
                f"sender-{handle}",
                handle,
                False,
                source=Source("raw"),
                target=target,
                initial_delivery_count=0,
                properties=properties,
            )
        )
        await self.next(Flow)
        return handle

    async def send(
        self, handle: int, payload: bytes, message_format: int = 0, state: Composite | None = None
    ) -> Composite | None:
        """Sends one delivery, in several transfers if it is large, and returns its outcome."""
        self.put(handle, payload, message_format, state)
        return await self.outcome()

    async def declare(self, coordinator: int) -> bytes:
        """Declares a transaction and returns its id."""
        outcome = await self.send(coordinator, value_bytes(Declare()))
        assert isinstance(outcome, Declared), outcome
        return outcome.txn_id

    async def discharge(self, coordinator: int, transaction: bytes, fail: bool = False) -> Composite | None:
        return await self.send(coordinator, value_bytes(Discharge(transaction, fail)))

    def put(self, handle: int, payload: bytes, message_format: int = 0, state: Composite | None = None) -> None:
        """Sends one delivery without waiting for its outcome."""
        delivery = next(self._deliveries)
        for start in range(0, max(1, len(payload)), PIECE):
            more = start + PIECE < len(payload)
            transfer = Transfer(handle, delivery, delivery.to_bytes(4, "big"), message_format, False, more, None, state)
            self._writer.write(frame(0, transfer.to_bytes() + payload[start : start + PIECE]))

    async def outcome(self) -> Composite | None:
        """The next outcome, of any delivery."""
        return (await self.next(Disposition))[0].state

    async def refusal_of(
        self, handle: int, payload: bytes, message_format: int = 0, state: Composite | None = None
    ) -> Error:
        outcome = await self.send(handle, payload, message_format, state)
        assert isinstance(outcome, Rejected)
        assert outcome.error is not None
        return outcome.error

    async def attach_receiver(self, address: str, deletes: bool = False) -> int:
        """A receiver that settles messages, or one that deletes them as it receives them."""
        handle = next(self._handles)
        modes = (1, 0) if deletes else (0, 1)
        self.post(Attach(f"receiver-{handle}", handle, True, *modes, source=Source(address), target=Target("raw")))
        await self.next(Attach)
        return handle

    async def attach_dynamic_receiver(self) -> TemporaryQueue:
        """A receiver of a temporary queue, whose address the broker chooses."""
        handle = next(self._handles)
        self.post(Attach(f"receiver-{handle}", handle, True, 0, 1, source=Source(dynamic=True), target=Target("raw")))
        source = (await self.next(Attach))[0].source
        assert isinstance(source, Source)
        assert isinstance(source.address, str)
        return TemporaryQueue(handle, source.address)

    def grant(self, handle: int, credit: int) -> None:
        self.post(Flow(0, 1 << 20, 0, 1 << 20, handle, self._received[handle], credit))

    async def receive(self, handle: int) -> Arrival:
        """Receives the next message. Grant credit first."""
        pieces: list[bytes] = []
        tag = None
        while True:
            transfer, payload = await self.next(Transfer)
            assert transfer.handle == handle
            pieces.append(payload)
            tag = transfer.delivery_tag if tag is None else tag
            if not transfer.more:
                self._received[handle] += 1
                assert transfer.delivery_id is not None
                assert tag is not None
                return Arrival(b"".join(pieces), transfer.delivery_id, tag)

    async def settle(self, arrival: Arrival, outcome: Composite, settled: bool = False) -> Composite | None:
        """Settles a message and returns the outcome that the broker echoes."""
        self.post(Disposition(True, arrival.delivery_id, None, settled, outcome))
        return (await self.next(Disposition))[0].state if not settled else None

    async def ask(
        self, entity: str, operation: str, body: dict[str, Value], state: Composite | None = None
    ) -> tuple[Map, Value]:
        """Asks the management node of an entity: the properties of its reply, and its body."""
        node = f"{entity}/$management"
        if node not in self._nodes:
            self._nodes[node] = await self.attach_receiver(node, deletes=True), await self.attach_sender(node)
            self.grant(self._nodes[node][0], 100)
        replies, requests = self._nodes[node]
        await self.send(requests, request(operation, body), state=state)
        message = Message((await self.receive(replies)).payload)
        return message.application_properties(), message.read(Section.VALUE)

    async def detach(self, handle: int) -> None:
        self.post(Detach(handle, True))
        while True:
            try:
                await self.next(Detach)
            except LinkEnded:
                return

    def post(self, performative: Composite) -> None:
        self._writer.write(frame(0, performative.to_bytes()))

    async def next(self, kind: type[F]) -> tuple[F, bytes]:
        """Returns the next frame of that kind and skips others. A detached link is an error."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                head = await self._reader.readexactly(8)
                rest = await self._reader.readexactly(int.from_bytes(head[:4], "big") - 8)
                if not rest:
                    continue
                performative, after = read_performative(rest[head[4] * 4 - 8 :])
                if isinstance(performative, Detach):
                    raise LinkEnded(performative.error)
                if isinstance(performative, kind):
                    return performative, rest[after:]


@dataclass(frozen=True)
class Place:
    """Where a namespace is, and the policy to sign in with."""

    host: str
    port: int
    policy: str = ROOT_POLICY
    key: str = field(default=ROOT_KEY, repr=False)
    tls: ssl.SSLContext | None = None


@asynccontextmanager
async def raw_client_at(place: Place) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(place.host, place.port, ssl=place.tls)
    try:
        client = RawClient(reader, writer)
        await client.sign_in(place.policy, place.key, place.host)
        yield client
    finally:
        writer.transport.abort()


@asynccontextmanager
async def raw_client(emulated: EmulatedNamespace) -> AsyncIterator[RawClient]:
    async with raw_client_at(Place("127.0.0.1", emulated.running.amqp_port)) as client:
        yield client


def value_bytes(body: Composite) -> bytes:
    """A message with this record as its value."""
    return b"\x00\x53\x77" + body.to_bytes()


def request(operation: str, body: dict[str, Value], message_id: str = "1") -> bytes:
    """Encodes a request to the management node of an entity."""
    return b"".join(
        (
            properties_bytes(Properties(message_id=message_id)),
            section_bytes(Section.APPLICATION_PROPERTIES, Map.of({"operation": f"com.microsoft:{operation}"})),
            section_bytes(Section.VALUE, Map.of(body)),
        )
    )
