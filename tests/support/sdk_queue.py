"""One queue with a sender and a receiver of the official client, synchronous or asynchronous.

The same tests drive both clients: the synchronous one runs in a thread behind an asynchronous interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from syphon.emulator.broker.descriptions import QueueDescription
from syphon.emulator.broker.entities import QueueEntity
from tests.integration.emulator.conftest import EmulatedNamespace

SYNC, AIO = "sync", "aio"
both = pytest.mark.parametrize("flavour", [SYNC, AIO])
synchronous = pytest.mark.parametrize("flavour", [SYNC])
asynchronous = pytest.mark.parametrize("flavour", [AIO])

ORDERS = QueueDescription("orders")
SOON = 30
"""Seconds to wait for messages that are in the queue: the wait ends when they arrive."""
MOMENT = 0.1
"""Seconds to wait for a message that must not come."""


class ThreadedSdk:
    """An asynchronous interface to a synchronous object of the SDK: each call runs in a thread."""

    def __init__(self, it: Any) -> None:
        self._it = it

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._it, name)
        if not callable(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(found, *args, **options)

        return call

    async def __aenter__(self) -> ThreadedSdk:
        await asyncio.to_thread(self._it.__enter__)
        return self

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self._it.__exit__, *error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        nothing = object()
        source = iter(self._it)
        while (item := await asyncio.to_thread(next, source, nothing)) is not nothing:
            yield item


@dataclass
class SdkQueue:
    """A queue of the emulator with one sender and one receiver of the SDK."""

    emulated: EmulatedNamespace
    queue: QueueEntity
    sender: ServiceBusSender
    receiver: ServiceBusReceiver
    open_receiver: Callable[..., Awaitable[ServiceBusReceiver]]
    """Opens one more receiver on the same queue, with the options of the SDK's `get_queue_receiver`."""
    open_sender: Callable[..., Awaitable[ServiceBusSender]]

    async def send(self, *bodies: str) -> None:
        await self.sender.send_messages([ServiceBusMessage(body) for body in bodies])

    async def take(self, count: int = 1) -> list[ServiceBusReceivedMessage]:
        """Receives this many messages, which must be in the queue. No credit stays open."""
        taken: list[ServiceBusReceivedMessage] = []
        # The SDK returns when no message came for 0.2 s: on a busy machine that may be before the last one.
        while len(taken) < count:
            more = await self.receiver.receive_messages(max_message_count=count - len(taken), max_wait_time=SOON)
            assert more
            taken += more
        return taken

    async def take_one(self) -> ServiceBusReceivedMessage:
        return (await self.take())[0]

    def advance(self, seconds: float) -> None:
        assert self.emulated.clock is not None, "only a fake clock can be moved"
        self.emulated.clock.advance(seconds)

    def stored(self) -> int:
        """The number of messages in the queue, in any state."""
        return len(self.queue.main)


@asynccontextmanager
async def sdk_queue(
    emulated: EmulatedNamespace,
    flavour: str,
    description: QueueDescription = ORDERS,
    *,
    retries: int = 0,
    **options: Any,
) -> AsyncIterator[SdkQueue]:
    """Creates the queue and opens both links in parallel: each takes the SDK half a second. Options are the receiver's.

    When a link is detached during a send, the SDK fails without a reason and finds the reason only in a retry. A test
    that checks the reason sets `retries=1`.
    """
    emulated.namespace.create_queue(description)
    queue = emulated.namespace.entity(description.name)
    assert isinstance(queue, QueueEntity)
    kind: Any = ServiceBusClient if flavour == AIO else SyncClient
    client = kind.from_connection_string(emulated.connection_string, retry_total=retries, retry_backoff_factor=0)
    opened: list[Any] = []

    async def enter(link: Any) -> Any:
        opened.append(link if flavour == AIO else ThreadedSdk(link))
        return await opened[-1].__aenter__()

    async def open_receiver(**options: Any) -> ServiceBusReceiver:
        return cast("ServiceBusReceiver", await enter(client.get_queue_receiver(description.name, **options)))

    async def open_sender() -> ServiceBusSender:
        return cast("ServiceBusSender", await enter(client.get_queue_sender(description.name)))

    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close if flavour == AIO else ThreadedSdk(client).close)
        sender, receiver = await asyncio.gather(open_sender(), open_receiver(**options))
        try:
            yield SdkQueue(emulated, queue, sender, receiver, open_receiver, open_sender)
        finally:
            await asyncio.gather(*(link.close() for link in opened))


def text(message: ServiceBusReceivedMessage) -> str:
    """The body, as text."""
    return str(message)


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
