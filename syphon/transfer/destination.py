"""One destination: its link, what waits for it, what is under way, and whether it is worth trying.

A destination never holds up another. While it waits, what comes for it is left in the backlog under its lock: the lock
is the timer. A batch that is refused is split until the message to blame stands alone; its companions arrive once.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ..bus.connection import Connection
from ..bus.links import LinkState, RawSender, Sent
from ..errors import (
    DestinationDisabled,
    DestinationFailed,
    DestinationMissing,
    DestinationSilent,
    Impossible,
    Interrupted,
    LockLost,
    MessageTooLarge,
    NotAuthorized,
    PausedByOperator,
    SyphonError,
    Waits,
)
from .batches import Batch, Lines, Transfer, encoded

log = logging.getLogger(__name__)

BATCHES_UNDER_WAY = 16
ANSWER_WITHIN = 60.0
STUCK, STUCK_AGAIN = 10.0, 1.0
"""Seconds after which messages that wait, and of which none could go, are left: they are in the way of others. After a
failure nobody expects much."""
BROKEN_LINKS = 3
"""How often in a row a link may break before the destination is left alone for a while."""
REFUSED_BATCHES = 4
"""How many batches in a row may be refused before messages go one by one."""
ALONE_IN_VAIN = 3
"""How many messages in a row may fail, each sent alone, before it is the destination that fails."""
RECHECK_AFTER = 30.0
"""Seconds after which a destination that refused everything (missing, disabled) is looked at again."""
LONGEST_PAUSE = 120.0
"""Seconds between tries, at the most: each that fails doubles them (S9)."""


@dataclass(frozen=True, slots=True)
class Open:
    """Takes messages, as far as we know."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Is left alone until then."""

    until: float
    because: SyphonError


@dataclass(frozen=True, slots=True)
class Closed:
    """Takes nothing: what comes for it goes to the dead letters, until it is looked at again."""

    until: float
    because: SyphonError


State = Open | Waiting | Closed


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
        self.state: State = Open()
        self.is_paused = False
        """The operator wants it left alone, whatever its state."""
        self.used_at = 0.0
        self.left = 0
        """How many messages it has left in the backlog since it last took one."""
        self._permanent = permanent
        self._sender: RawSender[Batch] | None = None
        self._waiting = Lines()
        self._again: deque[Batch] = deque()
        self._broken = 0
        self.failures = 0
        """How often in a row it has failed."""
        self._stuck_since: float | None = None
        self._careful = False
        """Something that is to be sent again may be to blame for a failure: one at a time, to see what is."""
        self._refused_batches = 0
        self._alone_in_vain = 0

    # --- in ------------------------------------------------------------------------------------------------------

    def offer(self, transfer: Transfer) -> None:
        self._waiting.add(transfer)

    def has_work(self) -> bool:
        sender = self._sender
        return bool(self._waiting or self._again or (sender is not None and (sender.under_way or sender.results)))

    def has_link(self) -> bool:
        return self._sender is not None

    def is_idle(self) -> bool:
        return self._sender is not None and not self.has_work()

    # --- a round of work -----------------------------------------------------------------------------------------

    def work(self, connection: Connection | None, now: float) -> Progress:
        """Sends what can be sent and tells what came back."""
        progress = Progress()
        self._collect(progress, now)
        if isinstance(self.state, Waiting | Closed) and now >= self.state.until:
            self.state = Open()
        if self.is_paused:
            self._leave_all(progress, PausedByOperator())
        elif isinstance(self.state, Waiting):
            self._leave_all(progress, self.state.because)
        elif isinstance(self.state, Closed):
            self._refuse_all(progress, self.state.because)
        elif connection is not None and (self._waiting or self._again):
            self.used_at = now
            self._send(connection, progress, now)
            self._leave_if_stuck(progress, now)
        return progress

    def _leave_if_stuck(self, progress: Progress, now: float) -> None:
        """There is one window for all destinations: what waits here for long keeps messages for others from coming."""
        if not self._waiting and not self._again:
            return
        if self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > (STUCK_AGAIN if self.failures else STUCK):
            self._leave_all(progress, DestinationSilent(f"'{self.path}' takes nothing at the moment."))

    def _send(self, connection: Connection, progress: Progress, now: float) -> None:
        try:
            if self._sender is None:
                if not connection.tokens.allow(self.path):
                    return
                self._sender = RawSender(connection.wire, self.path)
        except SyphonError as error:
            self._suffer(error, now)
            return
        sender = self._sender
        if not self._again and not sender.under_way:
            self._careful = False
        # After a failure one batch goes ahead, to see whether the others would arrive.
        most = 1 if self.failures or self._careful else BATCHES_UNDER_WAY
        while sender.has_room() and sender.under_way < most:
            batch = self._again.popleft() if self._again else self._waiting.next_batch(sender)
            if not batch:
                return
            size = batch[0].restored.size
            if size > sender.max_size:
                self._blame(batch[0], self._too_large(size, sender.max_size), progress, now)
                continue
            payload, message_format = encoded(batch)
            sender.send(payload, message_format, batch)
            self._stuck_since = None

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
            self._suffer(DestinationSilent(f"'{self.path}' has not answered for {ANSWER_WITHIN:.0f} seconds."), now)
        error = sender.error
        if isinstance(error, Impossible) and sender.was_open:
            self._look_for_the_cause(sender, error)
            error = None
        while sender.results:
            sent = sender.results.popleft()
            if not sent.unknown:
                progress.answers.append(Answer(sent.ticket, sent.seconds, sent.error))
            self._judge(sent, progress, now)
        if sender.state is LinkState.LOST:
            self._sender = self._stuck_since = None
            if error is not None and isinstance(self.state, Open):
                self._suffer(error, now)

    def _look_for_the_cause(self, sender: RawSender[Batch], error: Impossible) -> None:
        """A link that worked was ended with a reason that may be about one message, or old news by now.

        If it is about the entity, the next attach will be refused. If not, what was alone on its way is to blame; of
        several nobody knows which one, and they go one at a time from now on.
        """
        unknown = [sent for sent in sender.results if sent.unknown]
        self._careful = True
        if len(unknown) == 1:
            sender.results.remove(unknown[0])
            for transfer in unknown[0].ticket:
                transfer.possible_duplicate = True
            sender.results.append(Sent(unknown[0].ticket, error))

    def _judge(self, sent: Sent[Batch], progress: Progress, now: float) -> None:
        batch, error = sent.ticket, sent.error
        if error is None:
            self._broken = self.failures = self.left = self._alone_in_vain = 0
            self._stuck_since = None
            if len(batch) > 1:
                self._refused_batches = 0
            progress.accepted += batch
        elif sent.unknown:
            # It may have arrived. Not knowing is not having sent: again, under the same message id (D10).
            for transfer in batch:
                transfer.possible_duplicate = True
            self._again.append(batch)
        elif not isinstance(error, Impossible | DestinationFailed):
            self._suffer(error, now)
            progress.left += [(transfer, error) for transfer in batch]
        elif len(batch) == 1:
            self._blame(batch[0], error, progress, now)
        elif isinstance(error, Impossible):
            self._split(batch)
        else:
            self._look_inside(batch)

    def _blame(self, transfer: Transfer, error: SyphonError, progress: Progress, now: float) -> None:
        """It was not taken alone either. If that goes for the next ones, too, then it is not the message after all."""
        if self._is_permanent(error):
            progress.refused.append((transfer, error))
            return
        progress.left.append((transfer, error))
        self._alone_in_vain += 1
        if self._alone_in_vain >= ALONE_IN_VAIN or isinstance(error, DestinationMissing | DestinationDisabled):
            self._alone_in_vain = 0
            self._suffer(error, now)

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

    def _is_permanent(self, error: SyphonError) -> bool:
        return isinstance(error, Impossible) and type(error) in self._permanent

    def _suffer(self, error: SyphonError, now: float) -> None:
        """The destination as a whole does not work: for how long it is left alone, and what becomes of its messages."""
        if isinstance(error, Interrupted | LockLost):
            self._broken += 1
            if self._broken < BROKEN_LINKS:
                return  # links come and go; a new one is opened at once
            self._broken = 0
            self._wait(Waits.retry_after, error, now)
        elif self._is_permanent(error):
            self.state = Closed(now + RECHECK_AFTER, error)
        elif isinstance(error, Waits):
            self._wait(error.retry_after, error, now)
        else:
            self._wait(60.0 if isinstance(error, NotAuthorized) else RECHECK_AFTER, error, now)

    def _wait(self, first_pause: float, error: SyphonError, now: float) -> None:
        """Is left alone: the longer, the more often in a row it has failed."""
        if not isinstance(self.state, Waiting):  # what else was under way fails as well, and is no new failure
            self.failures += 1
        pause = min(first_pause * 2.0 ** min(self.failures - 1, 10), LONGEST_PAUSE)
        if not isinstance(self.state, Waiting):
            log.warning(
                "destination %s waits: %s What is for it stays in the backlog; next try in %.0f s",
                self.path, error, pause,
            )  # fmt: skip
        self.state = Waiting(now + pause, error)
        self._stuck_since = None

    def _leave_all(self, progress: Progress, because: SyphonError) -> None:
        progress.left += [(transfer, because) for transfer in self._take_all()]

    def _refuse_all(self, progress: Progress, because: SyphonError) -> None:
        progress.refused += [(transfer, because) for transfer in self._take_all()]

    def _take_all(self) -> list[Transfer]:
        taken = [transfer for batch in self._again for transfer in batch]
        self._again.clear()
        return taken + self._waiting.take_all()

    def give_up(self) -> list[Transfer]:
        """What was not sent yet, to be given back."""
        return self._take_all()

    def close(self) -> None:
        """Lets go of its link. What is under way and not refused has arrived, or may have: if it comes again, twice."""
        if self._sender is not None:
            self._sender.close()
            for sent in self._sender.results:
                for transfer in sent.ticket if sent.unknown or sent.error is None else ():
                    transfer.possible_duplicate = True
            self._sender = None
