"""A link for the asyncio API. It differs from `links.SenderLink` in one thing: a slow opening can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.servicebus import message_limit

from .sender_links import SenderLinkState
from .timeouts import CLOSE_WITHIN, ReusableTimeout

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
        """Calls `action` with the open sender and the time that is left: see `links.SenderLink.use`."""
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
