"""A doorbell: it waits for messages in a backlog queue, and rings when one arrives that can be moved.

Normally it receives, in one long poll that costs four receives an hour. It releases the message that made it ring: a
pump receives it again and moves it. The doorbell is then silent until it is armed again. If the service cuts a poll
short (it detaches idle links after ten minutes), the doorbell continues the same poll on a new link (S1).

A message for a destination that backs off is not worth a ring. The doorbell keeps it under its lock, and reads the
messages behind it. When the first of these locks is about to end it releases them, and does not receive them again:
from then on it watches the queue by peeking (`PeekWatch`). If its owner knows that such messages wait, it does so at
once (S7, D16).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from syphon.bus import Arrival, Backoff, Connection, LinkState, RawReceiver
from syphon.model import Interrupted

from .peek_watch import LOCK, Gate, OpenGate, PeekWatch, Ring, Waiting

LONG_POLL = 900.0
"""Seconds that one receive waits."""
MOST = 100
"""The highest credit, after many messages in a row that were not worth a ring."""
BEFORE_THE_END = 5.0
"""Seconds before the end of a lock at which the doorbell stops to receive."""
CHECK_EVERY = 60.0
"""Seconds after which a doorbell asks whether it still has credit. It would be deaf for the rest of its poll without:
if a message is lost on a connection that lives on, its credit is used up. Asking is no receive."""
CALM = 0.5
"""Seconds without a message after which a credit of one is enough again."""


class Doorbell:
    """Listens to one queue. Its owner reads the connection and calls `listen` or `hold` every turn."""

    def __init__(
        self,
        queue: str,
        now: Callable[[], float],
        gate: Gate | None = None,
        long_poll: float = LONG_POLL,
        lock: float = LOCK,
    ) -> None:
        self.queue = queue
        self.polls = 0
        """How many receives it has begun so far."""
        self.is_armed = True
        self.is_peeking = False
        """Whether it looks for messages by peeking, while it is armed, and not by receiving."""
        self._now = now
        self._gate = gate or OpenGate()
        self._long_poll = long_poll
        self._lock = lock
        self._watch = PeekWatch(queue, now, self._gate)
        self._receiver: RawReceiver | None = None
        self._opened_at = self._again_at = now()
        self._backoff = Backoff()
        self._until: float | None = None
        self._check_at = 0.0
        self._wanted_credit = 1
        self._calm_at = 0.0
        self._kept: deque[tuple[float, Arrival]] = deque()

    def listen(self, connection: Connection) -> Ring | None:
        """Keeps listening. Returns a ring when a message can be moved. Raises an error of the link."""
        ring = self._receive(connection)
        if ring is None and self.is_armed and self.is_peeking:
            ring = self._watch.look(connection)
            self.is_peeking = not self._watch.is_partitioned
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

    def arm(self, browse: bool = False) -> None:
        """Listens again: with a new poll, or by peeking if it is known that messages wait which cannot be moved."""
        self.is_armed = True
        self.is_peeking = browse and not self._watch.is_partitioned
        if self.is_peeking:
            self._watch.begin()
        else:
            self._watch.forget()

    def look_again(self) -> None:
        """Forgets what it knows of the messages: the gate's answers have changed for messages that it has seen."""
        self._watch.forget()
        if self._receives and self._kept:
            self._end_poll()
            self.arm(browse=True)  # it has no payloads of what it keeps

    @property
    def is_silent(self) -> bool:
        """Whether it has no credit, and no message is on the way to it."""
        return self._receiver is None or self._receiver.is_drained

    @property
    def kept(self) -> int:
        """How many messages it keeps under their locks because they were not worth a ring."""
        return len(self._kept)

    @property
    def waiting(self) -> dict[str, Waiting]:
        """The messages that it has seen by peeking and that cannot be moved, by destination. Any thread may ask."""
        return dict(self._watch.waiting) if self.is_armed and self.is_peeking else {}

    def close(self) -> None:
        """Releases all messages that it keeps, and closes its links."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            if receiver.state is LinkState.OPEN:
                receiver.drain()
                self._kept.extend((0.0, arrival) for arrival in receiver.arrivals)
                self._release(receiver, [arrival for _, arrival in self._kept])
            receiver.close()
        self._kept.clear()
        self._watch.close()
        self.silence()

    # --- by receiving --------------------------------------------------------------------------------------------

    def _receive(self, connection: Connection) -> Ring | None:
        receiver = self._open(connection)
        if receiver is None or receiver.state is not LinkState.OPEN:
            return None
        ring = self._take(receiver)
        if self.is_peeking:
            self._release_all(receiver)  # a transfer that tries a destination with one message must find one
        if self._receives and ring is None:
            self._poll(receiver)
        else:
            receiver.drain()
        return ring if self._receives else None

    @property
    def _receives(self) -> bool:
        return self.is_armed and not self.is_peeking

    def _open(self, connection: Connection) -> RawReceiver | None:
        receiver, now = self._receiver, self._now()
        if receiver is not None and receiver.state is LinkState.LOST:
            self._receiver = None
            self._kept.clear()
            self._again_at = now + self._backoff.pause(now - self._opened_at)
            if receiver.error is not None and not isinstance(receiver.error, Interrupted):
                raise receiver.error
        if self._receiver is None and self._receives and now >= self._again_at and connection.tokens.allow(self.queue):
            self._receiver = RawReceiver(connection.wire, self.queue)
            self._opened_at = now
        return self._receiver

    def _take(self, receiver: RawReceiver) -> Ring | None:
        """Releases the messages that are worth a ring and keeps the others."""
        now = self._now()
        if self._kept and self._kept[0][0] <= now:
            self._stop_keeping()
        if receiver.arrivals:
            self._until = None  # a receive that brought something is over
            self._calm_at = now + CALM
        ring: Ring | None = None
        worthy = []
        while receiver.arrivals:
            arrival = receiver.arrivals.popleft()
            if not self._receives or self._gate.is_worth_a_job(self.queue, arrival.payload):
                worthy.append(arrival)
                ring = ring or (Ring.MIXED if self._kept else Ring.NEW)
            else:
                arrival.payload = b""  # only the lock is needed, and there may be thousands
                self._kept.append((now + self._lock - BEFORE_THE_END, arrival))
                self._wanted_credit = min(2 * self._wanted_credit, MOST)
        self._release(receiver, worthy)
        receiver.settled.clear()
        return ring

    def _stop_keeping(self) -> None:
        """The locks are about to end, and the same messages would come again: peeks from now on, if it can."""
        if self._receives:
            self._end_poll()
            self.arm(browse=True)
        while not self.is_peeking and self._kept and self._kept[0][0] <= self._now():
            self._kept.popleft()

    def _release_all(self, receiver: RawReceiver) -> None:
        self._release(receiver, [arrival for _, arrival in self._kept] + list(receiver.arrivals))
        self._kept.clear()
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
            self._check_at = now + CHECK_EVERY
            self.polls += 1
            receiver.grant(self._wanted_credit)
        elif receiver.credit <= 0:
            receiver.grant(self._wanted_credit)  # the poll was cut short and continues, perhaps on a new link
        elif self._wanted_credit > 1 and now >= self._calm_at:
            self._wanted_credit = 1
            receiver.grant(1)
        elif now >= self._check_at:
            self._check_at = now + CHECK_EVERY
            receiver.check_credit()
