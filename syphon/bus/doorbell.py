"""A doorbell: one long poll on a backlog queue. It costs four receives an hour, and rings when a message comes.

The message that rings is let go again, released and not completed: carrying it home is somebody else's work. A poll
that the service cuts short (it detaches idle links after ten minutes) goes on where it was, and is not a new one (S1).
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import Interrupted
from .connection import Connection
from .links import LinkState, RawReceiver

LONG_POLL = 900.0
"""Seconds one receive waits."""


class Doorbell:
    """Listens to one queue. Its owner reads the connection, and calls `listen` each time round."""

    def __init__(self, queue: str, now: Callable[[], float], long_poll: float = LONG_POLL) -> None:
        self.queue = queue
        self.polls = 0
        """How many receives it has cost so far."""
        self._now = now
        self._long_poll = long_poll
        self._receiver: RawReceiver | None = None
        self._until: float | None = None

    def listen(self, connection: Connection) -> bool:
        """Keeps the poll going; true when a message has come. Raises what stands in the way: a missing queue, say."""
        receiver = self._open(connection)
        if receiver is None or receiver.state is not LinkState.OPEN:
            return False
        rang = False
        while receiver.arrivals:
            receiver.release(receiver.arrivals.popleft())
            rang = True
        receiver.settled.clear()
        if rang:
            self._until = None
            receiver.grant(0)
        elif self._until is None or self._now() >= self._until:
            self._until = self._now() + self._long_poll
            self.polls += 1
            receiver.grant(1)
        elif receiver.credit == 0:
            receiver.grant(1)  # a new link for the poll that was cut short
        return rang

    def _open(self, connection: Connection) -> RawReceiver | None:
        receiver = self._receiver
        if receiver is not None and receiver.state is LinkState.LOST:
            self._receiver = None
            if receiver.error is not None and not isinstance(receiver.error, Interrupted):
                raise receiver.error
        if self._receiver is None and connection.tokens.allow(self.queue):
            self._receiver = RawReceiver(connection.wire, self.queue)
        return self._receiver

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
            self._receiver = None
        self._until = None
