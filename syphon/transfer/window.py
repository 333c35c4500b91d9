"""Shares the window, the rate and the message limit of a pump among its queues.

A queue with a million messages must not keep the one message of another queue waiting (S10). So every queue has a small
base credit, however busy the others are. The queues that have messages share the rest of the window equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

BASE = 50
"""The credit that an idle queue keeps. It is less if there are many queues: all of them have half of the window."""
NEARLY = 8
"""A queue has used up its share when less than one part in this many is left."""


class Demand(NamedTuple):
    """What one queue has of the window, and what it did since the window was last shared."""

    in_flight: int
    bytes_in_flight: int
    arrived: int
    """Messages that have arrived since the last sharing."""
    credit: int
    """What is left of the credit of the last sharing."""
    most: int
    """Messages it may have in flight, whatever its share: a slow start."""
    size: int
    """The bytes that a message of this queue is assumed to have."""


class SharedWindow:
    """Shares the window of a pump by count and by bytes."""

    def __init__(self, messages: int, size: int) -> None:
        self.is_full = False
        """Whether a queue used up its share at the last sharing: another pump would make it faster."""
        self._messages = messages
        self._bytes = size

    def credits(self, demands: Sequence[Demand], allowed: int | None) -> list[int]:
        """The credit of each queue. `allowed` is what the rate allows to arrive now; None means any number.

        A queue without messages in flight may always receive one, however large. If the rate allows fewer messages than
        there are queues, each queue still gets a credit of one: the rate limiter makes up for it afterwards.
        """
        if not demands:
            self.is_full = False
            return []
        count = len(demands)
        if count == 1:
            return [self._credit_of(demands[0], allowed)]
        base = max(1, min(BASE, self._messages // (2 * count)))
        busy = [_is_busy(demand, base) for demand in demands]
        messages = share(self._messages, [demand.in_flight for demand in demands], busy, base)
        size = share(
            self._bytes, [demand.bytes_in_flight for demand in demands], busy, self._bytes * base // self._messages
        )
        self.is_full = any(
            is_busy and (by_count.is_used_up or by_size.is_used_up)
            for is_busy, by_count, by_size in zip(busy, messages, size, strict=True)
        )
        found = [
            max(
                0,
                min(
                    by_count.room,
                    max(by_size.room // demand.size, not demand.in_flight),
                    demand.most - demand.in_flight,
                ),
            )
            for demand, by_count, by_size in zip(demands, messages, size, strict=True)
        ]
        if allowed is None:
            return found
        if allowed <= 0:
            return [0] * count
        paced = share(allowed, [0] * count, busy, max(1, allowed // (2 * count)))
        return [min(credit, part.room) for credit, part in zip(found, paced, strict=True)]

    def _credit_of(self, demand: Demand, allowed: int | None) -> int:
        """The credit of a queue that has the window for itself, as `credits` gives it. Most pumps have one queue."""
        messages, size = max(0, self._messages - demand.in_flight), max(0, self._bytes - demand.bytes_in_flight)
        self.is_full = messages * NEARLY < self._messages or size * NEARLY < self._bytes
        room = min(messages, max(size // demand.size, not demand.in_flight), demand.most - demand.in_flight)
        return max(0, room if allowed is None else min(room, allowed))


def _is_busy(demand: Demand, base: int) -> bool:
    """Whether a queue has more messages than a base credit is good for."""
    return 2 * max(demand.in_flight, demand.arrived) >= base or (demand.arrived > 0 and demand.credit <= 0)


class Part(NamedTuple):
    """The part of one queue: its share of the whole, and the room that is left in it."""

    share: int
    room: int

    @property
    def is_used_up(self) -> bool:
        return self.room * NEARLY < self.share


def share(total: int, used: Sequence[int], busy: Sequence[bool], base: int) -> list[Part]:
    """Shares a total: idle queues get the base, and busy ones equal shares of the rest.

    A share may have become smaller than what its queue uses. Until it has returned that, the others have less room, but
    never less than the base.
    """
    working = sum(busy)
    largest = max(base, (total - base * (len(busy) - working)) // working) if working else base
    shares = [largest if is_busy else base for is_busy in busy]
    wanted = [max(0, part - taken) for part, taken in zip(shares, used, strict=True)]
    kept = [min(want, max(0, base - taken)) for want, taken in zip(wanted, used, strict=True)]
    free, more = max(0, total - sum(used) - sum(kept)), sum(wanted) - sum(kept)
    if more > free:
        wanted = [least + (want - least) * free // more for want, least in zip(wanted, kept, strict=True)]
    return [Part(part, room) for part, room in zip(shares, wanted, strict=True)]


class ReceiveLimit:
    """Shares the number of messages that a pump may receive, exactly: no message is allowed to two queues at once.

    A queue that has used up its share gets a share of the messages that are not yet shared. A queue that has ended
    returns what it did not use.
    """

    def __init__(self, limit: int | None) -> None:
        self._left = limit
        self._shares: dict[str, int] = {}

    def room(self, queue: str, received: int, queues: int) -> int | None:
        """How many more messages a queue may receive, given how many it has `received`; None means any number."""
        if self._left is None:
            return None
        room = self._shares.setdefault(queue, received) - received
        if room <= 0 and self._left:
            more = -(-self._left // queues)
            self._left -= more
            self._shares[queue] += more
            room += more
        return room

    def return_unused(self, queue: str, received: int) -> None:
        """Takes back what a queue may still receive: its service has ended, and it no longer has credit."""
        if self._left is not None and queue in self._shares:
            self._left += self._shares.pop(queue) - received


class RateLimiter:
    """A token bucket: it fills with time, holds the messages of `burst` seconds at most, and each message takes one.

    It may hold one more message: otherwise the part of a message that came with the last turn would be lost.
    """

    def __init__(self, now: float, burst: float = 1.0) -> None:
        self._at = now
        self._burst = burst
        self._tokens = 0.0

    def room(self, rate: float | None, now: float) -> int | None:
        """How many messages may arrive now; None means any number. A rate of 0 is a pause."""
        passed, self._at = now - self._at, now
        if not rate:
            self._tokens = 0.0
            return None if rate is None else 0
        self._tokens = min(self._tokens + passed * rate, 1.0 + self._burst * rate)
        return max(0, int(self._tokens))

    def spend(self, messages: int) -> None:
        self._tokens -= messages
