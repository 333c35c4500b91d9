"""A doorbell: one long poll on a backlog queue. It costs four receives an hour, and rings when a message arrives.

The doorbell releases the message that made it ring: a pump receives it again and moves it. The doorbell is then silent
until it is armed again. If the service cuts a poll short (it detaches idle links after ten minutes), the doorbell
continues the same poll on a new link (S1).

Not every message is worth a ring. The doorbell keeps a message for a destination that backs off under its lock, and
reads the messages behind it. The lock is the timer: each message is received at most once in a lock period (S3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from syphon.bus import Arrival, Backoff, Connection, LinkState, RawReceiver
from syphon.model import Interrupted

LONG_POLL = 900.0
"""Seconds that one receive waits."""
LOCK = 60.0
"""Seconds a lock lasts, as backlog queues are created (P2)."""
MOST = 100
"""The highest credit, after many messages in a row that were not worth a ring."""
CALM = 0.5
"""Seconds without a message after which a credit of one is enough again."""


def _any_message(payload: bytes) -> bool:  # noqa: ARG001
    return True


class Doorbell:
    """Listens to one queue. Its owner reads the connection and calls `listen` every turn, even while it is silent."""

    def __init__(
        self,
        queue: str,
        now: Callable[[], float],
        long_poll: float = LONG_POLL,
        is_worth_a_ring: Callable[[bytes], bool] = _any_message,
        lock: float = LOCK,
    ) -> None:
        self.queue = queue
        self.polls = 0
        """How many receives it has begun so far."""
        self.is_armed = True
        self._now = now
        self._long_poll = long_poll
        self._is_worth_a_ring = is_worth_a_ring
        self._lock = lock
        self._receiver: RawReceiver | None = None
        self._opened_at = self._again_at = now()
        self._backoff = Backoff()
        self._until: float | None = None
        self._wanted_credit = 1
        self._calm_at = 0.0
        self._kept: deque[tuple[float, Arrival]] = deque()

    def listen(self, connection: Connection) -> bool:
        """Keeps the poll going. Returns true when a message has arrived. Raises an error of the link."""
        receiver = self._open(connection)
        if receiver is None or receiver.state is not LinkState.OPEN:
            return False
        rang = self._take(receiver) and self.is_armed
        if rang:
            self.silence()
        if self.is_armed:
            self._poll(receiver)
        else:
            receiver.drain()
        return rang

    def silence(self) -> None:
        """Rings no more. Messages that are still on the way are released when they arrive."""
        self.is_armed = False
        self._until = None
        self._wanted_credit = 1

    def arm(self) -> None:
        """Listens again, with a new poll."""
        self.is_armed = True

    @property
    def is_silent(self) -> bool:
        """Whether it is silenced and no message is on the way to it."""
        return not self.is_armed and (self._receiver is None or self._receiver.is_drained)

    @property
    def kept(self) -> int:
        """How many messages it keeps under their locks because they were not worth a ring."""
        return len(self._kept)

    def close(self) -> None:
        """Releases all messages that it keeps, and closes the link."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            if receiver.state is LinkState.OPEN:
                self._release(receiver, [*(arrival for _, arrival in self._kept), *receiver.arrivals])
            receiver.close()
        self._kept.clear()
        self.silence()

    def _open(self, connection: Connection) -> RawReceiver | None:
        receiver, now = self._receiver, self._now()
        if receiver is not None and receiver.state is LinkState.LOST:
            self._receiver = None
            self._kept.clear()
            self._again_at = now + self._backoff.pause(now - self._opened_at)
            if receiver.error is not None and not isinstance(receiver.error, Interrupted):
                raise receiver.error
        if self._receiver is None and self.is_armed and now >= self._again_at and connection.tokens.allow(self.queue):
            self._receiver = RawReceiver(connection.wire, self.queue)
            self._opened_at = now
        return self._receiver

    def _take(self, receiver: RawReceiver) -> bool:
        """Releases the messages that are worth a ring and keeps the others. Returns whether one was worth a ring."""
        now = self._now()
        while self._kept and self._kept[0][0] <= now:
            self._kept.popleft()
        if receiver.arrivals:
            self._until = None  # a receive that brought something is over
            self._calm_at = now + CALM
        worthy = []
        while receiver.arrivals:
            arrival = receiver.arrivals.popleft()
            if self._is_worth_a_ring(arrival.payload):
                worthy.append(arrival)
            else:
                arrival.payload = b""  # only the lock is needed, and there may be thousands
                self._kept.append((now + self._lock, arrival))
                self._wanted_credit = min(2 * self._wanted_credit, MOST)
        self._release(receiver, worthy)
        receiver.settled.clear()
        return bool(worthy)

    def _release(self, receiver: RawReceiver, arrivals: list[Arrival]) -> None:
        """Releases messages. The credit goes first, or the service would deliver them to this doorbell again."""
        if arrivals:
            receiver.drain()
        for arrival in arrivals:
            receiver.release(arrival)

    def _poll(self, receiver: RawReceiver) -> None:
        now = self._now()
        if self._until is None or now >= self._until:
            self._until = now + self._long_poll
            self.polls += 1
            receiver.grant(self._wanted_credit)
        elif receiver.credit <= 0:
            receiver.grant(self._wanted_credit)  # the poll was cut short and continues on a new link
        elif self._wanted_credit > 1 and now >= self._calm_at:
            self._wanted_credit = 1
            receiver.grant(1)
