"""Replays dead letters: into their backlog queue, or to the destinations they were meant for (X4); removes them.

A replay is a pump whose source is the dead-letter queue and whose route is one of those in `route`. It differs in this:

- It takes the dead letters that were chosen by sequence number, from a peek, and no others that have come since.
- It must receive other dead letters to get at the chosen ones behind them. It keeps these under their locks, and
  releases them at the end.
- It never dead-letters. A message that cannot be put back stays where it is, and the result says why.
- It waits for a destination that backs off, up to its patience: there is no next job that would retry.

A dead letter is completed only after its copy was accepted (S2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from syphon.backlog import dead_letter_path, fingerprint, stamps_of
from syphon.model import DestinationDisabled, DestinationMissing, Faulted, Outcome, Result, SyphonError, Waits
from syphon.servicebus import RUNTIME, Arrival, Connection, Namespace, Runtime
from syphon.time_budget import LOCK_DURATION, REPLAY_PATIENCE, REPLAY_QUIET, REPLAY_RELEASE_WITHIN, SEND_ANSWER_WITHIN

from .destination import Destination, SendResults
from .message_transfer import MessageTransfer
from .pump import Pump
from .pump_options import PERMANENT, PumpOptions
from .queue_transfer import QueueTransfer
from .route import Route, route_to_backlog
from .settlement import Ended

WINDOW = 500
"""Messages in flight at a time."""
REFUSED_AT_ONCE = PERMANENT | {DestinationMissing, DestinationDisabled}
"""The errors after which a message is not retried: a person waits for the result of a replay."""


class NewId(NamedTuple):
    """A message that got a new message id: its own might have been taken for a duplicate."""

    sequence_number: int
    """In the dead-letter queue."""
    message_id: str
    new_message_id: str | None
    """None in a dry run: an id is made when the message is sent."""


@dataclass(slots=True)
class ReplayResult:
    """What became of the chosen dead letters: chosen = completed + left."""

    chosen: int
    completed: int = 0
    possible_duplicates: int = 0
    """Replayed messages that may still be dead letters, and messages left that may have been replayed."""
    uncertain: int = 0
    """Messages left by a removal that may be gone: their completion was requested and not confirmed."""
    why_left: Counter[str] = field(default_factory=Counter)
    new_ids: list[NewId] = field(default_factory=list)
    """The messages that were sent, or may have been sent, under a new message id."""

    @property
    def left(self) -> int:
        return self.why_left.total()


class DeadLetters(QueueTransfer):
    """The dead letters of one backlog queue. A dead letter that is not put back stays under its lock until the end."""

    ended_early = "The replay ended before it was known whether this message was accepted."

    def __init__(self, queue: str, **options: Any) -> None:
        super().__init__(queue, **options)
        self._kept: list[Arrival] = []
        """Dead letters that stay: those that were not chosen, and those that could not be put back."""

    def keep(self, arrival: Arrival) -> None:
        arrival.payload = b""  # the replay needs only its lock, which it releases at the end
        self._kept.append(arrival)

    def stay(self, arrival: Arrival, why: str) -> None:
        """Leaves a dead letter where it is. Its lock is released at the end: earlier, it would arrive again."""
        self.unsettled.finish(arrival, Result.LEFT, why)
        self.keep(arrival)

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        self.stay(arrival, f"{reason}: {description}")

    def abandon(self, arrival: Arrival, why: str) -> None:
        self.stay(arrival, why)

    def close(self) -> None:
        """Releases the dead letters that stay, then closes like every queue."""
        self.take_settlements()
        for arrival, transfer in list(self.unsettled.transfers.items()):
            if transfer is None or transfer.forwarded_at is None:
                self.stay(arrival, self.ended_early)
        with suppress(SyphonError):  # without a connection the locks expire by themselves
            self.intake.release(self._kept, REPLAY_RELEASE_WITHIN)
        super().close()


class Replay(Pump):
    """Puts the chosen dead letters of one backlog queue back."""

    queue_kind = DeadLetters

    def __init__(
        self,
        queue: str,
        chosen: Set[int],
        source: Connection,
        target: Connection,
        route: Route,
        *,
        now: Callable[[], float] | None = None,
        quiet: float = REPLAY_QUIET,
        patience: float = REPLAY_PATIENCE,
        lock: float = LOCK_DURATION,
        runtime: Runtime = RUNTIME,
    ) -> None:
        now = now or runtime.now
        secondary = _single_connection(source, now)
        primary = secondary if target is source else _single_connection(target, now)
        options = PumpOptions(
            window=WINDOW,
            first_window=WINDOW,
            quiet=quiet,
            lease=None,
            grace=SEND_ANSWER_WITHIN,
            lock=lock,
            permanent=REFUSED_AT_ONCE,
        )
        super().__init__(
            secondary, primary, self._record, options, now, route=route, wait=runtime.wait, wall=runtime.wall
        )
        self.result = ReplayResult(len(chosen))
        self.was_stopped = False
        """Whether `stop` was called. A lost connection stops a replay, too."""
        self._missing = set(chosen)
        self._patience = patience
        self._seen: set[int] = set()
        self._waits_since: dict[str, float] = {}
        self._trouble: SyphonError | None = None
        """Why the dead letters could not be received, if that ended the replay."""
        self._news_at = now()
        """When a dead letter last arrived that had not been seen before, or one was last in flight."""
        self.serve(queue, source=dead_letter_path(queue))
        letters = self.queues[queue]
        assert isinstance(letters, DeadLetters)  # `queue_kind` says so
        self._letters = letters

    def carry_out(self, on_turn: Callable[[ReplayResult], None] = lambda _: None) -> ReplayResult:
        """Works until all chosen dead letters are dealt with, or cannot be found. Calls `on_turn` at every turn."""
        try:
            for _ in self.turns():
                on_turn(self.result)
        except SyphonError as error:
            self._leave_missing(str(error))
        if self.was_stopped:
            self._leave_missing("The replay was stopped before it came to this message.")
        if self._trouble is not None:
            self._leave_missing(f"The dead letters could not be received: {self._trouble}")
        self._leave_missing("It was not found again: completed, deferred or locked by another receiver.")
        on_turn(self.result)
        return self.result

    def stop(self) -> None:
        """Receives no more dead letters; finishes those in flight."""
        self.was_stopped = True
        super().stop()

    def _record(self, outcome: Outcome) -> None:
        self.result.possible_duplicates += outcome.possible_duplicate
        replaced = self._replaced_ids.get(outcome.message_id)
        if replaced is not None and (outcome.result is Result.FORWARDED or outcome.possible_duplicate):
            self.result.new_ids.append(NewId(outcome.sequence_number, replaced, outcome.message_id))
        if outcome.result is Result.FORWARDED:
            self.result.completed += 1
        else:
            self.result.why_left[outcome.reason] += 1

    def _leave_missing(self, why: str) -> None:
        if self._missing:
            self.result.why_left[why] += len(self._missing)
            self._missing.clear()

    def _reason_to_end(self, queue: QueueTransfer, now: float) -> Ended | None:
        if queue.counters.in_flight:
            self._news_at = now  # silence means nothing as long as there is no room for more
            return None
        if not self._missing:
            return Ended.LIMIT
        # A queue that cannot be received from is never quiet: patience is the limit for that.
        if now - self._news_at > self._options.quiet + self._patience:
            self._trouble = queue.intake.trouble
            return Ended.QUIET
        return Ended.QUIET if queue.intake.is_quiet(now, self._news_at) else None

    def _route_arrivals(self) -> None:
        wall, letters = self._wall(), self._letters
        while (arrival := letters.intake.next_arrival()) is not None:
            stamps = stamps_of(arrival.payload)
            letters.locks.update_duration(stamps.locked_until, wall)
            number = stamps.sequence_number
            if number not in self._seen:
                self._seen.add(number)
                self._news_at = self._now()
            if number in self._missing and not self.stopping:
                self._missing.discard(number)
                letters.unsettled.receive(arrival)
                self._route(letters, arrival, wall)
            else:
                letters.keep(arrival)

    def _grant(self) -> None:
        """Asks for no more once all chosen dead letters are found: each one received is locked until the end."""
        if self._missing or self._letters.intake.is_lost:
            super()._grant()
        else:
            self._letters.intake.drain()

    # --- a message that is not put back --------------------------------------------------------------------------

    def _abandon_unsent(self, why: str, queue: QueueTransfer | None = None) -> None:
        """Nothing, unless the target is faulted: a replay that is stopped still sends the messages in flight."""
        if self._sides.fault is not None:
            super()._abandon_unsent(why, queue)

    def _leave(self, transfer: MessageTransfer, error: SyphonError) -> None:
        """Sends a message again if waiting may help and patience is left. Otherwise it stays a dead letter."""
        path = transfer.restored.destination
        destination = self.destinations.find(path)
        if isinstance(error, Waits) and isinstance(destination, Destination) and self._is_patient(path.key):
            self.destinations.offer(destination, transfer)
        else:
            self._letters.stay(transfer.arrival, f"'{path.name}': {error}")

    def _defer(self, transfer: MessageTransfer, error: SyphonError) -> None:
        """A dead letter stays as it is, so that other tools find it."""
        self._leave(transfer, error)

    def _is_patient(self, key: str) -> bool:
        since = self._waits_since.setdefault(key, self._now())
        return not self.stopping and self._now() - since < self._patience

    def _settle_results(self, destination: Destination, results: SendResults) -> None:
        if results.accepted:
            self._waits_since.pop(results.accepted[0].restored.destination.key, None)
        super()._settle_results(destination, results)


class RemovedLetters(DeadLetters):
    """The dead letters of one backlog queue that a removal completes."""

    ended_early = "The removal ended before the service confirmed it."


class Removal(Replay):
    """Completes the chosen dead letters of one backlog queue, which are kept elsewhere: nothing is sent.

    `chosen` has the fingerprint of each. A dead letter with another one stays: it is not the message that is kept.
    Only a confirmed completion counts as removed.
    """

    queue_kind = RemovedLetters

    def __init__(self, queue: str, chosen: Mapping[int, bytes], source: Connection, **options: Any) -> None:
        super().__init__(queue, set(chosen), source, source, route_to_backlog(queue), **options)
        self._fingerprints = chosen
        self._completing: set[int] = set()
        """The sequence numbers of the messages whose completion was requested."""

    def _route(self, queue: QueueTransfer, arrival: Arrival, wall: int) -> None:  # noqa: ARG002
        number = stamps_of(arrival.payload).sequence_number
        if fingerprint(arrival.payload) == self._fingerprints[number]:
            self._completing.add(number)
            queue.complete(arrival)
        else:
            self._letters.stay(arrival, "It is not the message in the file.")

    def _record(self, outcome: Outcome) -> None:
        """Counts a message as left unless its completion was confirmed.

        For a pump, a message that was accepted and could not be completed is forwarded, and a possible duplicate. A
        removal has sent nothing: such a message may still be there, or may be gone without an answer.
        """
        is_confirmed = outcome.result is Result.FORWARDED and not outcome.reason and not outcome.possible_duplicate
        if is_confirmed or outcome.sequence_number not in self._completing:
            super()._record(outcome)
        else:
            self.result.uncertain += 1
            self.result.why_left[f"Removal not confirmed; it may still be a dead letter: {outcome.reason}"] += 1


def _single_connection(connection: Connection, now: Callable[[], float]) -> Namespace:
    """A namespace with one connection, which belongs to the caller: when it breaks, the namespace is faulted."""
    unused = [connection]

    def connect() -> Connection:
        if unused:
            return unused.pop()
        raise Faulted(f"The connection to {connection.host} was lost: {connection.wire.failure}")

    return Namespace(connection.host, connect, now, begin=lambda open_it, _: open_it())
