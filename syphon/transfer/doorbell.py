"""A doorbell: one long poll on a backlog queue. It costs four receives an hour, and rings when a message comes.

The message that rings is let go again, released and not completed: carrying it home is somebody else's work, and the
bell is silent until it is armed again. A poll that the service cuts short (it detaches idle links after ten minutes)
goes on where it was, and is not a new one (S1).

Not every message is worth a ring: that of a destination which is known to be waiting is kept under its lock, and the
bell reads on past it. The lock is the timer, so that each is received once in a lock period at the most (S3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from syphon.bus import Arrival, Backoff, Connection, LinkState, RawReceiver
from syphon.model import Interrupted

LONG_POLL = 900.0
"""Seconds one receive waits."""
LOCK = 60.0
MOST = 100
"""Messages asked for at a time, after many in a row that were not worth a ring."""
CALM = 0.5
"""Seconds without a message after which one at a time is enough again."""


def _any_message(payload: bytes) -> bool:  # noqa: ARG001
    return True


class Doorbell:
    """Listens to one queue. Its owner reads the connection, and calls `listen` each time round, silent or not."""

    def __init__(
        self,
        queue: str,
        now: Callable[[], float],
        long_poll: float = LONG_POLL,
        worth: Callable[[bytes], bool] = _any_message,
        lock: float = LOCK,
    ) -> None:
        self.queue = queue
        self.polls = 0
        """How many receives it has begun so far."""
        self.is_armed = True
        self._now = now
        self._long_poll = long_poll
        self._worth = worth
        self._lock = lock
        self._receiver: RawReceiver | None = None
        self._opened_at = self._again_at = now()
        self._backoff = Backoff()
        self._until: float | None = None
        self._appetite = 1
        self._calm_at = 0.0
        self._kept: deque[tuple[float, Arrival]] = deque()

    def listen(self, connection: Connection) -> bool:
        """Keeps the poll going; true when a message has come. Raises what stands in the way: a missing queue, say."""
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
        """No ring from now on; what is still under way to the bell is let go as it comes."""
        self.is_armed = False
        self._until = None
        self._appetite = 1

    def arm(self) -> None:
        """Listens again, with a new poll."""
        self.is_armed = True

    @property
    def is_silent(self) -> bool:
        """Silenced, and nothing is under way to it any more."""
        return not self.is_armed and (self._receiver is None or self._receiver.is_drained)

    @property
    def kept(self) -> int:
        """How many messages it holds under their locks, because they were not worth a ring."""
        return len(self._kept)

    def close(self) -> None:
        """Gives back all that it keeps."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            if receiver.state is LinkState.OPEN:
                self._let_go(receiver, [*(arrival for _, arrival in self._kept), *receiver.arrivals])
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
        """Lets go of what is worth a ring, and keeps the rest; whether there was anything worth it."""
        now = self._now()
        while self._kept and self._kept[0][0] <= now:
            self._kept.popleft()
        if receiver.arrivals:
            self._until = None  # a receive that brought something is over
            self._calm_at = now + CALM
        worthy = []
        while receiver.arrivals:
            arrival = receiver.arrivals.popleft()
            if self._worth(arrival.payload):
                worthy.append(arrival)
            else:
                arrival.payload = b""  # there may be thousands of them
                self._kept.append((now + self._lock, arrival))
                self._appetite = min(2 * self._appetite, MOST)
        self._let_go(receiver, worthy)
        receiver.settled.clear()
        return bool(worthy)

    def _let_go(self, receiver: RawReceiver, arrivals: list[Arrival]) -> None:
        """Gives messages back as they were. Not while more may come: the first to get them again would be this bell."""
        if arrivals:
            receiver.drain()
        for arrival in arrivals:
            receiver.release(arrival)

    def _poll(self, receiver: RawReceiver) -> None:
        now = self._now()
        if self._until is None or now >= self._until:
            self._until = now + self._long_poll
            self.polls += 1
            receiver.grant(self._appetite)
        elif receiver.credit <= 0:
            receiver.grant(self._appetite)  # a new link for the poll that was cut short
        elif self._appetite > 1 and now >= self._calm_at:
            self._appetite = 1
            receiver.grant(1)
