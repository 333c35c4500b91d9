"""A doorbell: it waits for messages in a backlog queue, and rings when one arrives that can be moved.

It receives in one long poll, which costs four receives per hour. It releases the message that made it ring: a pump
receives it again and forwards it. The doorbell is then silent until it is armed again. If the service cuts a poll short
(it detaches idle links after ten minutes), the doorbell continues the same poll on a new link (S1).

A message for a destination that backs off is not worth a ring. The doorbell defers it: it is not received again until
its destination is available, and the messages behind it can be received (S7, D16). Before it receives, the doorbell
scans for deferred messages by peeking (`DeferredScan`).
"""

from __future__ import annotations

from collections.abc import Callable

from syphon.model import Interrupted
from syphon.servicebus import Arrival, Backoff, Connection, LinkState, RawReceiver
from syphon.time_budget import DOORBELL_CALM, DOORBELL_CHECK_EVERY, LONG_POLL

from .backoff_gate import Gate, OpenGate
from .deferred_scan import DeferredScan, Ring, WaitingMessages

MOST_CREDIT = 100
"""The highest credit, after many messages in a row that were not worth a ring."""


class Doorbell:
    """Listens to one queue. Its owner reads the connection and calls `listen` or `hold` every turn."""

    def __init__(
        self,
        queue: str,
        now: Callable[[], float],
        gate: Gate | None = None,
        long_poll: float = LONG_POLL,
    ) -> None:
        self.queue = queue
        self.polls = 0
        """How many receives it has begun so far."""
        self.is_armed = True
        self._now = now
        self._gate = gate or OpenGate()
        self._long_poll = long_poll
        self._scan = DeferredScan(queue, now, self._gate)
        self._receiver: RawReceiver | None = None
        self._opened_at = self._again_at = now()
        self._backoff = Backoff()
        self._until: float | None = None
        self._check_at = 0.0
        self._wanted_credit = 1
        self._calm_at = 0.0

    def listen(self, connection: Connection) -> Ring | None:
        """Keeps listening. Returns a ring when a message can be moved. Raises an error of the link."""
        ring = self._receive(connection)
        if ring is None and self.is_armed:
            ring = self._scan.scan(connection) or self._scan.turn()
        if ring is not None:
            self.silence()
        return ring

    def hold(self) -> None:
        """Takes the credit back and releases all messages, in place of `listen`. It stays armed: the next `listen`
        goes on."""
        self._end_poll()
        receiver = self._receiver
        if receiver is not None and receiver.state is LinkState.OPEN:
            receiver.drain()
            self._release_all(receiver)

    def silence(self) -> None:
        """Rings no more. Messages that are still on the way are released when they arrive."""
        self.is_armed = False
        self._end_poll()

    def arm(self, scan: bool = False) -> None:
        """Listens again. With `scan` a transfer has left messages: it first scans for those that were deferred."""
        self.is_armed = True
        self._scan.begin(scan)

    def rescan(self) -> None:
        """Forgets what it knows of the messages: the gate's answers have changed for messages that it has seen."""
        self._scan.forget()

    @property
    def is_silent(self) -> bool:
        """Whether it has no credit, and no message is on the way to it."""
        return self._receiver is None or self._receiver.is_drained

    @property
    def waiting(self) -> dict[str, WaitingMessages]:
        """The deferred messages that it knows of, by destination. Any thread may ask."""
        return dict(self._scan.waiting)

    def close(self) -> None:
        """Releases all messages, and closes its links."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            if receiver.state is LinkState.OPEN:
                receiver.drain()
                self._release_all(receiver)
            receiver.close()
        self._scan.close()
        self.silence()

    # --- by receiving --------------------------------------------------------------------------------------------

    def _receive(self, connection: Connection) -> Ring | None:
        receiver = self._open(connection)
        if receiver is None or receiver.state is not LinkState.OPEN:
            return None
        ring = self._take(receiver)
        if self._receives and ring is None:
            self._poll(receiver)
        else:
            receiver.drain()
        return ring if self._receives else None

    @property
    def _receives(self) -> bool:
        return self.is_armed and not self._scan.is_scanning

    def _open(self, connection: Connection) -> RawReceiver | None:
        receiver, now = self._receiver, self._now()
        if receiver is not None and receiver.state is LinkState.LOST:
            self._receiver = None
            self._again_at = now + self._backoff.delay(now - self._opened_at)
            if receiver.error is not None and not isinstance(receiver.error, Interrupted):
                raise receiver.error
        if self._receiver is None and self._receives and now >= self._again_at and connection.tokens.allow(self.queue):
            self._receiver = RawReceiver(connection.wire, self.queue)
            self._opened_at = now
        return self._receiver

    def _take(self, receiver: RawReceiver) -> Ring | None:
        """Releases the messages that are worth a ring and defers the others, also those that came after the ring."""
        if receiver.arrivals:
            self._until = None  # a receive that delivered a message has ended
            self._calm_at = self._now() + DOORBELL_CALM
        worthy = []
        while receiver.arrivals:
            arrival = receiver.arrivals.popleft()
            if self._is_worth_a_ring(arrival.payload):
                worthy.append(arrival)
            else:
                receiver.defer(arrival)
                self._scan.add(arrival.payload)
                self._wanted_credit = min(2 * self._wanted_credit, MOST_CREDIT)
        self._release(receiver, worthy)
        receiver.settled.clear()
        return Ring.NEW if worthy else None

    def _is_worth_a_ring(self, payload: bytes) -> bool:
        """Whether a message can be moved. If its destination has deferred messages, a ping decides about all."""
        if self._scan.waiting:
            path = self._gate.destination_of(payload)
            if path is not None and path.key in self._scan.waiting:
                return False
        return self._gate.is_worth_a_job(self.queue, payload)

    def _release_all(self, receiver: RawReceiver) -> None:
        self._release(receiver, list(receiver.arrivals))
        receiver.arrivals.clear()
        receiver.settled.clear()

    def _release(self, receiver: RawReceiver, arrivals: list[Arrival]) -> None:
        """Releases messages. The credit goes first, or the service would deliver them to this doorbell again."""
        if arrivals:
            receiver.drain()
        for arrival in arrivals:
            receiver.release(arrival)

    def _end_poll(self) -> None:
        self._until = None
        self._wanted_credit = 1

    def _poll(self, receiver: RawReceiver) -> None:
        now = self._now()
        if self._until is None or now >= self._until:
            self._until = now + self._long_poll
            self._check_at = now + DOORBELL_CHECK_EVERY
            self.polls += 1
            receiver.grant(self._wanted_credit)
        elif receiver.credit <= 0:
            receiver.grant(self._wanted_credit)  # the poll was cut short and continues, perhaps on a new link
        elif self._wanted_credit > 1 and now >= self._calm_at:
            self._wanted_credit = 1
            receiver.grant(1)
        elif now >= self._check_at:
            self._check_at = now + DOORBELL_CHECK_EVERY
            receiver.check_credit()
