"""The asyncio API: `pair`, the paired client and its senders. It executes the steps of `send_flow` in tasks.

A client and its senders belong to the event loop on which they were made, and any task of that loop may use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from azure.core.credentials import TokenCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.backlog import Provisioned
from syphon.model import Faulted
from syphon.servicebus import ConnectionDetails, connection_details
from syphon.time_budget import CLOSE_WITHIN

from .aio_links import AioSenderLink, close_sender
from .base import PairedClientBase, PairedSenderBase, check_timeout, embedded_syphon, left_after_waiting
from .entity_state import PrimaryEntity
from .error_classes import SenderClosed
from .pair_options import PairOptions
from .pair_state import Side
from .pairing import (
    NamespaceClient,
    administration_details,
    blocking_details,
    find_fault,
    is_in_backlog,
    set_up,
    sync_client,
)
from .send_calls import CancelMessages, CreateBatch, ScheduleMessages, SenderCall, SendMessages, ping_message
from .send_flow import Delay, FindInBacklog, FlowStep, SendPing, Steps, UsePrimary, watch_entity

if TYPE_CHECKING:
    from .embedded import EmbeddedSyphon

T = TypeVar("T")
NamespaceSource: TypeAlias = str | tuple[str, AsyncTokenCredential] | ServiceBusClient


def pair(
    primary: NamespaceSource,
    secondary: NamespaceSource,
    options: PairOptions | None = None,
    *,
    provision: bool = True,
    secondary_administration: str | tuple[str, AsyncTokenCredential | TokenCredential] | None = None,
    clock: AioClock | None = None,
) -> _PendingPair:
    """A primary and a secondary namespace as one client to send with: `syphon.sender.pair` for asyncio.

    >>> async with pair(primary, secondary) as client, client.get_queue_sender("orders") as sender:
    ...     await sender.send_messages(ServiceBusMessage("hello"))

    `client = await pair(primary, secondary)` works as well; then close it with `await client.close()`.
    """
    provisioning = provision, secondary_administration
    return _PendingPair(_set_up_pair(primary, secondary, options or PairOptions(), provisioning, clock or AioClock()))


async def _set_up_pair(
    primary: NamespaceSource,
    secondary: NamespaceSource,
    options: PairOptions,
    provisioning: tuple[bool, Any],
    clock: AioClock,
) -> PairedClient:
    first = NamespaceClient.of(primary, ServiceBusClient, "primary")
    second = NamespaceClient.of(secondary, ServiceBusClient, "secondary")
    loop = asyncio.get_running_loop()
    details = connection_details(first.client), connection_details(second.client)
    provision, given = provisioning
    administration = administration_details(given, details[1], provision)
    if administration is not None:
        administration = blocking_details(administration, loop)
    with sync_client(details[0], loop) as sync_primary, sync_client(details[1], loop) as sync_secondary:
        backlog = await asyncio.to_thread(set_up, sync_primary, sync_secondary, options, administration)
    # The syphon has a thread, and therefore sync clients of its own.
    syphon = embedded_syphon(
        lambda: (sync_client(details[0], loop), sync_client(details[1], loop)), backlog, options, clock.now
    )
    return PairedClient(first, second, backlog, options=options, clock=clock, syphon=syphon)


class AioClock:
    """The real clock of the asyncio API. Tests use another one."""

    def now(self) -> float:
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Waits for an event, but not longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


class _PendingPair:
    """A pair that is being set up: await it, or use it in `async with`."""

    def __init__(self, setting_up: Coroutine[Any, Any, PairedClient]) -> None:
        self._setting_up = setting_up
        self._client: PairedClient | None = None

    def __await__(self) -> Generator[Any, None, PairedClient]:
        return self._setting_up.__await__()

    async def __aenter__(self) -> PairedClient:
        self._client = await self._setting_up
        return self._client

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()


class PairedClient(PairedClientBase[ServiceBusClient, ServiceBusReceiver, "PairedSender"]):
    """Two namespaces to send with."""

    def __init__(
        self,
        primary: NamespaceClient,
        secondary: NamespaceClient,
        backlog: Provisioned,
        *,
        options: PairOptions,
        clock: AioClock,
        syphon: EmbeddedSyphon | None,
    ) -> None:
        super().__init__(
            primary,
            secondary,
            backlog,
            options=options,
            now=clock.now,
            syphon=syphon,
            find_fault=self._find_fault,
        )
        self.clock = clock
        self.closing: asyncio.Event = asyncio.Event()
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._watchers: set[asyncio.Task[None]] = set()
        self._closers: set[asyncio.Task[None]] = set()
        self.coupling.watch(self.primary, self.secondary, syphon)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def close_later(self, sender: ServiceBusSender) -> None:
        """Closes a sender of the SDK that is not used again, in another task."""
        _start_task(close_sender(sender), self._closers)

    async def close(self) -> None:
        """Closes all senders, and the clients that `pair` has made. Sends in flight get five seconds to finish."""
        if self.is_forked:  # the connections are the parent's
            return
        self._begin_close()
        if self.syphon is not None:
            await asyncio.to_thread(self.syphon.close)
        await asyncio.gather(*(sender.close() for sender in list(self._senders)))
        for watcher in self._watchers:
            watcher.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2 * CLOSE_WITHIN):
                while tasks := self._watchers | self._closers:  # a ping that was cancelled has a link to close
                    await asyncio.wait(tasks)
        for client in self._owned_clients:
            await client.close()
        self.coupling.close()

    def _new_sender(self, path: str, create: Callable[[], ServiceBusSender]) -> PairedSender:
        return PairedSender(self, path, create)

    def _primary_details(self) -> ConnectionDetails:
        return blocking_details(connection_details(self.primary), self._loop)

    # --- the end of the pair -------------------------------------------------------------------------------------

    def _call_soon(self, work: Callable[[], None]) -> None:
        """In the event loop's thread at once; from other threads (the syphon, a check of a side) a little later."""
        if threading.get_ident() == self._thread:
            work()
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed, and the application has ended
                self._loop.call_soon_threadsafe(work)

    def _close_all(self, handlers: list[Any]) -> None:
        for handler in handlers:
            self.close_later(handler)

    def _start_grace(self) -> None:
        _start_task(self._wait_for_partner(), self._watchers)

    async def _wait_for_partner(self) -> None:
        while (left := self.coupling.seconds_left()) is not None and not self.closing.is_set():
            await self.clock.wait(self.closing, left)
            self.coupling.pair.check()

    def _find_fault(self, side: Side, path: str) -> Faulted | None:
        client = self.primary if side == "primary" else self.secondary
        with sync_client(connection_details(client), self._loop) as blocking:
            return find_fault(blocking, path)

    # --- the watch over an entity --------------------------------------------------------------------------------

    def _start_watch(self, entity: PrimaryEntity) -> None:
        _start_task(self._watch(entity), self._watchers)

    async def _watch(self, entity: PrimaryEntity) -> None:
        with contextlib.suppress(SenderClosed):
            await _execute(watch_entity(self.failover, entity), self._execute_watch_step)

    async def _execute_watch_step(self, step: FlowStep) -> bool | None:
        if isinstance(step, SendPing):
            self.check_side("primary")
            link = AioSenderLink(lambda: self.primary.get_queue_sender(step.path), self.close_later)
            try:
                await link.use(lambda sender, left: sender.send_messages(ping_message(), timeout=left), step.timeout)
            except Exception as error:
                self.coupling.suspect("primary", step.path, error)
                raise
            finally:
                link.drop()
        elif isinstance(step, FindInBacklog):
            return await asyncio.to_thread(self._is_in_backlog, step)
        elif isinstance(step, Delay):
            await self.clock.wait(self.closing, step.seconds)
            if self.closing.is_set():
                raise self.closed_error()
        return None

    def _is_in_backlog(self, step: FindInBacklog) -> bool:
        with sync_client(connection_details(self.secondary), self._loop) as secondary:
            return is_in_backlog(secondary, step.queues, step.path)


class PairedSender(PairedSenderBase[AioSenderLink]):
    """Sends to one entity of a pair, as the SDK's sender does, or to the backlog while the entity is failed over.

    Calls of several tasks take turns. For parallel sends make more senders.
    """

    def __init__(self, client: PairedClient, path: str, create: Callable[[], ServiceBusSender]) -> None:
        super().__init__(
            client,
            path,
            AioSenderLink(create, client.close_later),
            lambda queue: AioSenderLink(lambda: client.secondary.get_queue_sender(queue), client.close_later),
        )
        self._client = client
        self._turn = asyncio.Lock()
        self._in_line = 0
        """How many calls wait for their turn. While a call that has got its turn is not scheduled yet, the lock seems
        free but is not."""
        self._closed: asyncio.Event = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- the methods of the SDK's sender -------------------------------------------------------------------------

    async def send_messages(self, message: Any, *, timeout: float | None = None) -> None:
        """Sends a message, a list of messages or a batch. When it returns, the primary or the backlog has them.

        Takes what azure-servicebus takes and raises what it raises, and `BothSidesFailed`, `TooLargeForBacklog`,
        `UnfitForBacklog`. `timeout` is for the whole call; without one, each side gets the pair's operation timeout.
        """
        await self._run(SendMessages(message), timeout)

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Sends messages that are due later, and returns the sequence numbers to cancel them with.

        Messages that go through the backlog have no such number: they get `NOT_CANCELLABLE`.
        """
        return await self._run(ScheduleMessages(messages, schedule_time_utc), timeout)

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        """Cancels messages that the primary has and that are not due yet."""
        await self._run(CancelMessages(sequence_numbers), timeout)

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """An empty batch with the entity's size limit, or with that of the backlog while the entity is failed over."""
        return await self._run(CreateBatch(max_size_in_bytes), None)

    async def close(self) -> None:
        """Closes the sender. A send in flight in another task gets five seconds to finish, and then fails."""
        if self._client.is_forked:
            return
        self._closed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN), self._turn:
                pass
        await self._close_links()
        self._client.remove_sender(self)

    async def _close_links(self) -> None:
        for link in self._links():
            await link.close()

    # --- executing a call ----------------------------------------------------------------------------------------

    async def _run(self, call: SenderCall[T], timeout: float | None) -> T:
        check_timeout(timeout)
        self._client.check_process()
        left = timeout
        if self._turn.locked() or self._in_line:
            left = await self._wait_for_turn(timeout)
        else:
            await self._turn.acquire()
        flow, failure = self._flow, None
        deadline = flow.deadline(left)
        try:
            if call.count and flow.can_skip_steps():
                try:
                    result: T = await self._execute_step(UsePrimary(deadline.whole, flow.entity.failovers), call)
                except Exception as error:
                    failure = error
                else:
                    flow.record_success(call.count)
                    return result
            steps = call.steps(flow, deadline, begins_at_primary=failure is not None)
            return await _execute(steps, lambda step: self._execute_step(step, call), failure)
        finally:
            if self._closed.is_set():
                await self._close_links()  # a link may have been opened since
            self._turn.release()

    async def _wait_for_turn(self, timeout: float | None) -> float | None:
        """Waits until no other call uses the sender; returns what is left of the timeout then."""
        self._check_open()
        since = time.monotonic()
        self._in_line += 1
        try:
            async with asyncio.timeout(timeout):
                await self._turn.acquire()
        except TimeoutError:
            raise OperationTimeoutError(message=f"Other sends to '{self._flow.path}' used up all the time.") from None
        finally:
            self._in_line -= 1
        return left_after_waiting(timeout, time.monotonic() - since)

    async def _execute_step(self, step: FlowStep, call: SenderCall[Any]) -> Any:
        self._check_step(step)
        try:
            if isinstance(step, UsePrimary):
                return await self._primary.use(call.use_primary, step.timeout, generation=step.failovers)
            if isinstance(step, Delay):
                await self._client.clock.wait(self._closed, step.seconds)
                return self._check_open()
            link, action, retry_if_stale = self._use_of_backlog(step)
            return await link.use(action, step.timeout, retry_if_stale=retry_if_stale)
        except Exception as error:
            explained = self._explain_failure(step, error)
            if explained is error:
                raise
            raise explained from error


def _start_task(work: Coroutine[Any, Any, None], kept: set[asyncio.Task[None]]) -> None:
    """Starts a task, and keeps it as long as it runs: the event loop keeps only a weak reference."""
    task = asyncio.get_running_loop().create_task(work)
    kept.add(task)
    task.add_done_callback(kept.discard)


async def _execute(
    steps: Steps[T], execute: Callable[[FlowStep], Awaitable[Any]], failure: Exception | None = None
) -> T:
    """Executes the steps of a flow until it ends; returns its result. `failure`: that of an executed first step."""
    try:
        step = next(steps)
        if failure is not None:
            step = steps.throw(failure)
        while True:
            try:
                result = await execute(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        value: T = end.value
        return value
