"""Keeping locks: those of messages that are still under way are renewed before they run out (S6)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from itertools import islice

from syphon.amqp import Array, Map

from ..bus.connection import Connection
from ..bus.links import Arrival, Reply, RequestLink

TOKENS_PER_REQUEST = 100
UUIDS = 0x98


class LockKeeper:
    """Renews the locks that one pump holds on one queue."""

    def __init__(self, queue: str, lock: float) -> None:
        self._queue = queue
        self._lock = lock
        self._link: RequestLink | None = None
        self._asked: set[Arrival] = set()

    def keep(self, connection: Connection, in_hand: Iterable[Arrival], now: float) -> None:
        """Asks for the oldest locks to be renewed, once half of their time is over. `in_hand` is oldest first."""
        if self._link is not None and self._link.error is not None:
            self._link = None
            self._asked.clear()
        due = []
        for arrival in islice(in_hand, 10 * TOKENS_PER_REQUEST):
            if now - arrival.locked_at > self._lock / 2 and arrival not in self._asked:
                due.append(arrival)
        if due and self._link is None:
            self._link = RequestLink(connection.wire, f"{self._queue}/$management")
        for start in range(0, len(due), TOKENS_PER_REQUEST):
            self._renew(due[start : start + TOKENS_PER_REQUEST], now)
        if self._link is not None:
            self._link.work()

    def _renew(self, arrivals: list[Arrival], now: float) -> None:
        assert self._link is not None  # the caller has just made it
        self._asked.update(arrivals)
        tokens = tuple(uuid.UUID(bytes_le=arrival.lock_token) for arrival in arrivals)

        def answered(reply: Reply) -> None:
            self._asked.difference_update(arrivals)
            for arrival in arrivals:
                # A lock that cannot be renewed is one that was lost: the completion will say so, and is counted.
                arrival.locked_at = now if reply.status == 200 else max(arrival.locked_at, now - self._lock / 2)

        self._link.ask(
            {"operation": "com.microsoft:renew-lock"}, Map.of({"lock-tokens": Array(UUIDS, tokens)}), answered
        )
