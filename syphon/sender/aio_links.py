"""A link for the asyncio API: unlike `sender_links.SenderLink`, it can cancel an opening that takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.servicebus import message_limit
from syphon.time_budget import CLOSE_WITHIN

from .sender_links import SenderLinkState

AioAction: TypeAlias = Callable[[ServiceBusSender, float], Awaitable[Any]]


class AioSenderLink(SenderLinkState[ServiceBusSender]):
    """A link of one paired sender of the asyncio API, which uses it from one task at a time."""

    def __init__(self, create: Callable[[], ServiceBusSender], close_later: Callable[[ServiceBusSender], None]) -> None:
        """`close_later` closes a sender that is not used again, in another task."""
        super().__init__(create)
        self._close_later = close_later
        self._is_open = False
        self._timeout = ReusableTimeout()

    async def use(self, action: AioAction, timeout: float, *, generation: int = 0, retry_if_stale: bool = False) -> Any:
        """Calls `action` with the open sender and the time that is left: see `sender_links.SenderLink.use`."""
        until = time.monotonic() + timeout
        if self._generation != generation:
            self.drop()
        try:
            with self._timeout.limit(timeout):
                sender = await self._open(generation)
                result = await action(sender, max(0.001, until - time.monotonic()))
                self._has_served |= retry_if_stale
                return result
        except TimeoutError:
            self.drop()
            raise OperationTimeoutError(message=f"No answer within {timeout:.1f} s.") from None
        except asyncio.CancelledError:
            self.drop()  # the state of the link is unknown
            raise
        except Exception as error:
            if not self._drop_if_broken(error, retry_if_stale):
                raise
        return await self.use(action, max(0.001, until - time.monotonic()), generation=generation)

    async def _open(self, generation: int) -> ServiceBusSender:
        if self._sender is None:
            self._sender, self._generation, self._has_served = self._create_sender(), generation, False
        if not self._is_open:
            await self._sender.__aenter__()
            self.limit = message_limit(self._sender)
            self._is_open = True
        return self._sender

    def drop(self) -> None:
        """Stops using the present sender, and has it closed in another task."""
        sender, self._sender, self._is_open = self._sender, None, False
        if sender is not None:
            self._close_later(sender)

    async def close(self) -> None:
        """Closes the link. The use of the link by another task then fails."""
        self._timeout.expire()
        sender, self._sender, self._is_open = self._sender, None, False
        if sender is not None:
            await close_sender(sender)


async def close_sender(sender: ServiceBusSender) -> None:
    """Closes a sender of the SDK, within a time limit."""
    with contextlib.suppress(Exception):  # the sender is not used again; the SDK may fail on a broken connection
        async with asyncio.timeout(CLOSE_WITHIN):
            await sender.close()


class ReusableTimeout:
    """`asyncio.timeout` for one use of a link after another: raises TimeoutError in the task when the time is over.

    `asyncio.timeout` sets a timer for each use and cancels it: that is a twentieth of what a whole send costs. This one
    leaves its timer in place, and decides when the timer fires. One task at a time may use it.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_expired = False
        self._cancelling = 0

    def limit(self, seconds: float) -> Self:
        """Sets the limit for the `with` block that follows."""
        task = asyncio.current_task()
        assert task is not None, "a link is used in a task"
        self._task, self._cancelling, self._has_expired = task, task.cancelling(), False
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._set_timer(loop)
        return self

    def expire(self) -> None:
        """Ends the time now, for the task that is inside the `with` block."""
        if self._task is not None and not self._has_expired:
            self._has_expired = True
            self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # Other code may have cancelled the task as well: then the task is cancelled, and not out of time.
        if self._has_expired and task is not None:
            is_ours = task.uncancel() <= self._cancelling
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """A timer that was set for an earlier use may fire too early for the present use, or while there is none."""
        self._timer = None
        if self._task is None:
            return
        if loop.time() < self._until:
            self._set_timer(loop)
        else:
            self.expire()
