"""A queue with the official client at work on it, in either of its two forms.

Both forms are driven by the same tests: what the synchronous client does is done in a thread, behind the face of its
asynchronous twin.
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
from tests.emulator.conftest import Bench

SYNC, AIO = "sync", "aio"
both = pytest.mark.parametrize("flavour", [SYNC, AIO])
synchronous = pytest.mark.parametrize("flavour", [SYNC])
asynchronous = pytest.mark.parametrize("flavour", [AIO])

ORDERS = QueueDescription("orders")
SOON = 30
"""Seconds to wait for what is there already: a wait that ends with the message, not with the time."""
MOMENT = 0.1
"""Seconds to wait for what must not come."""


class _Threaded:
    """A synchronous object of the SDK as if it were asynchronous: each call is made in a thread."""

    def __init__(self, it: Any) -> None:
        self._it = it

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._it, name)
        if not callable(found):
            return found

        async def call(*args: Any, **options: Any) -> Any:
            return await asyncio.to_thread(found, *args, **options)

        return call

    async def __aenter__(self) -> _Threaded:
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
class Desk:
    """A sender and a receiver on one queue."""

    bench: Bench
    queue: QueueEntity
    sender: ServiceBusSender
    receiver: ServiceBusReceiver
    open_receiver: Callable[..., Awaitable[ServiceBusReceiver]]
    """Opens one more on the same queue; takes what the SDK's `get_queue_receiver` takes."""
    open_sender: Callable[..., Awaitable[ServiceBusSender]]

    async def send(self, *bodies: str) -> None:
        await self.sender.send_messages([ServiceBusMessage(body) for body in bodies])

    async def take(self, count: int = 1) -> list[ServiceBusReceivedMessage]:
        """Receives as many as are known to be there, and leaves no credit behind."""
        taken: list[ServiceBusReceivedMessage] = []
        # The SDK returns what it has when nothing more comes for 0.2 s: on a busy machine that may be a part.
        while len(taken) < count:
            more = await self.receiver.receive_messages(max_message_count=count - len(taken), max_wait_time=SOON)
            assert more
            taken += more
        return taken

    async def take_one(self) -> ServiceBusReceivedMessage:
        return (await self.take())[0]

    def advance(self, seconds: float) -> None:
        assert self.bench.clock is not None, "only a fake clock can be moved"
        self.bench.clock.advance(seconds)

    def stored(self) -> int:
        """How many messages the queue holds, in whatever state."""
        return len(self.queue.main)


@asynccontextmanager
async def desk(
    bench: Bench, flavour: str, description: QueueDescription = ORDERS, *, retries: int = 0, **options: Any
) -> AsyncIterator[Desk]:
    """Makes the queue and opens both links at once: each takes the SDK half a second. Options are the receiver's.

    A send whose link is detached meanwhile fails without a reason in the SDK, which finds the reason when it tries
    again: where that is the point, let it retry once.
    """
    bench.namespace.create_queue(description)
    queue = bench.namespace.entity(description.name)
    assert isinstance(queue, QueueEntity)
    kind: Any = ServiceBusClient if flavour == AIO else SyncClient
    client = kind.from_connection_string(bench.connection_string, retry_total=retries, retry_backoff_factor=0)
    opened: list[Any] = []

    async def enter(link: Any) -> Any:
        opened.append(link if flavour == AIO else _Threaded(link))
        return await opened[-1].__aenter__()

    async def open_receiver(**options: Any) -> ServiceBusReceiver:
        return cast("ServiceBusReceiver", await enter(client.get_queue_receiver(description.name, **options)))

    async def open_sender() -> ServiceBusSender:
        return cast("ServiceBusSender", await enter(client.get_queue_sender(description.name)))

    async with AsyncExitStack() as stack:
        stack.push_async_callback(client.close if flavour == AIO else _Threaded(client).close)
        sender, receiver = await asyncio.gather(open_sender(), open_receiver(**options))
        try:
            yield Desk(bench, queue, sender, receiver, open_receiver, open_sender)
        finally:
            await asyncio.gather(*(link.close() for link in opened))


def text(message: ServiceBusReceivedMessage) -> str:
    """The body, as text."""
    return str(message)


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]
