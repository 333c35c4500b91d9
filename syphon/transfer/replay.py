"""Putting dead letters back: into their backlog queue, or straight to the destinations they were meant for (X4).

What was chosen is known by sequence numbers, from a peek: just these are put back, and no other that has come since.
The rest of the dead letters have to be received to get at those behind them; they are kept under their locks meanwhile,
and let go at the end. A dead letter is completed only after its copy was accepted (S2). What cannot be put back stays
where it is, and the account says why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from syphon.backlog import (
    NotPutBack,
    Restored,
    Ttl,
    Unrestorable,
    dead_letter_path,
    not_allowed,
    put_back,
    restore,
    stamps_of,
)
from syphon.bus import Arrival, Connection, LinkState, RawReceiver, Settled, wait_for_traffic
from syphon.config import PairSettings
from syphon.model import EntityPath, Interrupted, SyphonError, Waits

from .batches import Transfer
from .breaker import BackingOff
from .destination import Destination, WindowShare
from .locks import LockKeeper
from .options import PERMANENT

WINDOW, WINDOW_BYTES = 500, 16 * 1024 * 1024
"""How many messages are on their way at once, and about how many bytes."""
QUIET = 5.0
"""Seconds without a message not seen before: those still missing are gone, deferred, or locked by somebody else."""
PATIENCE = 60.0
"""Seconds a destination is waited for that cannot take messages just now."""
LOCK = 60.0
"""Seconds a lock lasts, as backlog queues are made (P2)."""
GRACE = 5.0
"""Seconds to let go of what is in hand."""
TURN, TICK = 0.2, 0.5

Route = Callable[[bytes], Restored]
"""A dead letter's bytes as they are to be sent, and where to. Raises NotPutBack."""


@dataclass(slots=True)
class ReplayTally:
    """What became of the chosen dead letters: chosen = replayed + left."""

    chosen: int
    replayed: int = 0
    possible_duplicates: int = 0
    """Put back and perhaps a dead letter still; or left, and perhaps put back all the same."""
    why_left: Counter[str] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        return self.why_left.total()


def to_backlog(queue: str, path: str | None = None) -> Route:
    """Back into the backlog queue; the syphon takes it from there."""

    def route(payload: bytes) -> Restored:
        copy = put_back(payload, path)
        return Restored(copy, EntityPath.of(queue), None, None, None, len(copy), stamps_of(payload))

    return route


def to_destination(pair: PairSettings, ttl: Ttl, path: str | None = None) -> Route:
    """Straight to the destination, restored as a transfer restores it and only where one may go (D13)."""

    def route(payload: bytes) -> Restored:
        enqueued_at = stamps_of(payload).enqueued_at or None
        restored = restore(put_back(payload, path), enqueued_at=enqueued_at, now=_wall(), ttl=ttl)
        if isinstance(restored, Unrestorable):
            raise NotPutBack(f"{restored.reason}: {restored.description}")
        forbidden = not_allowed(restored.destination, pair.destinations.allowed)
        if forbidden is not None:
            raise NotPutBack(f"Nothing may go to {restored.destination.name!r}: {forbidden}.")
        return restored

    return route


class Replay:
    """Puts the chosen dead letters of one backlog queue back."""

    def __init__(
        self,
        queue: str,
        chosen: Set[int],
        source: Connection,
        target: Connection,
        route: Route,
        now: Callable[[], float] = time.monotonic,
        quiet: float = QUIET,
        patience: float = PATIENCE,
        lock: float = LOCK,
    ) -> None:
        self.tally = ReplayTally(len(chosen))
        self.stopping = False
        self._path = dead_letter_path(queue)
        self._missing = set(chosen)
        self._source = source
        self._target = target
        self._route = route
        self._now = now
        self._quiet = quiet
        self._patience = patience
        self._receiver: RawReceiver | None = None
        self._seen: set[int] = set()
        self._aside: list[Arrival] = []
        self._in_hand: dict[Arrival, bool] = {}
        """What is on its way, and whether its copy was accepted."""
        self._doubtful: set[Arrival] = set()
        """Of these, what may have been accepted before, on a link that was lost."""
        self._destinations: dict[str, Destination] = {}
        self._waits_since: dict[str, float] = {}
        self._locks = LockKeeper(self._path, lock)
        self._largest = 1024 * 1024
        """Bytes of a message, lately; nobody knows what the first ones will be."""
        self._news_at = now()
        self._ticked_at = 0.0

    # --- the loop ------------------------------------------------------------------------------------------------

    def run(self, watch: Callable[[ReplayTally], None] = lambda _: None) -> ReplayTally:
        """Puts back until all that were chosen are dealt with, or cannot be found. `watch` is called now and then."""
        try:
            while not self._done():
                self._wait_for_traffic()
                self._take_settlements()
                self._take_arrivals()
                self._forward()
                self._grant()
                watch(self.tally)
        except SyphonError as error:
            self._leave_missing(str(error))
        self._leave_missing("It was not found again: completed, deferred or locked by somebody else.")
        self._let_go()
        watch(self.tally)
        return self.tally

    def stop(self) -> None:
        """Takes no more; finishes what is in hand."""
        self.stopping = True

    def _done(self) -> bool:
        if self.stopping and not self._in_hand:
            self._leave_missing("It was told to stop.")
        if self._in_hand:
            self._news_at = self._now()  # as long as there is no room for more, silence says nothing
            return False
        return not self._missing or (self._receiver is not None and self._now() - self._news_at > self._quiet)

    def _wait_for_traffic(self) -> None:
        connections = {self._source, self._target}
        wires = [connection.wire for connection in connections]
        wait_for_traffic(wires, TURN)
        for wire in wires:
            if wire.failure is not None:
                raise wire.failure
        for connection in connections:
            connection.read()
        now = self._now()
        if now - self._ticked_at > TICK:
            self._ticked_at = now
            for connection in connections:
                connection.tick()
            self._locks.keep(self._source, self._in_hand, now)

    def _grant(self) -> None:
        receiver = self._open()
        if receiver is None or receiver.state is not LinkState.OPEN:
            return
        window = max(1, min(WINDOW, WINDOW_BYTES // self._largest))
        room = window - len(self._in_hand) if self._missing and not self.stopping else 0
        if receiver.credit < (room + 1) // 2:
            receiver.grant(room)
        elif room <= 0 < receiver.credit:
            receiver.grant(0)

    def _open(self) -> RawReceiver | None:
        if self._receiver is not None and self._receiver.state is LinkState.LOST:
            raise self._receiver.error or Interrupted()
        if self._receiver is None and self._source.tokens.allow(self._path):
            self._receiver = RawReceiver(self._source.wire, self._path)
            self._news_at = self._now()
        return self._receiver

    # --- the way of a dead letter --------------------------------------------------------------------------------

    def _take_arrivals(self) -> None:
        while self._receiver is not None and self._receiver.arrivals:
            arrival = self._receiver.arrivals.popleft()
            self._largest = max(len(arrival.payload), self._largest // 2)
            facts = stamps_of(arrival.payload)
            self._locks.learn(facts.locked_until, _wall())
            number = facts.sequence_number
            if number not in self._seen:
                self._seen.add(number)
                self._news_at = self._now()
            if number in self._missing and not self.stopping:
                self._missing.discard(number)
                self._send(arrival)
            else:
                self._set_aside(arrival)

    def _send(self, arrival: Arrival) -> None:
        self._in_hand[arrival] = False
        try:
            restored = self._route(arrival.payload)
        except NotPutBack as error:
            self._leave(arrival, str(error))
            return
        path = restored.destination
        destination = self._destinations.get(path.key)
        if destination is None:
            destination = self._destinations[path.key] = Destination(path.name, PERMANENT)
        destination.offer(Transfer(arrival, restored, len(arrival.payload)))

    def _forward(self) -> None:
        now = self._now()
        for destination in self._destinations.values():
            state = destination.state
            if isinstance(state, BackingOff) and now < state.until and self._is_patient(destination):
                continue
            progress = destination.work(self._target, now, WindowShare(WINDOW, WINDOW_BYTES))
            for transfer in progress.accepted:
                self._waits_since.pop(destination.path, None)
                self._in_hand[transfer.arrival] = True
                if transfer.possible_duplicate:
                    self._doubtful.add(transfer.arrival)
                transfer.arrival.link.complete(transfer.arrival)
            for transfer, error in progress.refused + progress.left:
                self._judge(destination, transfer, error)

    def _judge(self, destination: Destination, transfer: Transfer, error: SyphonError) -> None:
        """Not taken: once more a little later if that may help, or it stays a dead letter."""
        if isinstance(error, Waits):
            self._waits_since.setdefault(destination.path, self._now())
            if self._is_patient(destination):
                destination.offer(transfer)
                return
        self.tally.possible_duplicates += transfer.possible_duplicate
        self._leave(transfer.arrival, f"'{destination.path}': {error}")

    def _is_patient(self, destination: Destination) -> bool:
        since = self._waits_since.get(destination.path)
        return since is not None and not self.stopping and self._now() - since < self._patience

    def _leave(self, arrival: Arrival, why: str) -> None:
        self._in_hand.pop(arrival, None)
        self._set_aside(arrival)
        self.tally.why_left[why] += 1

    def _set_aside(self, arrival: Arrival) -> None:
        arrival.payload = b""  # its lock is all that is kept of it, to be let go at the end
        self._aside.append(arrival)

    def _leave_missing(self, why: str) -> None:
        if self._missing:
            self.tally.why_left[why] += len(self._missing)
            self._missing.clear()

    def _take_settlements(self) -> None:
        while self._receiver is not None and self._receiver.settled:
            self._settled(self._receiver.settled.popleft())

    def _settled(self, settled: Settled) -> None:
        if self._in_hand.pop(settled.arrival, False):
            self.tally.replayed += 1
            self.tally.possible_duplicates += settled.error is not None or settled.arrival in self._doubtful

    # --- the end -------------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        """What was not put back is given back, and the account balances."""
        for arrival, accepted in list(self._in_hand.items()):
            if not accepted:
                self.tally.possible_duplicates += 1
                self._leave(arrival, "The connection went before it was known to be accepted.")
        for destination in self._destinations.values():
            destination.close()
        receiver = self._receiver
        if receiver is not None and receiver.state is LinkState.OPEN:
            self._release(receiver)
            receiver.close()
            self._source.wire.flush()
        self._take_settlements()
        self.tally.replayed += len(self._in_hand)
        self.tally.possible_duplicates += len(self._in_hand)

    def _release(self, receiver: RawReceiver) -> None:
        """First the credit: what is let go of must not come back to us."""
        receiver.drain()
        for arrival in self._aside:
            receiver.release(arrival)
        wire, deadline = self._source.wire, self._now() + GRACE
        while (receiver.settling or not receiver.is_drained) and wire.failure is None and self._now() < deadline:
            wait_for_traffic([wire], TURN)
            self._source.read()
            while receiver.arrivals:
                receiver.release(receiver.arrivals.popleft())


def _wall() -> int:
    return time.time_ns() // 1_000_000
