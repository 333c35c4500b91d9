"""The SDK's sender for one entity, opened when it is first needed, and opened anew after it broke."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from syphon.bus import Retries, message_limit, take_over_retries

from .error_classes import Verdict, judge

T = TypeVar("T")


class SenderLink:
    """A link of one paired sender, which uses it from one thread at a time.

    The SDK opens a connection in its own time: it waits for ever for a host that takes the connection and then never
    says a word. So a link is opened in a thread of its own, and one that takes too long is left to itself.
    """

    def __init__(self, make: Callable[[], ServiceBusSender]) -> None:
        self.retries = Retries(0)
        self.limit: int | None = None
        self._make = make
        self._sender: ServiceBusSender | None = None
        self._opening: _Opening | None = None
        self._generation = 0
        self._has_served = False

    def use(
        self,
        action: Callable[[ServiceBusSender, float], T],
        timeout: float,
        *,
        generation: int = 0,
        once_more: bool = False,
    ) -> T:
        """Does something with the open sender, and tells it how much time is left.

        A link of another generation is not used again. `once_more`: one that has served before may have gone stale, and
        gets a second chance.
        """
        until = time.monotonic() + timeout
        if self._sender is not None and self._generation != generation:
            self.drop()
        try:
            if self._sender is None:
                self._sender, self._generation, self._has_served = self._open(timeout), generation, False
            result = action(self._sender, _left(until))
            self._has_served |= once_more
            return result
        except Exception as error:
            if judge(error) is not Verdict.COUNTS:
                raise
            self.drop()
            if not (once_more and self._has_served) or isinstance(error, OperationTimeoutError):
                raise
        return self.use(action, _left(until), generation=generation)

    def _open(self, timeout: float) -> ServiceBusSender:
        sender = self._make()
        self.retries = take_over_retries(sender)
        self._opening = _Opening(sender)
        self._opening.wait(timeout)
        self.limit = message_limit(sender)
        return sender

    def drop(self) -> None:
        """Lets go of a sender that is not to be used again; saying goodbye may take half a second."""
        sender, self._sender = self._sender, None
        if sender is not None:
            threading.Thread(target=_close, args=(sender,), name="close sender", daemon=True).start()

    def close(self) -> None:
        """Any thread may do that: what another one is doing with the link fails."""
        if self._opening is not None:
            self._opening.give_up()
        sender, self._sender = self._sender, None
        if sender is not None:
            _close(sender)


class _Opening:
    """A sender that is being opened, until it is open or given up."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self._sender = sender
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._is_given_up = False
        self._error: Exception | None = None
        threading.Thread(target=self._run, name=f"open {sender.entity_name}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._sender.__enter__()
        except Exception as error:
            self._error = error
        with self._lock:
            self._is_over.set()
        if self._is_given_up:
            _close(self._sender)

    def give_up(self) -> None:
        """Nobody waits any more. Should it open after all, it is closed."""
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


def _close(sender: ServiceBusSender) -> None:
    with contextlib.suppress(Exception):  # it is over; the SDK may stumble over what is left of the connection
        sender.close()
