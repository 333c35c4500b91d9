"""The asynchronous front: `pair`, the paired client and its senders, for asyncio. It does what `sync` does.

All of it belongs to the event loop it was made on, and any task of that loop may use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.backlog import Provisioned, QueueName
from syphon.bus import way_in

from .aio_links import CLOSE_WITHIN, Action, AioSenderLink, close_sender
from .entities import Entity
from .errors import SenderClosed
from .failover import Failover
from .messages import NOT_CANCELLABLE, check_cancellable, count_of, encoded, load_of, ping, scheduled
from .options import PairOptions
from .pairing import Side, set_up, sync_client
from .send_flow import Course, Deadline, EmptyBatch, IntoBacklog, OnPrimary, Pause, Ping, Step, Way, watching

if TYPE_CHECKING:
    from .embedded import EmbeddedSyphon

T = TypeVar("T")
Given: TypeAlias = str | tuple[str, AsyncTokenCredential] | ServiceBusClient


class Clock:
    """Time, for real. Tests have another one."""

    def now(self) -> float:
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Waits for an event, but no longer than that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


def pair(
    primary: Given, secondary: Given, options: PairOptions | None = None, *, clock: Clock | None = None
) -> _Pairing:
    """A primary and a secondary namespace as one client to send with: `syphon.sender.pair` for asyncio.

    >>> async with pair(primary, secondary) as client, client.get_queue_sender("orders") as sender:
    ...     await sender.send_messages(ServiceBusMessage("hello"))

    `client = await pair(primary, secondary)` does as well; it is then closed with `await client.close()`.
    """
    return _Pairing(_paired(primary, secondary, options or PairOptions(), clock or Clock()))


async def _paired(primary: Given, secondary: Given, options: PairOptions, clock: Clock) -> PairedClient:
    home, away = Side.of(primary, ServiceBusClient, "primary"), Side.of(secondary, ServiceBusClient, "secondary")
    loop = asyncio.get_running_loop()
    with sync_client(way_in(home.client), loop) as at_home, sync_client(way_in(away.client), loop) as abroad:
        backlog = await asyncio.to_thread(set_up, at_home, way_in(abroad), options)
    return PairedClient(home, away, backlog, options, clock, loop)


class _Pairing:
    """A pair that is being set up: to be awaited, or entered."""

    def __init__(self, coming: Coroutine[Any, Any, PairedClient]) -> None:
        self._coming = coming
        self._client: PairedClient | None = None

    def __await__(self) -> Generator[Any, None, PairedClient]:
        return self._coming.__await__()

    async def __aenter__(self) -> PairedClient:
        self._client = await self._coming
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()


class PairedClient:
    """Two namespaces to send with."""

    def __init__(
        self,
        primary: Side,
        secondary: Side,
        backlog: Provisioned,
        options: PairOptions,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.primary: ServiceBusClient = primary.client
        """The primary's client, for all that is not sending."""
        self.secondary: ServiceBusClient = secondary.client
        self.backlog = backlog
        """The backlog queues, and what was found out about them."""
        self.clock = clock
        self.closing = asyncio.Event()
        self.failover = Failover(self.primary.fully_qualified_namespace, options, backlog.names, clock.now, self._watch)
        self._sides = primary, secondary
        self._senders: set[PairedSender] = set()
        self._watchers: set[asyncio.Task[None]] = set()
        self._closers: set[asyncio.Task[None]] = set()
        self.syphon: EmbeddedSyphon | None = None
        """What carries the backlog home, with `enable_syphon`; it has a thread and connections of its own."""
        if options.enable_syphon:
            from .embedded import EmbeddedSyphon

            home, away = (sync_client(way_in(client), loop) for client in (self.primary, self.secondary))
            self.syphon = EmbeddedSyphon(home, away, backlog.names, clock.now)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def backlog_queue_count(self) -> int:
        """How many backlog queues there are: fewer than asked for, if some could not be made."""
        return self.backlog.count

    @property
    def failed_over(self) -> tuple[str, ...]:
        """The entities whose messages go to the backlog now."""
        return self.failover.failed_over()

    def get_queue_sender(self, queue_name: str, **options: Any) -> PairedSender:
        """A sender for a queue; options are those of `ServiceBusClient.get_queue_sender`."""
        return self._sender(queue_name, lambda: self.primary.get_queue_sender(queue_name, **options))

    def get_topic_sender(self, topic_name: str, **options: Any) -> PairedSender:
        """A sender for a topic; options are those of `ServiceBusClient.get_topic_sender`."""
        return self._sender(topic_name, lambda: self.primary.get_topic_sender(topic_name, **options))

    def get_queue_receiver(self, queue_name: str, **options: Any) -> ServiceBusReceiver:
        """A receiver of the primary's."""
        return self.primary.get_queue_receiver(queue_name, **options)

    def get_subscription_receiver(self, topic_name: str, subscription_name: str, **options: Any) -> ServiceBusReceiver:
        """A receiver of the primary's."""
        return self.primary.get_subscription_receiver(topic_name, subscription_name, **options)

    def _sender(self, path: str, make: Callable[[], ServiceBusSender]) -> PairedSender:
        if self.closing.is_set():
            raise SenderClosed
        sender = PairedSender(self, path, make)
        self._senders.add(sender)
        return sender

    def forget(self, sender: PairedSender) -> None:
        """The sender has been closed."""
        self._senders.discard(sender)

    def retire(self, sender: ServiceBusSender) -> None:
        """A link that is not to be used again is closed by and by."""
        _begin(close_sender(sender), self._closers)

    async def close(self) -> None:
        """Closes all senders, and those clients that were not given. Sends under way get five seconds to finish."""
        self.closing.set()
        if self.syphon is not None:
            await asyncio.to_thread(self.syphon.close)
        await asyncio.gather(*(sender.close() for sender in list(self._senders)))
        for watcher in self._watchers:
            watcher.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * CLOSE_WITHIN):
                while tasks := self._watchers | self._closers:  # a ping that is broken off has a link to close
                    await asyncio.wait(tasks)
        for side in self._sides:
            if side.is_ours:
                await side.client.close()

    # --- watching ------------------------------------------------------------------------------------------------

    def _watch(self, entity: Entity) -> None:
        """From its first failure until it is healthy, an entity has a task that looks after it."""
        _begin(self._look_after(entity), self._watchers)

    async def _look_after(self, entity: Entity) -> None:
        with contextlib.suppress(SenderClosed):
            await _drive(watching(self.failover, entity), self._watch_step)

    async def _watch_step(self, step: Step) -> None:
        if isinstance(step, Ping):
            link = AioSenderLink(lambda: self.primary.get_queue_sender(step.path), self.retire)
            try:
                await link.use(lambda sender, left: sender.send_messages(ping(), timeout=left), step.timeout)
            finally:
                link.drop()
        elif isinstance(step, Pause):
            await self.clock.wait(self.closing, step.seconds)
            if self.closing.is_set():
                raise SenderClosed


class PairedSender:
    """Sends to one entity of a pair, as the SDK's sender does; or to the backlog, while the entity is failed over.

    Calls of several tasks take turns. For sends side by side make more senders.
    """

    def __init__(self, client: PairedClient, path: str, make: Callable[[], ServiceBusSender]) -> None:
        self._client = client
        self._primary = AioSenderLink(make, client.retire)
        self._way = Way(client.failover, path, self._primary)
        self._backlog: tuple[QueueName, AioSenderLink] | None = None
        self._turn = asyncio.Lock()
        self._in_line = 0
        """How many wait for their turn. Whose it is may not know yet: then the lock is free, and yet not to be had."""
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def entity_name(self) -> str:
        return self._way.path

    @property
    def fully_qualified_namespace(self) -> str:
        """The primary's host name."""
        return self._client.primary.fully_qualified_namespace

    # --- what the SDK's sender does ------------------------------------------------------------------------------

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        """Sends a message, a list of messages or a batch. When it returns, the primary or the backlog has them.

        Takes what azure-servicebus takes and raises what it raises, and `BothSidesFailed`, `TooLargeForBacklog`,
        `UnfitForBacklog`. `timeout` is for the whole call; without one, each side gets the pair's operation timeout.
        """
        load = load_of(message)
        count = count_of(load)

        def course(deadline: Deadline, failure: Exception | None) -> Course[None]:
            return self._way.sending(lambda: encoded(load), count, deadline, failure)

        await self._run(course, timeout, lambda sender, left: sender.send_messages(load, timeout=left), count)

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Sends messages that are due later, and returns the numbers they can be cancelled by.

        Messages that go by way of the backlog have none: their number is `NOT_CANCELLABLE`.
        """
        copies = scheduled(load_of(messages), schedule_time_utc)
        numbers = [NOT_CANCELLABLE] * len(copies)

        def course(deadline: Deadline, failure: Exception | None) -> Course[list[int]]:
            return self._way.sending(lambda: encoded(copies), len(copies), deadline, failure, numbers)

        return await self._run(
            course, timeout, lambda sender, left: sender.schedule_messages(copies, schedule_time_utc, timeout=left)
        )

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        """Cancels messages that the primary has and that are not due yet."""
        check_cancellable(sequence_numbers)
        await self._run(
            lambda deadline, _: self._way.cancelling(deadline),
            timeout,
            lambda sender, left: sender.cancel_scheduled_messages(sequence_numbers, timeout=left),
        )

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch, as large as the entity takes it; while it is failed over, as large as the backlog does."""
        made: ServiceBusMessageBatch = await self._run(
            lambda deadline, _: self._way.making_a_batch(deadline),
            None,
            lambda sender, _: sender.create_message_batch(max_size_in_bytes),
        )
        return made

    async def close(self) -> None:
        """A send that is under way in another task gets five seconds to finish, and fails after that."""
        self._closed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN), self._turn:
                pass
        await self._let_go()
        self._client.forget(self)

    async def _let_go(self) -> None:
        await self._primary.close()
        if self._backlog is not None:
            await self._backlog[1].close()

    # --- carrying it out -----------------------------------------------------------------------------------------

    async def _run(
        self,
        course: Callable[[Deadline, Exception | None], Course[T]],
        timeout: float | None,
        action: Action,
        count: int = 0,
    ) -> T:
        """`count`: how many messages are sent, if any are."""
        if timeout is not None and timeout <= 0:
            raise ValueError("The timeout must be greater than 0.")
        left = timeout
        if self._turn.locked() or self._in_line:
            left = await self._wait_for_turn(timeout)
        else:
            await self._turn.acquire()
        way, failure = self._way, None
        deadline = way.deadline(left)
        try:
            if count and way.is_clear():
                try:
                    result: T = await self._do(OnPrimary(deadline.whole, way.entity.failovers), action)
                except Exception as error:
                    failure = error
                else:
                    way.arrived(count)
                    return result
            return await _drive(course(deadline, failure), lambda step: self._do(step, action))
        finally:
            if self._closed.is_set():
                await self._let_go()  # a link that has opened since
            self._turn.release()

    async def _wait_for_turn(self, timeout: float | None) -> float | None:
        """One call at a time; gives what is left of its time when it is its turn."""
        self._check_open()
        since = time.monotonic()
        self._in_line += 1
        try:
            async with asyncio.timeout(timeout):
                await self._turn.acquire()
        except TimeoutError:
            raise OperationTimeoutError(message=f"Other sends to '{self._way.path}' took all the time.") from None
        finally:
            self._in_line -= 1
        return None if timeout is None else max(0.001, timeout - (time.monotonic() - since))

    async def _do(self, step: Step, action: Action) -> Any:
        self._check_open()
        try:
            if isinstance(step, OnPrimary):
                return await self._primary.use(action, step.timeout, generation=step.failovers)
            return await self._do_without_primary(step)
        except Exception as error:
            if self._closed.is_set():  # whatever the SDK makes of a link that was closed under its hands
                raise SenderClosed from error
            raise

    async def _do_without_primary(self, step: Step) -> Any:
        match step:
            case EmptyBatch():
                link = self._backlog_link(step.queue)
                return await link.use(lambda sender, _: sender.create_message_batch(), step.timeout)
            case IntoBacklog(queue, batch, timeout):
                return await self._backlog_link(queue).use(
                    lambda sender, left: sender.send_messages(batch, timeout=left), timeout, once_more=True
                )
            case Pause():
                await self._client.clock.wait(self._closed, step.seconds)
                self._check_open()
                return None
            case _:
                raise AssertionError(f"{step} is not a sender's to do")

    def _backlog_link(self, queue: QueueName) -> AioSenderLink:
        """The link to the sender's backlog queue; that to another one is let go."""
        if self._backlog is None or self._backlog[0] != queue:
            if self._backlog is not None:
                self._backlog[1].drop()
            make = self._client.secondary.get_queue_sender
            self._backlog = queue, AioSenderLink(lambda: make(queue), self._client.retire)
        return self._backlog[1]

    def _check_open(self) -> None:
        if self._closed.is_set() or self._client.closing.is_set():
            raise SenderClosed


def _begin(work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> None:
    """Starts a task, and keeps it as long as it runs: the event loop would not."""
    task = asyncio.get_running_loop().create_task(work)
    kept.add(task)
    task.add_done_callback(kept.discard)


async def _drive(course: Course[T], do: Callable[[Step], Awaitable[Any]]) -> T:
    """Carries a course out, to its end."""
    try:
        step = next(course)
        while True:
            try:
                result = await do(step)
            except Exception as error:
                step = course.throw(error)
            else:
                step = course.send(result)
    except StopIteration as done:
        ended: T = done.value
        return ended
