"""The receiving side of a pump: its link to the backlog queue, and how many messages may come.

What is in hand is bounded by count, by bytes (as large as messages have been lately), by a limit, and by the pace that
was set. Credit says so to the service, and is taken back when there is less room than was thought.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from syphon.bus import Arrival, Backoff, Connection, LinkState, Namespace, RawReceiver, Settled
from syphon.model import NotAuthorized, Waits

from .in_hand import PumpCounters
from .options import PumpOptions
from .rate_limiter import RateLimiter

log = logging.getLogger(__name__)

FIRST_GUESS = 64 * 1024
"""How large messages are taken to be before there were any. Too small a guess would let in more than fits."""


class Intake:
    """Messages of one backlog queue, as they come."""

    def __init__(
        self, queue: str, namespace: Namespace, options: PumpOptions, tally: PumpCounters, now: Callable[[], float]
    ) -> None:
        self.last_arrival = now()
        self._queue = queue
        self._namespace = namespace
        self._options = options
        self._tally = tally
        self._now = now
        self._receiver: RawReceiver | None = None
        self._opened_at = self._again_at = self.last_arrival
        self._backoff = Backoff()
        self._listening_since: float | None = None
        self._largest = FIRST_GUESS
        self._pace = RateLimiter(self.last_arrival)

    def next_arrival(self) -> Arrival | None:
        if self._receiver is None or not self._receiver.arrivals:
            return None
        arrival = self._receiver.arrivals.popleft()
        self.last_arrival = arrival.received_at
        self._largest = max(len(arrival.payload), self._largest * 99 // 100)
        self._pace.spend()
        return arrival

    def next_settled(self) -> Settled | None:
        return self._receiver.settled.popleft() if self._receiver is not None and self._receiver.settled else None

    def is_quiet(self, now: float) -> bool:
        """Nothing has come for a while, although it might have."""
        since = self._listening_since
        return since is not None and now - max(since, self.last_arrival) > self._options.quiet

    # --- how many may come ---------------------------------------------------------------------------------------

    def grant(self, rate: float | None) -> None:
        """Asks for as many as there is room for, over a new link if need be."""
        if self._receiver is None:
            self._open()
        receiver = self._receiver
        if receiver is None or receiver.state is not LinkState.OPEN:
            return
        room = self._room(rate)
        # Often enough that the service never waits for us, seldom enough that the asking costs nothing.
        if receiver.credit > room or receiver.credit < room - room // 8:
            receiver.grant(room)
        if receiver.credit <= 0:
            self._listening_since = None
        elif self._listening_since is None:
            self._listening_since = self._now()

    def _room(self, rate: float | None) -> int:
        options, tally = self._options, self._tally
        room = (options.window_bytes - tally.bytes_in_hand) // self._largest
        room = min(options.window - tally.in_hand, max(room, 0 if tally.in_hand else 1))
        if options.limit is not None:
            room = min(room, options.limit - tally.received)
        pace = self._pace.room(rate, self._now())
        return max(0, room if pace is None else min(room, pace))

    def drain(self) -> None:
        """No more: what is under way still comes, and then `is_drained`."""
        if self._receiver is not None and self._receiver.state is LinkState.OPEN:
            self._receiver.drain()

    @property
    def is_drained(self) -> bool:
        return self._receiver is None or (self._receiver.is_drained and not self._receiver.arrivals)

    # --- its link ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        connection = self._namespace.connection()
        if connection is not None and self._now() >= self._again_at and self.is_allowed(connection):
            self._receiver = RawReceiver(connection.wire, self._queue)
            self._opened_at = self._now()

    def is_allowed(self, connection: Connection) -> bool:
        """Whether the queue's token is in place there; one that is late is waited for."""
        try:
            return connection.tokens.allow(self._queue)
        except Waits as error:
            self._wait(error)
            return False
        except NotAuthorized as error:
            self._namespace.fault(error)
            raise

    @property
    def is_lost(self) -> bool:
        return self._receiver is not None and self._receiver.state is LinkState.LOST

    def let_go(self) -> RawReceiver | None:
        """The link, which is not ours any more."""
        receiver, self._receiver, self._listening_since = self._receiver, None, None
        if receiver is not None and isinstance(receiver.error, Waits):
            self._wait(receiver.error)
        elif receiver is not None:
            now = self._now()
            self._again_at = now + self._backoff.pause(now - self._opened_at)
        return receiver

    def _wait(self, error: Waits) -> None:
        log.warning("%s cannot be received from: %s Next try in %.0f s", self._queue, error, error.retry_after)
        self._again_at = self._now() + error.retry_after
