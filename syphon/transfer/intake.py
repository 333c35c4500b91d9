"""The receiving side of one queue of a pump: its link to the queue, and the credit of that link.

The pump decides how much credit there is (`window`). The intake takes credit back when there is less room than before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from syphon.model import DestinationBusy, NotAuthorized, Waits
from syphon.servicebus import (
    Arrival,
    Backoff,
    Connection,
    LinkState,
    Namespace,
    RawReceiver,
    Settled,
)
from syphon.time_budget import CREDIT_RETURNED_WITHIN, RELEASE_TURN

log = logging.getLogger(__name__)

FIRST_GUESS = 64 * 1024
"""The assumed size of a message before any has arrived. A guess that is too small admits more than fits."""


class Intake:
    """Receives the messages of one queue."""

    def __init__(
        self,
        path: str,
        namespace: Namespace,
        quiet: float,
        now: Callable[[], float],
        on_busy: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_busy` is called when the service answers busy."""
        self.last_arrival = now()
        self.trouble: Waits | None = None
        """The error that currently prevents receiving; None if there is none."""
        self.largest = FIRST_GUESS
        """The size of a large message, as far as recent messages show."""
        self._path = path
        self._namespace = namespace
        self._quiet = quiet
        self._now = now
        self._on_busy = on_busy
        self._receiver: RawReceiver | None = None
        self._releasing: RawReceiver | None = None
        """The link, while it may still deliver messages that were locked long ago: they are released."""
        self._releasing_since = 0.0
        self._opened_at = self._again_at = self.last_arrival
        self._backoff = Backoff()
        self._listening_since: float | None = None

    def next_arrival(self) -> Arrival | None:
        receiver = self._receiver
        if receiver is None or not receiver.arrivals:
            return None
        if receiver is self._releasing:
            self._release_all(receiver)
            return None
        arrival = receiver.arrivals.popleft()
        self.last_arrival = arrival.received_at
        self.largest = max(len(arrival.payload), self.largest * 99 // 100)
        return arrival

    def payloads(self) -> list[bytes]:
        """The messages that have arrived and were not taken yet."""
        return [] if self._receiver is None else [arrival.payload for arrival in self._receiver.arrivals]

    def allow_for_stall(self, since: float, lock: float) -> None:
        """Corrects the age of the locks of messages that were just read: they may have waited in the socket since then.

        If that was more than half a lock ago, some locks may have ended, and nothing shows which. So the intake takes
        its credit back, and releases every message that arrives before the service confirms this.
        """
        receiver = self._receiver
        if receiver is None or receiver.state is not LinkState.OPEN:
            return
        for arrival in receiver.arrivals:
            arrival.locked_at = since
        waited = self._now() - since
        if waited > lock / 2 and not receiver.is_drained:
            log.warning("abandoned messages of %s that waited up to %.0f s in this process", self._path, waited)
            self.drain()
            self._releasing, self._releasing_since = receiver, self._now()

    def _release_all(self, receiver: RawReceiver) -> None:
        """Releases what was read. The service refuses what it has given to another receiver meanwhile."""
        while receiver.arrivals:
            arrival = receiver.arrivals.popleft()
            if receiver.state is LinkState.OPEN:
                receiver.release(arrival)

    def stop_awaiting(self, requested_before: float) -> None:
        """Counts settlements as unknown that the service has not answered since then."""
        if self._receiver is not None:
            self._receiver.stop_awaiting(requested_before)

    def next_settled(self) -> Settled | None:
        return self._receiver.settled.popleft() if self._receiver is not None and self._receiver.settled else None

    def is_quiet(self, now: float, last_news: float | None = None) -> bool:
        """Whether nothing has arrived for a while although there was credit for it.

        `last_news` replaces the time of the last arrival for a caller that does not count every arrival as news.
        """
        since = self._listening_since
        last = self.last_arrival if last_news is None else last_news
        return since is not None and now - max(since, last) > self._quiet

    # --- credit --------------------------------------------------------------------------------------------------

    @property
    def credit(self) -> int:
        return self._receiver.credit if self._receiver is not None else 0

    def grant(self, credit: int) -> None:
        """Grants `credit`; opens the link first if there is none."""
        receiver = self.open()
        if receiver is None:
            return
        if receiver is self._releasing:
            if not receiver.is_drained:
                if self._now() - self._releasing_since > CREDIT_RETURNED_WITHIN:
                    receiver.close()  # its messages are redelivered when their locks expire
                return
            self._releasing = None
        # Often enough that the service never waits for credit, seldom enough that the flow frames cost nothing.
        if receiver.credit > credit or receiver.credit < credit - credit // 8:
            receiver.grant(credit)
        if receiver.credit <= 0:
            self._listening_since = None
        elif self._listening_since is None:
            self._listening_since = self._now()

    def drain(self) -> None:
        """Takes the credit back. Messages that are already on the way still arrive; then `is_drained` is true."""
        self._listening_since = None
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
            connection.wait(RELEASE_TURN)
            connection.read()
            while receiver.arrivals:
                receiver.release(receiver.arrivals.popleft())

    # --- the link ------------------------------------------------------------------------------------------------

    def open(self) -> RawReceiver | None:
        """The link, once it is open; begins to open it if there is none."""
        if self._receiver is None:
            connection = self._namespace.connection()
            if connection is not None and self._now() >= self._again_at and self.is_allowed(connection):
                self._receiver = RawReceiver(connection.wire, self._path)
                self._opened_at = self._now()
        if self._receiver is None or self._receiver.state is not LinkState.OPEN:
            return None
        self.trouble = None
        return self._receiver

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
        """Hands the link over to the caller. The intake opens a new one after a delay."""
        receiver, self._receiver, self._listening_since = self._receiver, None, None
        if receiver is not None and isinstance(receiver.error, Waits):
            self._wait(receiver.error)
        elif receiver is not None:
            now = self._now()
            self._again_at = now + self._backoff.delay(now - self._opened_at)
        return receiver

    def close(self) -> None:
        """Closes the link, because the service of the queue has ended. A link that worked needs no delay afterwards."""
        receiver, self._receiver, self._listening_since = self._receiver, None, None
        if receiver is not None:
            receiver.close()

    def _wait(self, error: Waits) -> None:
        reason = str(error).rstrip(".")
        log.warning("cannot receive from %s: %s; retrying in %.0f s", self._path, reason, error.retry_after)
        self.trouble = error
        if isinstance(error, DestinationBusy):
            self._on_busy()
        self._again_at = self._now() + error.retry_after
