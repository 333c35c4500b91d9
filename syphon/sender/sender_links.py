"""A link: the SDK's sender for one entity, opened when it is first needed, and reopened after it broke."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from azure.servicebus import ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.model import RetryPolicy
from syphon.servicebus import disable_retries, is_shut_down, message_limit, release_sockets

from .error_classes import FailureClass, classify

T = TypeVar("T")
SdkSenderT = TypeVar("SdkSenderT")


class SenderLinkState(Generic[SdkSenderT]):
    """The state of a link, the same for the sync API and the asyncio API."""

    def __init__(self, create: Callable[[], SdkSenderT]) -> None:
        self.retries = RetryPolicy(0)
        self.limit: int | None = None
        self._create = create
        self._sender: SdkSenderT | None = None
        self._generation = 0
        self._has_served = False

    @property
    def is_shut_down(self) -> bool:
        """Whether the present sender was closed underneath: its client was closed, because the link has not done it."""
        sender = self._sender
        return sender is not None and is_shut_down(sender)

    def drop(self) -> None:
        """Stops using the present sender."""
        raise NotImplementedError

    def _create_sender(self) -> SdkSenderT:
        """Makes a new sender of the SDK. The sender does no retries by itself: the flow of the call does them."""
        sender = self._create()
        self.retries = disable_retries(sender)
        release_sockets(sender)
        return sender

    def _drop_if_broken(self, error: Exception, retry_if_stale: bool) -> bool:
        """Drops the sender if the error says that the entity is not available.

        Returns whether to retry on a new sender: a link that has served before may only have been idle for too
        long. A timeout is no such case.
        """
        if classify(error) is not FailureClass.COUNTS:
            return False
        self.drop()
        return retry_if_stale and self._has_served and not isinstance(error, OperationTimeoutError)


class SenderLink(SenderLinkState[ServiceBusSender]):
    """A link of one paired sender of the sync API, which uses it from one thread at a time.

    The SDK has no timeout for opening a connection: it waits forever for a host that accepts the connection and then
    stays silent. So a link is opened in its own thread, and the link abandons an opening that takes too long.
    """

    def __init__(self, create: Callable[[], ServiceBusSender]) -> None:
        super().__init__(create)
        self._opening: _Opening | None = None

    def use(
        self,
        action: Callable[[ServiceBusSender, float], T],
        timeout: float,
        *,
        generation: int = 0,
        retry_if_stale: bool = False,
    ) -> T:
        """Calls `action` with the open sender and the time that is left.

        A link of another generation is not used again. With `retry_if_stale`, a link that has served before and fails
        now is reopened for a second attempt.
        """
        until = time.monotonic() + timeout
        if self._sender is not None and self._generation != generation:
            self.drop()
        try:
            if self._sender is None:
                self._sender, self._generation, self._has_served = self._open(timeout), generation, False
            result = action(self._sender, _left(until))
            self._has_served |= retry_if_stale
            return result
        except Exception as error:
            if not self._drop_if_broken(error, retry_if_stale):
                raise
        return self.use(action, _left(until), generation=generation)

    def _open(self, timeout: float) -> ServiceBusSender:
        sender = self._create_sender()
        self._opening = _Opening(sender)
        self._opening.start()
        self._opening.wait(timeout)
        self.limit = message_limit(sender)
        return sender

    def drop(self) -> None:
        """Stops using the present sender, and closes it in another thread: that may take half a second."""
        sender, self._sender = self._sender, None
        if sender is not None:
            threading.Thread(target=close_quietly, args=(sender,), name="close sender", daemon=True).start()

    def close(self) -> None:
        """Closes the link. Any thread may call it: the use of the link by another thread then fails."""
        if self._opening is not None:
            self._opening.give_up()
        sender, self._sender = self._sender, None
        if sender is not None:
            close_quietly(sender)


class _Opening:
    """Opens a sender in a thread. The opening ends when the sender is open, has failed, or is given up."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self._sender = sender
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_given_up = False
        self._error: Exception | None = None

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"open {self._sender.entity_name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._sender.__enter__()
        except Exception as error:
            self._error = error
        with self._lock:
            self._is_over.set()
        if self._is_given_up:
            close_quietly(self._sender)

    def give_up(self) -> None:
        """Ends the waiting. If the sender opens later, its thread closes it."""
        with self._lock:
            if not self._is_over.is_set():
                self._is_given_up = True
                self._is_over.set()

    def wait(self, timeout: float) -> None:
        if not self._is_over.wait(timeout):
            self.give_up()
        if self._is_given_up:
            raise OperationTimeoutError(message=f"'{self._sender.entity_name}' could not be opened in {timeout:.0f} s.")
        if self._error is not None:
            raise self._error


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise OperationTimeoutError(message="No time was left for the operation.")
    return left


def close_quietly(sender: ServiceBusSender | ServiceBusReceiver) -> None:
    with contextlib.suppress(Exception):  # the sender is not used again; the SDK may fail on a broken connection
        sender.close()
