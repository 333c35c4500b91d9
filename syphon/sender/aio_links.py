"""What `links` is, for asyncio: where a link that takes too long to open can be cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.bus import Retries, message_limit, take_over_retries

from .error_classes import Verdict, judge
from .timeouts import Patience

Action: TypeAlias = Callable[[ServiceBusSender, float], Awaitable[Any]]

CLOSE_WITHIN = 5.0
"""Seconds that closing, and a send that is under way meanwhile, may take."""


class AioSenderLink:
    """The SDK's sender for one entity, opened when it is first needed, and opened anew after it broke: see `links`."""

    def __init__(self, make: Callable[[], ServiceBusSender], retire: Callable[[ServiceBusSender], None]) -> None:
        self.retries = Retries(0)
        self.limit: int | None = None
        self._make = make
        self._retire = retire
        self._sender: ServiceBusSender | None = None
        self._is_open = False
        self._patience = Patience()
        self._generation = 0
        self._has_served = False

    async def use(self, action: Action, timeout: float, *, generation: int = 0, once_more: bool = False) -> Any:
        """Does something with the open sender, and tells it how much time is left."""
        until = time.monotonic() + timeout
        if self._generation != generation:
            self.drop()
        try:
            with self._patience.of(timeout):
                sender = await self._open(generation)
                result = await action(sender, max(0.001, until - time.monotonic()))
                self._has_served |= once_more
                return result
        except TimeoutError:
            self.drop()
            raise OperationTimeoutError(message=f"No answer within {timeout:.1f} s.") from None
        except asyncio.CancelledError:
            self.drop()  # nobody knows what is left on the link
            raise
        except Exception as error:
            if judge(error) is not Verdict.COUNTS:
                raise
            self.drop()
            if not (once_more and self._has_served) or isinstance(error, OperationTimeoutError):
                raise
        return await self.use(action, max(0.001, until - time.monotonic()), generation=generation)

    async def _open(self, generation: int) -> ServiceBusSender:
        if self._sender is None:
            self._sender, self._generation, self._has_served = self._make(), generation, False
            self.retries = take_over_retries(self._sender)
        if not self._is_open:
            await self._sender.__aenter__()
            self.limit = message_limit(self._sender)
            self._is_open = True
        return self._sender

    def drop(self) -> None:
        """Lets go of a sender that is not to be used again."""
        sender, self._sender, self._is_open = self._sender, None, False
        if sender is not None:
            self._retire(sender)

    async def close(self) -> None:
        """What another task is doing with the link fails."""
        self._patience.end()
        sender, self._sender, self._is_open = self._sender, None, False
        if sender is not None:
            await close_sender(sender)


async def close_sender(sender: ServiceBusSender) -> None:
    """Says goodbye, within a limit."""
    with contextlib.suppress(Exception):  # it is over; the SDK may stumble over what is left of the connection
        async with asyncio.timeout(CLOSE_WITHIN):
            await sender.close()
