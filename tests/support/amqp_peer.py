"""An AMQP peer that sends single frames, valid or not, and reads every frame that comes back.

`raw_client.py` has a client for messages. This peer is for the protocol: channels, handles, windows, errors.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from syphon.amqp import Int, Map, Properties, Section, Value, properties_bytes, section_bytes
from syphon.amqp.frames import (
    AMQP_HEADER,
    FRAME_SASL,
    SASL_HEADER,
    Attach,
    Begin,
    Close,
    Composite,
    Detach,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    frame,
    read_performative,
)
from syphon.amqp.sections import Message, data_section
from syphon.emulator.settings import ROOT_KEY, ROOT_POLICY
from tests.support.waiting import TIMEOUT

WIDE = 1 << 20
F = TypeVar("F", bound=Composite)


def sas(resource: str, policy: str = ROOT_POLICY, key: str = ROOT_KEY, expiry: float | str | None = None) -> str:
    """A shared access signature for an address."""
    when = str(int(time.time()) + 600 if expiry is None else expiry)
    signed = f"{quote(resource, safe='')}\n{when}".encode()
    signature = base64.b64encode(hmac.new(key.encode(), signed, hashlib.sha256).digest()).decode()
    fields = f"sr={quote(resource, safe='')}&sig={quote(signature, safe='')}&se={when}&skn={policy}"
    return f"SharedAccessSignature {fields}"


@dataclass
class Frame:
    """One received frame. A heartbeat has no performative."""

    channel: int
    performative: Composite | None
    payload: bytes
    size: int


class AmqpPeer:
    """The client end of a connection, frame by frame."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.cbs_requests = 0

    # --- bytes and frames ----------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, performative: Composite, payload: bytes = b"", channel: int = 0) -> None:
        self.write(frame(channel, performative.to_bytes() + payload))

    async def bytes_of(self, count: int) -> bytes:
        async with asyncio.timeout(TIMEOUT):
            return await self.reader.readexactly(count)

    async def frame(self) -> Frame:
        """The next frame, heartbeats included."""
        head = await self.bytes_of(8)
        size = int.from_bytes(head[:4], "big")
        body = (await self.bytes_of(size - 8))[head[4] * 4 - 8 :]
        channel = int.from_bytes(head[6:8], "big")
        if not body:
            return Frame(channel, None, b"", size)
        performative, after = read_performative(body)
        return Frame(channel, performative, body[after:], size)

    async def next_frame(self) -> Frame:
        while (found := await self.frame()).performative is None:
            pass
        return found

    async def expect(self, kind: type[F]) -> F:
        """The next performative, which must be of that kind."""
        performative = (await self.next_frame()).performative
        assert isinstance(performative, kind), f"{kind.NAME} was expected, {performative!r} came"
        return performative

    async def until(self, kind: type[F]) -> tuple[F, list[Frame]]:
        """The next performative of that kind, and the frames that came before it."""
        before = []
        while not isinstance(performative := (found := await self.next_frame()).performative, kind):
            before.append(found)
        return performative, before

    async def error_of(self, kind: type[Close] | type[End] | type[Detach]) -> Error:
        """The error with which a connection, a session or a link is ended; other frames are passed over."""
        error = (await self.until(kind))[0].error
        assert error is not None
        return error

    async def rest(self) -> bytes:
        """Reads all bytes until the server closes its direction."""
        async with asyncio.timeout(TIMEOUT):
            return await self.reader.read()

    # --- opening -------------------------------------------------------------------------------------------------

    async def sasl(self, mechanism: str = "ANONYMOUS", response: bytes | None = None) -> int:
        """Authenticates with SASL and returns the code of the outcome."""
        self.write(SASL_HEADER)
        assert await self.bytes_of(8) == SASL_HEADER
        await self.expect(SaslMechanisms)
        self.write(frame(0, SaslInit(mechanism, response).to_bytes(), FRAME_SASL))
        return (await self.expect(SaslOutcome)).code

    async def open(self, opening: Open | None = None) -> Open:
        self.write(AMQP_HEADER)
        self.send(opening or Open("peer"))
        assert await self.bytes_of(8) == AMQP_HEADER
        return await self.expect(Open)

    async def begin(self, channel: int = 0, window: int = WIDE) -> Begin:
        self.send(Begin(None, 0, window, WIDE), channel=channel)
        return await self.expect(Begin)

    async def connect(self, opening: Open | None = None, window: int = WIDE) -> None:
        """Authenticates with the root policy, opens the connection, and begins a session on channel 0."""
        assert await self.sasl("PLAIN", f"\0{ROOT_POLICY}\0{ROOT_KEY}".encode()) == 0
        await self.open(opening)
        await self.begin(window=window)

    # --- links ---------------------------------------------------------------------------------------------------

    def ask_to_send(self, address: str, handle: int = 0, channel: int = 0, name: str | None = None) -> None:
        self.send(sender(address, handle, name), channel=channel)

    def ask_to_receive(self, address: str, handle: int = 0, channel: int = 0, name: str | None = None) -> None:
        self.send(receiver(address, handle, name), channel=channel)

    async def attach_sender(self, address: str, handle: int = 0, channel: int = 0) -> Attach:
        self.ask_to_send(address, handle, channel)
        attach = await self.expect(Attach)
        await self.expect(Flow)
        return attach

    async def attach_receiver(self, address: str, handle: int = 0, channel: int = 0) -> Attach:
        self.ask_to_receive(address, handle, channel)
        return await self.expect(Attach)

    def flow(
        self,
        handle: int | None = None,
        credit: int | None = None,
        *,
        seen: int = 0,
        window: int = WIDE,
        count: int | None = None,
        drain: bool = False,
        echo: bool = False,
        channel: int = 0,
    ) -> None:
        """Sends a flow: `seen` transfers were received in this session, `count` deliveries on this link."""
        if handle is not None and count is None:
            count = 0
        self.send(Flow(seen, window, 0, WIDE, handle, count, credit, None, drain, echo), channel=channel)

    async def transfers_before(self, kind: type[Composite]) -> list[Transfer]:
        """The transfers before the next frame of that kind. An echoed flow marks their end."""
        _, before = await self.until(kind)
        return [found.performative for found in before if isinstance(found.performative, Transfer)]

    async def put_token(self, token: str, address: str, channel: int = 0) -> tuple[int, str]:
        """Puts a token on separate links (handles 100 and 101). Returns the status and the description of the reply."""
        if not self.cbs_requests:
            await self.attach_sender("$cbs", 100, channel)
            await self.attach_receiver("$cbs", 101, channel)
            self.flow(101, 1000, channel=channel)
        delivery = self.cbs_requests
        self.cbs_requests += 1
        self.send(Transfer(100, delivery, b"cbs", 0, True), token_request(token, address), channel)
        while not isinstance((found := await self.next_frame()).performative, Transfer):
            pass
        reply = Message(found.payload).application_properties()
        status, words = reply.get("status-code"), reply.get("status-description")
        assert isinstance(status, Int)
        assert isinstance(words, str)
        return int(status), words


def sender(address: str, handle: int = 0, name: str | None = None) -> Attach:
    source, target = Source("peer"), Target(address)
    return Attach(name or f"sender-{handle}", handle, False, None, None, source, target, initial_delivery_count=0)


def receiver(address: str, handle: int = 0, name: str | None = None) -> Attach:
    return Attach(name or f"receiver-{handle}", handle, True, 0, 1, source=Source(address), target=Target("peer"))


def token_request(token: Value, address: Value) -> bytes:
    asked = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": address}
    return b"".join(
        (
            properties_bytes(Properties(message_id="1")),
            section_bytes(Section.APPLICATION_PROPERTIES, Map.of(asked)),
            section_bytes(Section.VALUE, token),
        )
    )


def text(words: str) -> bytes:
    """A message with that text."""
    return data_section(words.encode())


def text_of(payload: bytes) -> str:
    found = Message(payload).read(Section.DATA)
    assert isinstance(found, bytes)
    return found.decode()


@asynccontextmanager
async def peer(port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[AmqpPeer]:
    """Connects, and in the end cuts the connection without an AMQP close."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        yield AmqpPeer(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
