"""Locks, over the management node of the queue: renews the locks of messages in flight before they expire (S6), and
completes messages that were forwarded when their link was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from syphon.amqp import Map, Value
from syphon.model import DestinationBusy, LockLost, SyphonError, from_condition
from syphon.servicebus import (
    TOKENS_PER_REQUEST,
    Arrival,
    Connection,
    ManagementLinks,
    ManagementReply,
    RequestLink,
    lock_tokens,
)
from syphon.time_budget import SHORTEST_LOCK

ASK_AGAIN = 0.1
"""The share of a lock after which the pump retries a renewal that was refused."""
RENEW_AT, RENEW_WITH = 0.5, 0.25
"""The share of a lock after which it is renewed; and after which it is renewed together with an older one: a request
costs the same however many locks it renews, and a throttled namespace accepts few."""
REST = 1 / 6
"""The share of a lock for which it asks for no renewal after a busy answer: 10 s of a minute (S5)."""

OnAnswer = Callable[[Arrival, SyphonError | None], None]
"""Called with the service's answer for each lock: an error, or None."""


class LockKeeper:
    """The locks that one pump holds on one queue, at the queue's management node."""

    def __init__(
        self,
        node: ManagementLinks,
        lock: float,
        in_flight: Collection[Arrival],
        on_busy: Callable[[], None] = lambda: None,
    ) -> None:
        """`in_flight` are the messages whose locks are kept. The owner adds and removes them.

        `on_busy` is called when the service answers busy.
        """
        self.seconds = lock
        """How long a lock lasts, as far as is known."""
        self.shortest = SHORTEST_LOCK
        """How long a lock lasts at least: in any queue, until a message has shown how long it is in this one."""
        self._node = node
        self._in_flight = in_flight
        self._on_busy = on_busy
        self._link: RequestLink | None = None
        """The links on which it has asked."""
        self._asked: set[Arrival] = set()
        self._was_busy = False
        """The service has answered busy since the last round."""
        self._not_before = 0.0
        """When it may ask for a renewal again, after a busy answer."""

    def update_duration(self, locked_until: int, wall: int) -> None:
        """Reads the lock duration from a message that has just arrived: the owner may have set a shorter one (P3).

        The end of the lock is a time of the service's clock, which may differ from ours. So impossible values are
        ignored, and the shortest possible one counts: renewing a lock too early costs little.
        """
        left = (locked_until - wall) / 1000
        if left <= 0:
            return
        if left < self.seconds:
            self.seconds = max(left, SHORTEST_LOCK)
        self.shortest = self.seconds

    def raise_duration(self, locked_until: int, wall: int) -> None:
        """Reads how long a lock lasts at least, from a message that may have waited since it was locked."""
        self.shortest = max(self.shortest, min((locked_until - wall) / 1000, self.seconds))

    def keep(self, connection: Connection, now: float) -> None:
        """Renews locks once half of their time is over.

        The owner calls it regularly, even with nothing in flight: it also does the work of the request link.
        """
        self._check_link()
        if self._was_busy:
            self._was_busy, self._not_before = False, now + self.seconds * REST
        if now < self._not_before or not self._due(RENEW_AT, now):
            return
        due = self._due(RENEW_WITH, now)
        for arrival in due:
            arrival.renewal_asked_at = now

        def renewed(arrival: Arrival, error: SyphonError | None) -> None:
            # A lock that was not renewed gets older. The pump does not send a message whose lock is too old.
            if error is None:
                arrival.locked_at = now

        self._ask(connection, "renew-lock", {}, due, renewed)

    def _due(self, share: float, now: float) -> list[Arrival]:
        """The messages for which this share of the lock is over, and whose locks can be renewed now."""
        least = self.seconds * share
        return [each for each in self._in_flight if now - each.locked_at > least and self._may_ask(each, now)]

    def _may_ask(self, arrival: Arrival, now: float) -> bool:
        """Whether to ask for a renewal now: not before the retry interval, and not while the message is being settled.

        A message that was just settled no longer has a lock, and one lost lock makes the service refuse all others. If
        the answer to the settlement does not come, the message is still in the queue, and needs its lock.
        """
        asked = max(arrival.renewal_asked_at, arrival.link.settling_since(arrival) or 0.0)
        return now - asked > self.seconds * ASK_AGAIN and arrival not in self._asked

    def complete(self, connection: Connection, arrivals: Iterable[Arrival], completed: OnAnswer) -> None:
        """Completes messages whose own link is lost."""
        orphans = [arrival for arrival in arrivals if arrival not in self._asked]
        self._ask(connection, "update-disposition", {"disposition-status": "completed"}, orphans, completed)

    def close(self) -> None:
        self._node.close()
        self._forget()

    def _forget(self) -> None:
        self._link = None
        self._asked.clear()

    def _check_link(self) -> None:
        if self._link is not None and self._link.error is not None:
            self._forget()
        self._node.work()

    def _ask(
        self,
        connection: Connection,
        operation: str,
        body: dict[str, Value],
        arrivals: list[Arrival],
        on_answer: OnAnswer,
    ) -> None:
        if arrivals and self._link is None:
            self._link = self._node.link(connection.wire)
        for start in range(0, len(arrivals), TOKENS_PER_REQUEST):
            some = arrivals[start : start + TOKENS_PER_REQUEST]
            request = Map.of({**body, "lock-tokens": lock_tokens(some)})

            def answered(reply: ManagementReply, some: list[Arrival] = some) -> None:
                self._asked.difference_update(some)
                error = None if reply.status == 200 else from_condition(reply.condition, reply.description)
                if isinstance(error, LockLost) and len(some) > 1:
                    # One lost lock makes the service refuse the whole request. Messages that were settled meanwhile, or
                    # are being settled, have none. If there are no such messages, ask in halves, to find the lost one.
                    rest = [
                        arrival for arrival in some if arrival in self._in_flight and not _is_being_settled(arrival)
                    ]
                    middle = len(rest) // 2 if len(rest) == len(some) else 0
                    for part in (rest[:middle], rest[middle:]):
                        self._ask(connection, operation, body, part, on_answer)
                    return
                if isinstance(error, DestinationBusy):
                    self._was_busy = True
                    self._on_busy()
                for arrival in some:
                    on_answer(arrival, error)

            self._asked.update(some)
            assert self._link is not None  # made above
            self._link.ask({"operation": f"com.microsoft:{operation}"}, request, answered)


def _is_being_settled(arrival: Arrival) -> bool:
    return arrival.link.settling_since(arrival) is not None
