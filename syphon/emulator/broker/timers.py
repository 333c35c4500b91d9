"""The timers of a message queue: locks expire, scheduled messages become active, messages expire.

One clock timer runs for the next of these events.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from ..clock import FOREVER, EmulatorClock, Millis, Timer
from .message import BrokeredMessage


class MessageLocks(OrderedDict[bytes, BrokeredMessage]):
    """Locked messages by their lock tokens, in the order in which the locks expire. A new lock is the last one."""

    def begin(self, token: bytes, message: BrokeredMessage) -> None:
        latest = next(reversed(self.values()), message)
        self[token] = message
        if latest.locked_until > message.locked_until:  # the lock duration was made shorter: older locks last longer
            self.sort()

    def sort(self) -> None:
        for token, _ in sorted(self.items(), key=lambda lock: lock[1].locked_until):
            self.move_to_end(token)

    def ended(self, now: Millis) -> Iterator[BrokeredMessage]:
        """Yields the messages whose locks have ended. The caller unlocks each before it asks for the next."""
        while self and (message := next(iter(self.values()))).locked_until <= now:
            yield message

    def next_end(self) -> Millis:
        return next(iter(self.values())).locked_until if self else FOREVER


Entry = tuple[Millis, int]
"""A time and the ordinal of the message that it is for."""


class MessageTimers:
    """The times at which messages become active or expire. Messages deleted by then are skipped."""

    def __init__(
        self, clock: EmulatorClock, messages: Mapping[int, BrokeredMessage], on_due: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._messages = messages
        self._on_due = on_due
        self._schedule: list[Entry] = []
        self._expiries: list[Entry] = []
        self._timer: Timer | None = None
        self._wake_at: Millis = FOREVER

    # --- adding ----------------------------------------------------------------------------------------------------

    def schedule(self, message: BrokeredMessage) -> None:
        heapq.heappush(self._schedule, (message.due, message.ordinal))
        self.wake(message.due)

    def expire(self, message: BrokeredMessage) -> None:
        if len(self._expiries) > 2 * len(self._messages) + 1024:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._messages]
            heapq.heapify(self._expiries)
        heapq.heappush(self._expiries, (message.expires_at, message.ordinal))
        self.wake(message.expires_at)

    # --- due messages ----------------------------------------------------------------------------------------------

    def due(self, now: Millis) -> Iterator[BrokeredMessage]:
        """Removes and yields the scheduled messages that are due."""
        while self._schedule and self._schedule[0][0] <= now:
            message = self._messages.get(heapq.heappop(self._schedule)[1])
            if message is not None:
                yield message

    def expired(self, now: Millis) -> Iterator[BrokeredMessage]:
        """Removes and yields the messages whose time to live is over."""
        while self._expiries and self._expiries[0][0] <= now:
            message = self._messages.get(heapq.heappop(self._expiries)[1])
            if message is not None:
                yield message

    # --- the timer -------------------------------------------------------------------------------------------------

    def wake(self, when: Millis) -> None:
        """Calls back once, at this time or at an earlier one. The callback then sets the next time."""
        if when < self._wake_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wake_at = when
            self._timer = self._clock.call_at(when, self._call_back)

    def wake_for_next(self) -> None:
        """Sets the timer for the first message that is scheduled or can expire."""
        for times in (self._schedule, self._expiries):
            if times:
                self.wake(times[0][0])

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _call_back(self) -> None:
        self._wake_at = FOREVER
        self._timer = None
        self._on_due()
