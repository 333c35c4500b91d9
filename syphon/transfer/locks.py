"""Locks, beside the link that got them: those of what is still under way are renewed before they run out (S6), and what
has arrived when its link was lost is completed all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from itertools import islice

from syphon.amqp import Array, Map, Value

from ..bus.connection import Connection
from ..bus.links import Arrival, Reply, RequestLink

TOKENS_PER_REQUEST = 100
UUIDS = 0x98
ASK_AGAIN = 0.1
"""The share of a lock after which a renewal that was refused is asked for again."""


class LockKeeper:
    """The locks that one pump holds on one queue, at the queue's management node."""

    def __init__(self, queue: str, lock: float) -> None:
        self._queue = queue
        self._lock = lock
        self._link: RequestLink | None = None
        self._asked: set[Arrival] = set()

    def keep(self, connection: Connection, in_hand: Iterable[Arrival], now: float) -> None:
        """Asks for the oldest locks to be renewed, once half of their time is over. `in_hand` is oldest first.

        To be called every now and then, even if nothing is in hand: what was asked goes out here.
        """
        self._look_at_link()
        due = []
        for arrival in islice(in_hand, 10 * TOKENS_PER_REQUEST):
            is_old = now - arrival.locked_at > self._lock / 2
            if is_old and now - arrival.renewal_asked_at > self._lock * ASK_AGAIN and arrival not in self._asked:
                arrival.renewal_asked_at = now
                due.append(arrival)

        def renewed(arrivals: list[Arrival], reply: Reply) -> None:
            # A lock that was not renewed gets older: what is not sent by then is not sent any more.
            for arrival in arrivals if reply.status == 200 else ():
                arrival.locked_at = now

        self._ask(connection, "renew-lock", {}, due, renewed)

    def complete(
        self, connection: Connection, arrivals: Iterable[Arrival], completed: Callable[[Arrival, bool], None]
    ) -> None:
        """Completes what the link it came on cannot complete any more. `completed` hears of each whether it is."""

        def answered(arrivals: list[Arrival], reply: Reply) -> None:
            for arrival in arrivals:
                completed(arrival, reply.status == 200)

        orphans = [arrival for arrival in arrivals if arrival not in self._asked]
        self._ask(connection, "update-disposition", {"disposition-status": "completed"}, orphans, answered)

    def _look_at_link(self) -> None:
        if self._link is not None and self._link.error is not None:
            self._link = None
            self._asked.clear()
        if self._link is not None:
            self._link.work()

    def _ask(
        self,
        connection: Connection,
        operation: str,
        body: dict[str, Value],
        arrivals: list[Arrival],
        answered: Callable[[list[Arrival], Reply], None],
    ) -> None:
        if arrivals and self._link is None:
            self._link = RequestLink(connection.wire, f"{self._queue}/$management")
        for start in range(0, len(arrivals), TOKENS_PER_REQUEST):
            some = arrivals[start : start + TOKENS_PER_REQUEST]
            tokens = Array(UUIDS, tuple(uuid.UUID(bytes_le=arrival.lock_token) for arrival in some))

            def heard(reply: Reply, some: list[Arrival] = some) -> None:
                self._asked.difference_update(some)
                answered(some, reply)

            self._asked.update(some)
            assert self._link is not None  # made above
            self._link.ask(
                {"operation": f"com.microsoft:{operation}"}, Map.of({**body, "lock-tokens": tokens}), heard
            )
