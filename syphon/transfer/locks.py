"""Locks, beside the link that got them: those of what is still under way are renewed before they run out (S6), and what
has arrived when its link was lost is completed all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable

from syphon.amqp import Array, Map, Value
from syphon.bus import Arrival, Connection, NodeReply, RequestLink
from syphon.model import LockLost, SyphonError, from_condition

TOKENS_PER_REQUEST = 100
UUIDS = 0x98
ASK_AGAIN = 0.1
"""The share of a lock after which a renewal that was refused is asked for again."""
SHORTEST = 5.0
"""Seconds a lock lasts at the least, anywhere."""


Heard = Callable[[Arrival, SyphonError | None], None]
"""Is told of each lock what came of it: an error, or none."""


class LockKeeper:
    """The locks that one pump holds on one queue, at the queue's management node."""

    def __init__(self, queue: str, lock: float) -> None:
        self.seconds = lock
        """How long a lock lasts, as far as we know."""
        self._queue = queue
        self._link: RequestLink | None = None
        self._asked: set[Arrival] = set()

    def learn(self, locked_until: int, wall: int) -> None:
        """What a message that has just come says of its lock: an owner may have made it shorter (P3).

        The service's clock says until when, and ours may differ: what makes no sense is not believed, and of what does
        the shortest counts. A lock that is renewed too early costs little.
        """
        left = (locked_until - wall) / 1000
        if 0 < left < self.seconds:
            self.seconds = max(left, SHORTEST)

    def keep(self, connection: Connection, in_hand: Iterable[Arrival], now: float) -> None:
        """Asks for locks to be renewed, once half of their time is over.

        To be called every now and then, even if nothing is in hand: what was asked goes out here.
        """
        self._look_at_link()
        due = []
        for arrival in in_hand:
            is_old = now - arrival.locked_at > self.seconds / 2
            if is_old and now - arrival.renewal_asked_at > self.seconds * ASK_AGAIN and arrival not in self._asked:
                arrival.renewal_asked_at = now
                due.append(arrival)

        def renewed(arrival: Arrival, error: SyphonError | None) -> None:
            # A lock that was not renewed gets older: what is not sent by then is not sent any more.
            if error is None:
                arrival.locked_at = now

        self._ask(connection, "renew-lock", {}, due, renewed)

    def complete(self, connection: Connection, arrivals: Iterable[Arrival], completed: Heard) -> None:
        """Completes what the link it came on cannot complete any more."""
        orphans = [arrival for arrival in arrivals if arrival not in self._asked]
        self._ask(connection, "update-disposition", {"disposition-status": "completed"}, orphans, completed)

    def _look_at_link(self) -> None:
        if self._link is not None and self._link.error is not None:
            self._link.close()
            self._link = None
            self._asked.clear()
        if self._link is not None:
            self._link.work()

    def _ask(
        self, connection: Connection, operation: str, body: dict[str, Value], arrivals: list[Arrival], heard: Heard
    ) -> None:
        if arrivals and self._link is None:
            self._link = RequestLink(connection.wire, f"{self._queue}/$management")
        for start in range(0, len(arrivals), TOKENS_PER_REQUEST):
            some = arrivals[start : start + TOKENS_PER_REQUEST]
            tokens = Array(UUIDS, tuple(uuid.UUID(bytes_le=arrival.lock_token) for arrival in some))

            def answered(reply: NodeReply, some: list[Arrival] = some) -> None:
                self._asked.difference_update(some)
                error = None if reply.status == 200 else from_condition(reply.condition, reply.description)
                if isinstance(error, LockLost) and len(some) > 1:
                    # One that is lost has the others refused as well: in halves, to find it.
                    for half in (some[: len(some) // 2], some[len(some) // 2 :]):
                        self._ask(connection, operation, body, half, heard)
                    return
                for arrival in some:
                    heard(arrival, error)

            self._asked.update(some)
            assert self._link is not None  # made above
            self._link.ask(
                {"operation": f"com.microsoft:{operation}"}, Map.of({**body, "lock-tokens": tokens}), answered
            )
