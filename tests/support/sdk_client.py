"""The official client, synchronous or asynchronous, with links to any number of entities.

Opening a link takes the SDK half a second, so links are opened and closed in parallel.
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
from tests.integration.emulator.conftest import EmulatedNamespace
from tests.support.sdk_queue import AIO, MOMENT, SOON, ThreadedSdk
from tests.support.waiting import TIMEOUT

Source = str | tuple[str, str]
"""The name of a queue, or the names of a topic and a subscription."""
DELETES = ServiceBusReceiveMode.RECEIVE_AND_DELETE


class SdkClient:
    """One client and its links."""

    def __init__(self, emulated: EmulatedNamespace, flavour: str) -> None:
        kind: Any = ServiceBusClient if flavour == AIO else SyncClient
        self.emulated = emulated
        self.client: Any = kind.from_connection_string(emulated.connection_string, retry_total=0)
        self._flavour = flavour
        self._opened: list[Any] = []
        self._senders: dict[str, ServiceBusSender] = {}

    # --- links ---------------------------------------------------------------------------------------------------

    async def receiver(self, source: Source, **options: Any) -> ServiceBusReceiver:
        """Opens a receiver, with the options of the SDK's `get_queue_receiver`."""
        if isinstance(source, str):
            link = self.client.get_queue_receiver(source, **options)
        else:
            link = self.client.get_subscription_receiver(*source, **options)
        return cast("ServiceBusReceiver", await self._open(link))

    async def receivers(self, *sources: Source, **options: Any) -> list[ServiceBusReceiver]:
        return list(await asyncio.gather(*(self.receiver(source, **options) for source in sources)))

    async def sender(self, target: str) -> ServiceBusSender:
        if target not in self._senders:
            # Over AMQP the sender of a topic and that of a queue are the same.
            self._senders[target] = await self._open(self.client.get_queue_sender(target))
        return self._senders[target]

    async def _open(self, link: Any) -> Any:
        link = link if self._flavour == AIO else ThreadedSdk(link)
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
        """Receives and deletes all messages of each source, and returns their bodies."""
        receivers = await self.receivers(*sources, receive_mode=DELETES, **options)
        found = await asyncio.gather(*map(rest, receivers))
        await self.close(*receivers)  # their credit must not receive later messages
        return [[str(message) for message in batch] for batch in found]


async def rest(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Receives all messages that are ready now."""
    found: list[ServiceBusReceivedMessage] = []
    while batch := await _asked(receiver):
        found += batch
    return found


async def _asked(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    """Receives once. On a busy machine the receive may time out before the broker has seen it. So a peek follows on the
    same connection: when its answer arrives, all messages of the receive have arrived too.
    """
    if batch := await receiver.receive_messages(max_message_count=100, max_wait_time=MOMENT):
        return batch
    await receiver.peek_messages()
    return await receiver.receive_messages(max_message_count=100, max_wait_time=MOMENT)


async def take(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Receives this many messages, which must be there, in one or more calls. No credit stays open."""
    taken: list[ServiceBusReceivedMessage] = []
    async with asyncio.timeout(TIMEOUT):
        while len(taken) < count:
            taken += await receiver.receive_messages(max_message_count=count - len(taken), max_wait_time=SOON)
    return taken


async def take_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    return (await take(receiver))[0]


def session_of(receiver: Any) -> Any:
    """The session of a receiver, with awaitable operations for both clients."""
    return ThreadedSdk(receiver.session) if isinstance(receiver, ThreadedSdk) else receiver.session


@asynccontextmanager
async def sdk_client(emulated: EmulatedNamespace, flavour: str = AIO) -> AsyncIterator[SdkClient]:
    it = SdkClient(emulated, flavour)
    try:
        yield it
    finally:
        await it.leave()


def put(emulated: EmulatedNamespace, target: str, *bodies: str, session_id: str | None = None) -> None:
    """Puts messages directly into the broker. It saves a link where the test is not about sending."""
    head = properties_bytes(Properties(group_id=session_id))
    for body in bodies:
        message = BrokeredMessage.parse(head + section_bytes(Section.DATA, body.encode()))
        emulated.namespace.target(target).submit([message])


def held(emulated: EmulatedNamespace, *paths: str) -> list[list[str]]:
    """The bodies of the messages at each path, in order, without a receive."""
    return [[_body(message) for message in message_queue(emulated, path).peek(0, 1000)] for path in paths]


def _body(message: BrokeredMessage) -> str:
    found = Message(message.bare).read(Section.DATA)
    assert isinstance(found, bytes)
    return found.decode()


def message_queue(emulated: EmulatedNamespace, path: str) -> MessageQueue:
    """The message queue of the broker at a path."""
    return emulated.namespace.message_queue(path)


def sessions(emulated: EmulatedNamespace, path: str) -> SessionQueue:
    found = emulated.namespace.message_queue(path)
    assert isinstance(found, SessionQueue)
    return found


def advance(emulated: EmulatedNamespace, seconds: float) -> None:
    assert emulated.clock is not None, "only a fake clock can be moved"
    emulated.clock.advance(seconds)
