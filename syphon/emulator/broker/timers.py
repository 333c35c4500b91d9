"""What time does to the messages of a line: locks run out, scheduled ones fall due, others expire.

One timer stands for the next of all this, whatever it is.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping

from ..clock import FOREVER, EmulatorClock, Millis, Timer
from .message import BrokeredMessage


class MessageLocks(OrderedDict[bytes, BrokeredMessage]):
    """Locked messages by their tokens. Who locks now stands behind all others, and so the first to end stands first."""

    def begin(self, token: bytes, message: BrokeredMessage) -> None:
        latest = next(reversed(self.values()), message)
        self[token] = message
        if latest.locked_until > message.locked_until:  # locks were made shorter, and those from before last longer
            self.sort()

    def sort(self) -> None:
        for token, _ in sorted(self.items(), key=lambda lock: lock[1].locked_until):
            self.move_to_end(token)

    def ended(self, now: Millis) -> Iterator[BrokeredMessage]:
        """The messages whose locks have run out, each to be unlocked before the next is asked for."""
        while self and (message := next(iter(self.values()))).locked_until <= now:
            yield message

    def next_end(self) -> Millis:
        return next(iter(self.values())).locked_until if self else FOREVER


Entry = tuple[Millis, int]
"""A time, and the number of the message whose time it is."""


class MessageTimers:
    """When messages fall due and expire. Those that are gone by then are passed over: nobody need strike them out."""

    def __init__(self, clock: EmulatorClock, messages: Mapping[int, BrokeredMessage], ring: Callable[[], None]) -> None:
        self._clock = clock
        self._messages = messages
        self._ring = ring
        self._schedule: list[Entry] = []
        self._expiries: list[Entry] = []
        self._timer: Timer | None = None
        self._wake_at: Millis = FOREVER

    # --- writing down --------------------------------------------------------------------------------------------

    def schedule(self, message: BrokeredMessage) -> None:
        heapq.heappush(self._schedule, (message.due, message.ordinal))
        self.wake(message.due)

    def expire(self, message: BrokeredMessage) -> None:
        if len(self._expiries) > 2 * len(self._messages) + 1024:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._messages]
            heapq.heapify(self._expiries)
        heapq.heappush(self._expiries, (message.expires_at, message.ordinal))
        self.wake(message.expires_at)

    # --- looking up ----------------------------------------------------------------------------------------------

    def due(self, now: Millis) -> Iterator[BrokeredMessage]:
        """Strikes out and gives the scheduled messages whose time has come."""
        while self._schedule and self._schedule[0][0] <= now:
            message = self._messages.get(heapq.heappop(self._schedule)[1])
            if message is not None:
                yield message

    def expired(self, now: Millis) -> Iterator[BrokeredMessage]:
        """Strikes out and gives the messages whose time to live is over."""
        while self._expiries and self._expiries[0][0] <= now:
            message = self._messages.get(heapq.heappop(self._expiries)[1])
            if message is not None:
                yield message

    # --- the timer -----------------------------------------------------------------------------------------------

    def wake(self, when: Millis) -> None:
        """Rings once, at this time or at an earlier one: who hears it says when to ring next."""
        if when < self._wake_at:
            if self._timer is not None:
                self._timer.cancel()
            self._wake_at = when
            self._timer = self._clock.call_at(when, self._ring_now)

    def wake_for_next(self) -> None:
        """Rings for the first message that is still written down."""
        for times in (self._schedule, self._expiries):
            if times:
                self.wake(times[0][0])

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring_now(self) -> None:
        self._wake_at = FOREVER
        self._timer = None
        self._ring()
