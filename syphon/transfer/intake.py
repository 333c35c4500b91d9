"""The receiving side of a pump: its link to the queue, and how many messages may arrive.

Credit limits the messages in hand by count, by bytes (estimated from the size of recent messages), by the limit of the
run and by the rate. The intake takes credit back when there is less room than it had estimated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from syphon.bus import Arrival, Backoff, Connection, LinkState, Namespace, RawReceiver, Settled, wait_for_traffic
from syphon.model import NotAuthorized, Waits

from .options import PumpOptions
from .unsettled import PumpCounters

log = logging.getLogger(__name__)

FIRST_GUESS = 64 * 1024
"""The assumed size of a message before any has arrived. A guess that is too small admits more than fits."""
RELEASE_TURN = 0.2
"""Seconds between looks at the link while released messages are being confirmed."""


class RateLimiter:
    """A token bucket: it fills with time, holds the messages of one second at most, and each message takes one."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._tokens = 0.0

    def room(self, rate: float | None, now: float) -> int | None:
        """How many messages may arrive now; None means any number. A rate of 0 is a pause."""
        passed, self._at = now - self._at, now
        if not rate:
            self._tokens = 0.0
            return None if rate is None else 0
        self._tokens = min(self._tokens + passed * rate, max(1.0, rate))
        return max(0, int(self._tokens))

    def spend(self) -> None:
        self._tokens -= 1


class Intake:
    """Receives the messages of one queue."""

    def __init__(
        self, path: str, namespace: Namespace, options: PumpOptions, counters: PumpCounters, now: Callable[[], float]
    ) -> None:
        self.last_arrival = now()
        self.trouble: Waits | None = None
        """Why the queue cannot be received from now, if it cannot."""
        self._path = path
        self._namespace = namespace
        self._options = options
        self._counters = counters
        self._now = now
        self._receiver: RawReceiver | None = None
        self._opened_at = self._again_at = self.last_arrival
        self._backoff = Backoff()
        self._listening_since: float | None = None
        self._largest = FIRST_GUESS
        self._limiter = RateLimiter(self.last_arrival)

    def next_arrival(self) -> Arrival | None:
        if self._receiver is None or not self._receiver.arrivals:
            return None
        arrival = self._receiver.arrivals.popleft()
        self.last_arrival = arrival.received_at
        self._largest = max(len(arrival.payload), self._largest * 99 // 100)
        self._limiter.spend()
        return arrival

    def next_settled(self) -> Settled | None:
        return self._receiver.settled.popleft() if self._receiver is not None and self._receiver.settled else None

    def is_quiet(self, now: float, last_news: float | None = None) -> bool:
        """Whether nothing has arrived for a while although there was credit for it.

        `last_news` replaces the time of the last arrival for a caller that does not count every arrival as news.
        """
        since = self._listening_since
        last = self.last_arrival if last_news is None else last_news
        return since is not None and now - max(since, last) > self._options.quiet

    # --- credit --------------------------------------------------------------------------------------------------

    def grant(self, rate: float | None) -> None:
        """Grants credit for as many messages as there is room for; opens the link first if there is none."""
        if self._receiver is None:
            self._open()
        receiver = self._receiver
        if receiver is None or receiver.state is not LinkState.OPEN:
            return
        self.trouble = None
        room = self._room(rate)
        # Often enough that the service never waits for credit, seldom enough that the flow frames cost nothing.
        if receiver.credit > room or receiver.credit < room - room // 8:
            receiver.grant(room)
        if receiver.credit <= 0:
            self._listening_since = None
        elif self._listening_since is None:
            self._listening_since = self._now()

    def _room(self, rate: float | None) -> int:
        options, counters = self._options, self._counters
        room = (options.window_bytes - counters.bytes_in_hand) // self._largest
        room = min(options.window - counters.in_hand, max(room, 0 if counters.in_hand else 1))
        if options.limit is not None:
            room = min(room, options.limit - counters.received)
        allowed = self._limiter.room(rate, self._now())
        return max(0, room if allowed is None else min(room, allowed))

    def drain(self) -> None:
        """Takes the credit back. Messages that are already on the way still arrive; then `is_drained` is true."""
        if self._receiver is not None and self._receiver.state is LinkState.OPEN:
            self._receiver.drain()

    @property
    def is_drained(self) -> bool:
        return self._receiver is None or (self._receiver.is_drained and not self._receiver.arrivals)

    def release(self, arrivals: Iterable[Arrival], within: float) -> None:
        """Releases messages of this link, and waits at most `within` seconds until the service has confirmed it.

        The credit goes first: otherwise the service would deliver the released messages to this link again.
        """
        receiver, connection = self._receiver, self._namespace.connection()
        if receiver is None or connection is None or receiver.state is not LinkState.OPEN:
            return
        receiver.drain()
        for arrival in arrivals:
            if arrival.link is receiver:
                receiver.release(arrival)
        wire, deadline = connection.wire, self._now() + within
        while (receiver.settling or not receiver.is_drained) and wire.failure is None and self._now() < deadline:
            wait_for_traffic([wire], RELEASE_TURN)
            connection.read()
            while receiver.arrivals:
                receiver.release(receiver.arrivals.popleft())

    # --- the link ------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        connection = self._namespace.connection()
        if connection is not None and self._now() >= self._again_at and self.is_allowed(connection):
            self._receiver = RawReceiver(connection.wire, self._path)
            self._opened_at = self._now()

    def is_allowed(self, connection: Connection) -> bool:
        """Whether the connection has the queue's token. If the token is late, the intake waits for it."""
        try:
            return connection.tokens.allow(self._path)
        except Waits as error:
            self._wait(error)
            return False
        except NotAuthorized as error:
            self._namespace.fault(error)
            raise

    @property
    def is_lost(self) -> bool:
        return self._receiver is not None and self._receiver.state is LinkState.LOST

    def detach(self) -> RawReceiver | None:
        """Hands the link over to the caller. The intake opens a new one after a pause."""
        receiver, self._receiver, self._listening_since = self._receiver, None, None
        if receiver is not None and isinstance(receiver.error, Waits):
            self._wait(receiver.error)
        elif receiver is not None:
            now = self._now()
            self._again_at = now + self._backoff.pause(now - self._opened_at)
        return receiver

    def _wait(self, error: Waits) -> None:
        log.warning("%s cannot be received from: %s Next try in %.0f s", self._path, error, error.retry_after)
        self.trouble = error
        self._again_at = self._now() + error.retry_after
