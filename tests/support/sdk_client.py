"""The official client, in either of its forms, with links to any number of entities.

Opening a link takes the SDK half a second, so those that are needed are opened together and closed together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from syphon.amqp import Message, Properties, Section, properties_bytes, section_bytes
from syphon.emulator.broker.message import BrokeredMessage
from syphon.emulator.broker.queue import MessageQueue
from syphon.emulator.broker.sessions import SessionQueue
from tests.emulator.conftest import Bench
from tests.support.sdk_queue import AIO, MOMENT, SOON, _Threaded
from tests.support.waiting import TIMEOUT

Source = str | tuple[str, str]
"""A queue's name, or a topic's and a subscription's."""
DELETES = ServiceBusReceiveMode.RECEIVE_AND_DELETE


class Office:
    """One client and its links."""

    def __init__(self, bench: Bench, flavour: str) -> None:
        kind: Any = ServiceBusClient if flavour == AIO else SyncClient
        self.bench = bench
        self.client: Any = kind.from_connection_string(bench.connection_string, retry_total=0)
        self._flavour = flavour
        self._opened: list[Any] = []
        self._senders: dict[str, ServiceBusSender] = {}

    # --- links ---------------------------------------------------------------------------------------------------

    async def receiver(self, source: Source, **options: Any) -> ServiceBusReceiver:
        """Takes what the SDK's `get_queue_receiver` takes."""
        if isinstance(source, str):
            link = self.client.get_queue_receiver(source, **options)
        else:
            link = self.client.get_subscription_receiver(*source, **options)
        return cast("ServiceBusReceiver", await self._open(link))

    async def receivers(self, *sources: Source, **options: Any) -> list[ServiceBusReceiver]:
        return list(await asyncio.gather(*(self.receiver(source, **options) for source in sources)))

    async def sender(self, target: str) -> ServiceBusSender:
        if target not in self._senders:
            # On the wire a topic's sender and a queue's are the same.
            self._senders[target] = await self._open(self.client.get_queue_sender(target))
        return self._senders[target]

    async def _open(self, link: Any) -> Any:
        link = link if self._flavour == AIO else _Threaded(link)
        try:
            await link.__aenter__()
        except BaseException:
            await link.close()
            raise
        self._opened.append(link)
        return link

    async def close(self, *links: Any) -> None:
        """Closes these links, or all of them."""
        going = [link for link in self._opened if not links or link in links]
        self._opened = [link for link in self._opened if link not in going]
        await asyncio.gather(*(link.close() for link in going))

    async def leave(self) -> None:
        await self.close()
        await (self.client.close() if self._flavour == AIO else asyncio.to_thread(self.client.close))

    # --- messages ------------------------------------------------------------------------------------------------

    async def send(self, target: str, *messages: str | ServiceBusMessage, **options: Any) -> None:
        """Sends one batch; texts become messages with these options."""
        made = [ServiceBusMessage(each, **options) if isinstance(each, str) else each for each in messages]
        sender = await self.sender(target)
        await sender.send_messages(made if len(made) > 1 else made[0])

    async def contents(self, *sources: Source, **options: Any) -> list[list[str]]:
        """All that can be received from each of them, which is then gone."""
        receivers = await self.receivers(*sources, receive_mode=DELETES, **options)
        found = await asyncio.gather(*map(rest, receivers))
        await self.close(*receivers)  # their credit must not take what comes later
        return [[str(message) for message in batch] for batch in found]


async def rest(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """All that is there to be received now."""
    found: list[ServiceBusReceivedMessage] = []
    while batch := await _asked(receiver):
        found += batch
    return found


async def _asked(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """What a receive brings. On a busy machine its time may be over before the broker has heard of it: so a peek goes
    after it, on the same connection, and all that the broker had to give is here before the answer is.
    """
    if batch := await receiver.receive_messages(max_message_count=100, max_wait_time=MOMENT):
        return batch
    await receiver.peek_messages()
    return await receiver.receive_messages(max_message_count=100, max_wait_time=MOMENT)


async def take(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """As many as are known to be there, in as many receives as it takes; no credit is left behind."""
    taken: list[ServiceBusReceivedMessage] = []
    async with asyncio.timeout(TIMEOUT):
        while len(taken) < count:
            taken += await receiver.receive_messages(max_message_count=count - len(taken), max_wait_time=SOON)
    return taken


async def take_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    return (await take(receiver))[0]


def session_of(receiver: Any) -> Any:
    """The session a receiver has, with its operations to be awaited in either form of the client."""
    return _Threaded(receiver.session) if isinstance(receiver, _Threaded) else receiver.session


@asynccontextmanager
async def office(bench: Bench, flavour: str = AIO) -> AsyncIterator[Office]:
    it = Office(bench, flavour)
    try:
        yield it
    finally:
        await it.leave()


def put(bench: Bench, target: str, *bodies: str, session_id: str | None = None) -> None:
    """Puts messages straight into the broker, where sending is not what a test is about: it saves a link."""
    head = properties_bytes(Properties(group_id=session_id))
    for body in bodies:
        message = BrokeredMessage.parse(head + section_bytes(Section.DATA, body.encode()))
        bench.namespace.target(target).submit([message])


def held(bench: Bench, *paths: str) -> list[list[str]]:
    """The bodies of the messages at each path, in order, without receiving them."""
    return [[_body(message) for message in line(bench, path).peek(0, 1000)] for path in paths]


def _body(message: BrokeredMessage) -> str:
    found = Message(message.bare).read(Section.DATA)
    assert isinstance(found, bytes)
    return found.decode()


def line(bench: Bench, path: str) -> MessageQueue:
    """What the broker has in store at a path."""
    return bench.namespace.line(path)


def sessions(bench: Bench, path: str) -> SessionQueue:
    found = bench.namespace.line(path)
    assert isinstance(found, SessionQueue)
    return found


def advance(bench: Bench, seconds: float) -> None:
    assert bench.clock is not None, "only a fake clock can be moved"
    bench.clock.advance(seconds)
