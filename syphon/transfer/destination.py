"""One destination: its link, what waits for it, what is under way, and what its answers mean.

A destination never holds up another. While it waits, what comes for it is left in the backlog under its lock: the lock
is the timer. A batch that is refused is split until the message to blame stands alone; its companions arrive once.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from syphon.bus import Connection, LinkState, RawSender, Sent
from syphon.model import (
    DestinationDisabled,
    DestinationFailed,
    DestinationMissing,
    DestinationSilent,
    Impossible,
    Interrupted,
    MessageTooLarge,
    PausedByOperator,
    SyphonError,
)

from .batches import Batch, Lines, Transfer, encoded, parted
from .breaker import Available, BackingOff, Breaker, Rejecting, State

ANSWER_WITHIN = 60.0
STUCK, STUCK_AGAIN = 10.0, 1.0
"""Seconds after which messages that wait, and of which none could go, are left: they are in the way of others. After a
failure nobody expects much."""
REFUSED_BATCHES = 4
"""How many batches in a row may be refused before messages go one by one."""
ALONE_IN_VAIN = 3
"""How many messages in a row may fail, each sent alone, before it is the destination that fails."""


class WindowShare(NamedTuple):
    """How much may be under way to one destination: its share of what a pump can have in hand. One batch always may."""

    messages: int
    bytes: int


NO_LINK = WindowShare(0, 0)
"""Of a destination that has no link, and gets none now."""


class Answer(NamedTuple):
    """What a destination said to a batch."""

    batch: Batch
    seconds: float
    """How long it took."""
    error: SyphonError | None


@dataclass(slots=True)
class Progress:
    """What a round of work has brought."""

    accepted: list[Transfer] = field(default_factory=list)
    refused: list[tuple[Transfer, SyphonError]] = field(default_factory=list)
    left: list[tuple[Transfer, SyphonError]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


class Destination:
    """A queue or topic of the primary."""

    def __init__(self, path: str, permanent: frozenset[type[SyphonError]]) -> None:
        self.path = path
        self.breaker = Breaker(path, permanent)
        self.is_paused = False
        """The operator wants it left alone, whatever its state."""
        self.used_at = 0.0
        self.left = 0
        """How many messages it has left in the backlog since it last took one."""
        self._sender: RawSender[Batch] | None = None
        self._waiting = Lines()
        self._again: deque[Batch] = deque()
        self._messages_under_way = self._bytes_under_way = 0
        self._stuck_since: float | None = None
        self._careful = False
        """Something that is to be sent again may be to blame for a failure: one at a time, to see what is."""
        self._refused_batches = 0
        self._alone_in_vain = 0

    @property
    def state(self) -> State:
        return self.breaker.state

    # --- in ------------------------------------------------------------------------------------------------------

    def offer(self, transfer: Transfer) -> None:
        self._waiting.add(transfer)

    def has_work(self) -> bool:
        """Something has to go out, or to come back."""
        sender = self._sender
        return bool(
            self._waiting
            or self._again
            or (sender is not None and (sender.results or sender.awaits_answer_since() is not None))
        )

    def has_link(self) -> bool:
        return self._sender is not None

    def can_spare_its_link(self) -> bool:
        sender = self._sender
        return sender is not None and not (self._waiting or self._again or sender.under_way or sender.results)

    # --- a round of work -----------------------------------------------------------------------------------------

    def work(self, connection: Connection | None, now: float, share: WindowShare) -> Progress:
        """Sends what can be sent and tells what came back."""
        progress = Progress()
        self._collect(progress, now)
        state = self.breaker.look(now)
        if self.is_paused:
            self._leave_all(progress, PausedByOperator())
        elif isinstance(state, BackingOff):
            self._leave_all(progress, state.because)
        elif isinstance(state, Rejecting):
            self._refuse_all(progress, state.because)
        elif connection is not None and (self._waiting or self._again):
            self.used_at = now
            self._send(connection, progress, now, share)
            self._leave_if_stuck(progress, now)
        return progress

    def _leave_if_stuck(self, progress: Progress, now: float) -> None:
        """There is one window for all destinations: what waits here for long keeps messages for others from coming."""
        if not self._waiting and not self._again:
            return
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > (STUCK_AGAIN if self.breaker.failures else STUCK):
            self._leave_all(progress, DestinationSilent(f"'{self.path}' takes nothing at the moment."))
            if self._sender is None:
                self._stuck_since = None  # a link that is still to come has its time

    def _send(self, connection: Connection, progress: Progress, now: float, share: WindowShare) -> None:
        try:
            if self._sender is None:
                if share is NO_LINK or not connection.tokens.allow(self.path):
                    return
                self._sender = RawSender(connection.wire, self.path)
        except SyphonError as error:
            self._fail(error, now)
            return
        sender = self._sender
        if not self._again and not sender.under_way:
            self._careful = False
        while sender.has_room() and self._may_send(sender, share):
            batch = self._next_again() if self._again else self._waiting.next_batch(sender)
            if not batch:
                return
            size = batch[0].restored.size
            if size > sender.max_size:
                self._judge(Sent(batch, self._too_large(size, sender.max_size)), progress, now)
                continue
            payload, message_format = encoded(batch)
            sender.send(payload, message_format, batch)
            self._messages_under_way += len(batch)
            self._bytes_under_way += _size(batch)
            self._stuck_since = None

    def _may_send(self, sender: RawSender[Batch], share: WindowShare) -> bool:
        """After a failure one batch goes ahead, to see whether the others would arrive."""
        if not sender.under_way:
            return True
        if self.breaker.failures or self._careful:
            return False
        return self._messages_under_way < share.messages and self._bytes_under_way < share.bytes

    def _next_again(self) -> Batch:
        """What is sent again first. Where a message has just failed alone, one from afar, alone as well:

        does the destination take anything at all? The next ones in line may have the same fault.
        """
        if not self._alone_in_vain:
            return self._again.popleft()
        largest = max(self._again, key=len)
        self._again.remove(largest)
        one = largest.pop(len(largest) // 2)
        if largest:
            self._again.appendleft(largest)
        return [one]

    def _too_large(self, size: int, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"It has {size} bytes, and '{self.path}' takes {limit}.", "amqp:link:message-size-exceeded"
        )

    # --- what comes back -----------------------------------------------------------------------------------------

    def _collect(self, progress: Progress, now: float) -> None:
        sender = self._sender
        if sender is None:
            return
        since = sender.awaits_answer_since()
        if since is None and sender.state is LinkState.OPEN and not sender.has_room():
            since = self._stuck_since  # it lets us send nothing
        if since is not None and now - since > ANSWER_WITHIN:
            sender.close()
            self._fail(DestinationSilent(f"'{self.path}' has not answered for {ANSWER_WITHIN:.0f} seconds."), now)
        error = sender.error
        if sender.was_open and isinstance(error, Impossible | DestinationFailed):
            error = self._look_for_the_cause(sender, error)
        while sender.results:
            sent = sender.results.popleft()
            self._messages_under_way -= len(sent.ticket)
            self._bytes_under_way -= _size(sent.ticket)
            if not sent.unknown:
                progress.answers.append(Answer(sent.ticket, sent.seconds, sent.error))
            self._judge(sent, progress, now)
        if sender.state is LinkState.LOST:
            self._sender = self._stuck_since = None
            if error is not None and isinstance(self.state, Available):
                self._fail(error, now)

    def _look_for_the_cause(self, sender: RawSender[Batch], error: SyphonError) -> SyphonError | None:
        """A link that worked was ended with a reason that may be about one message, or old news by now.

        If it is about the entity, the next attach will be refused. If not, what was alone on its way is to blame; of
        several nobody knows which one, and they go one at a time from now on: all that is known is that a link broke.
        """
        self._careful = True
        unknown = [sent for sent in sender.results if sent.unknown]
        if len(unknown) != 1:
            return Interrupted(str(error), error.condition)
        sender.results.remove(unknown[0])
        _may_have_arrived(unknown[0].ticket)
        sender.results.append(Sent(unknown[0].ticket, error))
        return None

    def _judge(self, sent: Sent[Batch], progress: Progress, now: float) -> None:
        batch, error = sent.ticket, sent.error
        if sent.unknown:
            _may_have_arrived(batch)
        if error is None:
            self.breaker.worked()
            self.left = self._alone_in_vain = 0
            self._stuck_since = None
            if len(batch) > 1:
                self._refused_batches = 0
            progress.accepted += batch
        elif sent.unknown and self._has_lost_its_link():
            # Not knowing is not having sent: again, under the same message id (D10).
            self._again.append(batch)
        elif not isinstance(error, Impossible | DestinationFailed):
            self._fail(error, now)
            progress.left += [(transfer, error) for transfer in batch]
        elif len(batch) == 1:
            self._blame(batch[0], error, progress, now)
        elif isinstance(error, Impossible):
            self._split(batch)
        else:
            self._look_inside(batch)

    def _has_lost_its_link(self) -> bool:
        return self._sender is None or self._sender.state is LinkState.LOST

    def _blame(self, transfer: Transfer, error: SyphonError, progress: Progress, now: float) -> None:
        """It was not taken alone either. If that goes for the next ones, too, then it is not the message after all."""
        if self.breaker.is_permanent(error):
            progress.refused.append((transfer, error))
            return
        progress.left.append((transfer, error))
        if isinstance(error, MessageTooLarge):
            return  # however many there are, it is them
        self._alone_in_vain += 1
        if self._alone_in_vain >= ALONE_IN_VAIN or isinstance(error, DestinationMissing | DestinationDisabled):
            self._alone_in_vain = 0
            self._fail(error, now)

    def _look_inside(self, batch: Batch) -> None:
        """In halves, the first of them down to its first message: it soon shows whether anything is taken at all."""
        middle = (len(batch) + 1) // 2
        self._again.extendleft((batch[middle:], batch[:middle]))
        self._careful = True

    def _split(self, batch: Batch) -> None:
        """In halves, to find the message to blame. If none was taken again and again, nothing goes together here:

        a partitioned entity with duplicate detection has a key for each message, its id (S8).
        """
        self._refused_batches += 1
        if self._refused_batches >= REFUSED_BATCHES:
            self._waiting.together = 1
        size = 1 if self._waiting.together == 1 else (len(batch) + 1) // 2
        self._again += (batch[start : start + size] for start in range(0, len(batch), size))

    def _fail(self, error: SyphonError, now: float) -> None:
        self.breaker.failed(error, now)
        self._stuck_since = None

    # --- out -----------------------------------------------------------------------------------------------------

    def _leave_all(self, progress: Progress, because: SyphonError) -> None:
        progress.left += [(transfer, because) for transfer in self.give_up()]

    def _refuse_all(self, progress: Progress, because: SyphonError) -> None:
        progress.refused += [(transfer, because) for transfer in self.give_up()]

    def give_up(self, locked_before: float = math.inf) -> list[Transfer]:
        """What was not sent yet, to be given back: all, or what was last locked before then."""
        parts = [parted(batch, locked_before) for batch in self._again]
        self._again = deque(fresh for _, fresh in parts if fresh)
        return [transfer for old, _ in parts for transfer in old] + self._waiting.take(locked_before)

    def close(self) -> None:
        """Lets go of its link. What is under way and not refused has arrived, or may have: if it comes again, twice."""
        if self._sender is not None:
            self._sender.close()
            for sent in self._sender.results:
                if sent.unknown or sent.error is None:
                    _may_have_arrived(sent.ticket)
            self._sender = self._stuck_since = None
            self._messages_under_way = self._bytes_under_way = 0


def _size(batch: Batch) -> int:
    return sum(transfer.restored.size for transfer in batch)


def _may_have_arrived(batch: Batch) -> None:
    for transfer in batch:
        transfer.possible_duplicate = True
