"""One destination: its link, its pending messages, its batches in flight, and what its answers mean.

A destination never holds up another. While it backs off, its messages stay in the backlog under their locks: the lock
is the timer. While the service throttles it, its messages stay in flight, with renewed locks: they are sent ten seconds
later. A timeout for one session or partition key backs off that key alone: a partitioned entity has sixteen fragments,
and one of them may be unavailable. A batch that is refused is split until the faulty message is alone; the other
messages arrive once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from syphon.model import (
    DestinationBusy,
    DestinationDisabled,
    DestinationFailed,
    DestinationMissing,
    DestinationSilent,
    Impossible,
    Interrupted,
    MessageTooLarge,
    PausedByOperator,
    SyphonError,
    Waits,
)
from syphon.servicebus import Connection, LinkState, RawSender, Sent, ping_payload
from syphon.time_budget import SEND_ANSWER_WITHIN

from .breaker import FAILED_KEYS, Available, BackingOff, Breaker, FailingKeys, Key, Rejecting, State
from .connection_suspects import ENOUGH, Suspicion, Verdict
from .message_transfer import Batch, Chosen, MessageTransfer, split
from .unsent import MOST_IN_BATCH, NO_KEY, Unsent, encoded

STUCK, STUCK_AGAIN = 10.0, 1.0
"""Seconds for which messages may stay unsent before they are left in the backlog, which frees the window. The second
value applies after a failure, when success is unlikely."""
REFUSED_BATCHES = 4
"""How many batches in a row may be refused before messages are sent one by one."""
FAILED_SINGLES = 3
"""How many single messages in a row may fail before the destination counts as failed."""
MOST_THROTTLED = 0.5
"""The share of the window that messages of throttled destinations may fill. The rest is for other destinations."""


LOCK_EXPIRES = "Its lock had expired, or was about to, before it could be sent."


class WindowShare(NamedTuple):
    """How much may be in flight to one destination: its share of the pump's window. One batch is always allowed."""

    messages: int
    bytes: int
    throttled: int = 0
    """How many of its messages may stay in flight while it is throttled."""
    may_open_link: bool = True
    """Whether it may open a link if it has none."""
    may_send: bool = True
    """False while another destination is isolated, or this one waits for its turn."""


class Answer(NamedTuple):
    """The answer of a destination to a batch."""

    batch: Batch
    seconds: float
    """How long it took."""
    error: SyphonError | None


class Left(NamedTuple):
    """A message that was not accepted, and why."""

    transfer: MessageTransfer
    error: SyphonError
    may_defer: bool = True
    """False if only its key or its lock is the cause: nothing tells when to fetch it again."""


@dataclass(slots=True)
class SendResults:
    """The results of one round of work."""

    accepted: list[MessageTransfer] = field(default_factory=list)
    refused: list[tuple[MessageTransfer, SyphonError]] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    sent: int = 0
    """Messages that were sent in this round."""
    busy: int = 0
    """The messages of the largest batch that the service refused with busy, 1 if it refused a link. 0: it did not, or
    for this entity alone."""
    answers: list[Answer] = field(default_factory=list)


class Destination:
    """A queue or topic of the primary."""

    def __init__(self, path: str, permanent: frozenset[type[SyphonError]], unsent: Unsent | None = None) -> None:
        """`unsent` decides in which order messages are sent."""
        self.path = path
        self.breaker = Breaker(path, permanent)
        self.suspicion = Suspicion()
        self.is_paused = False
        """The operator paused it, whatever its state."""
        self.has_accepted = False
        """Whether it has accepted a message or a ping, and has not failed since."""
        self.has_recovered = False
        """Whether it had failed before that."""
        self.used_at = 0.0
        self.left = 0
        """How many of its messages stayed in the backlog since it last accepted one."""
        self._wants_ping = False
        """A ping is to show whether it is available."""
        self._sender: RawSender[Batch] | None = None
        self._unsent = Unsent() if unsent is None else unsent
        self._messages_in_flight = self._bytes_in_flight = 0
        self._stuck_since: float | None = None
        self._careful = False
        """A message that is to be sent again may have caused a failure: send one batch at a time, to find it."""
        self._refused_batches = 0
        self._failed_singles = 0
        self._keys = FailingKeys()
        self._proven = MOST_IN_BATCH
        """How many messages a batch may have: after a busy answer as many as were accepted since."""
        self._busy = 0
        """The messages of the largest batch since the last round that the service refused with busy."""

    @property
    def state(self) -> State:
        return self.breaker.state

    def defers(self, now: float) -> bool:
        """Whether the messages that it leaves are deferred: it is paused or unavailable, and not only one key of it."""
        return self.is_paused or isinstance(self.breaker.state_at(now), BackingOff)

    def pause(self, is_paused: bool) -> None:
        """Pauses the destination, or ends the pause, as the operator asked."""
        self.is_paused = is_paused

    # --- pending messages ----------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Messages that had to wait for others may be sent."""
        self._unsent.wake()

    def offer(self, transfer: MessageTransfer) -> None:
        if self.suspicion.waiting and transfer.key in self.suspicion.waiting:
            self._unsent.again.append([transfer])
        else:
            self._unsent.pending.add(transfer)

    def ping(self) -> None:
        """Finds out without a message whether it is available: with an attach, and a ping if that is not refused."""
        self._wants_ping = not (self._unsent.has_next() or self.awaits_answer)

    def has_work(self) -> bool:
        """Whether there is something to send, or an answer to wait for."""
        return bool(self._unsent) or self.will_answer()

    def will_answer(self) -> bool:
        """Whether an answer is to come: to a message that may be sent, to a ping, or to what is in flight."""
        sender = self._sender
        return bool(
            self._wants_ping
            or self._unsent.has_next()
            or (sender is not None and (sender.results or sender.awaits_answer_since() is not None))
        )

    @property
    def unsent(self) -> int:
        """How many messages wait to be sent."""
        return len(self._unsent)

    def has_link(self) -> bool:
        return self._sender is not None

    def can_spare_its_link(self) -> bool:
        """Whether its link can be closed: it has nothing to send, or must not send for ten seconds."""
        sender = self._sender
        is_idle = not (self._unsent or self._wants_ping) or self.breaker.is_throttled
        return sender is not None and is_idle and not (sender.in_flight or sender.results)

    @property
    def awaits_answer(self) -> bool:
        """Whether it owes an answer to a batch or an attach."""
        sender = self._sender
        return sender is not None and (bool(sender.in_flight) or sender.state is LinkState.ATTACHING)

    def wants_isolation(self, now: float) -> bool:
        """Whether it is suspected of cutting the connection, and has something to send."""
        suspicion = self.suspicion
        return (
            suspicion.limit is not None
            and now >= suspicion.not_before
            and (self._unsent.has_next() or self._wants_ping)
            and not self.is_paused
            and isinstance(self.breaker.state_at(now), Available)
        )

    # --- a round of work -----------------------------------------------------------------------------------------

    def work(
        self, connection: Connection | None, now: float, share: WindowShare, room: int | None = None
    ) -> SendResults:
        """Sends what can be sent, and returns the answers that have arrived.

        `room` is how many messages the congestion control allows now; None means any number.
        """
        results = SendResults()
        self._collect(results, now)
        if self.suspicion.waiting:
            self._leave_waiting(results, now)
        if self._keys:
            self._leave_failing_keys(results, now)
        state = self.breaker.state_at(now)
        if self.is_paused:
            self._leave_all(results, PausedByOperator())
        elif isinstance(state, BackingOff) and self.breaker.is_throttled:
            if self.breaker.busy_in_a_row > 1:  # it may take longer, and other destinations need the window
                self._leave_excess(results, state.because, share.throttled)
            self._stuck_since = None
        elif isinstance(state, BackingOff):
            self._leave_all(results, state.because)
            self._stuck_since = None  # the next attempt gets the full time
        elif isinstance(state, Rejecting):
            self._refuse_all(results, state.because)
        elif not share.may_send:
            self._make_room(results, now)
        elif connection is not None and (self._unsent or self._wants_ping):
            self.used_at = now
            self._send(connection, results, now, share, room)
            self._leave_if_stuck(results, now)
        if not isinstance(state, Available):
            self._wants_ping = False
        self.left += len(results.left)
        results.busy, self._busy = self._busy, 0
        return results

    def _leave_if_stuck(self, results: SendResults, now: float) -> None:
        """Leaves pending messages that could not be sent for long: all destinations share one window."""
        if not (self._unsent.has_next() or self._wants_ping):
            return
        if self._stuck_since is None:
            self._stuck_since = now
        elif self._wants_ping and now - self._stuck_since > STUCK:
            self._wants_ping = False
            self._fail(DestinationSilent(f"'{self.path}' accepts nothing at the moment."), now)
        elif now - self._stuck_since > (STUCK_AGAIN if self.breaker.failures else STUCK):
            self._leave_all(results, DestinationSilent(f"'{self.path}' accepts nothing at the moment."))
            if self._sender is None:
                self._stuck_since = None  # the next link gets the full time

    def _send(
        self, connection: Connection, results: SendResults, now: float, share: WindowShare, room: int | None
    ) -> None:
        try:
            if self._sender is None:
                if not share.may_open_link or not connection.tokens.allow(self.path):
                    return
                self._sender = RawSender(connection.wire, self.path)
        except SyphonError as error:
            self._fail(error, now)
            return
        sender = self._sender
        if not self._unsent.again and not sender.in_flight:
            self._careful = False
        most = MOST_IN_BATCH if room is None else room
        while sender.has_room() and self._may_send(sender, share):
            if most <= 0:
                self._stuck_since = None  # it waits for the congestion control, and the destination is not to blame
                return
            if self.suspicion.limit is not None and self._unsent:
                batch = self._next_isolated(sender, min(most, self.suspicion.limit))
            else:
                batch = self._next_batch(sender, 1 if self.breaker.busy_in_a_row else min(most, self._proven))
            if not batch:
                if self._wants_ping and not sender.in_flight:
                    self._wants_ping = False
                    self.suspicion.was_tried = True
                    sender.send(ping_payload(), 0, [])
                return
            if any(transfer.is_late for transfer in batch):  # the process stalled, or the message was redelivered
                late, batch = split(batch, lambda transfer: transfer.is_late)
                expired = Interrupted(LOCK_EXPIRES)
                results.left += [Left(transfer, expired, may_defer=False) for transfer in late]
                if not self._unsent.may_skip(batch):
                    continue
            size = batch[0].restored.size
            if size > sender.max_size:
                self._handle(Sent(batch, self._too_large(size, sender.max_size)), results, now)
                continue
            payload, message_format = encoded(batch)
            sender.send(payload, message_format, batch)
            self.suspicion.was_tried = True
            self._messages_in_flight += len(batch)
            self._bytes_in_flight += _size(batch)
            self._stuck_since = None
            results.sent += len(batch)
            if room is not None:
                most -= len(batch)

    def _may_send(self, sender: RawSender[Batch], share: WindowShare) -> bool:
        """Whether another batch may be sent now. After a failure only one is in flight, to see whether it arrives."""
        if not sender.in_flight:
            return True
        if self.breaker.attempts or self._careful or self.suspicion.limit is not None:
            return False
        return self._messages_in_flight < share.messages and self._bytes_in_flight < share.bytes

    def _next_batch(self, sender: RawSender[Batch], most: int) -> Batch:
        """The next messages to send together, at most `most`.

        After a single message has failed it is one message from the middle of the largest batch: it shows whether the
        destination accepts anything at all. The messages next to the failed one may have the same fault.
        """
        return self._unsent.next_batch(sender, most, from_the_middle=self._failed_singles > 0)

    def _too_large(self, size: int, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"The message has {size} bytes; '{self.path}' accepts at most {limit}.", "amqp:link:message-size-exceeded"
        )

    # --- answers -------------------------------------------------------------------------------------------------

    def _collect(self, results: SendResults, now: float) -> None:
        sender = self._sender
        if sender is None:
            return
        since = sender.awaits_answer_since()
        if since is None and sender.state is LinkState.OPEN and not sender.has_room():
            since = self._stuck_since  # there is no credit to send
        if since is not None and now - since > SEND_ANSWER_WITHIN:
            sender.close()
            self._fail(DestinationSilent(f"'{self.path}' has not answered for {SEND_ANSWER_WITHIN:.0f} seconds."), now)
        error = sender.error
        connection_is_lost = sender.state is LinkState.LOST and sender.wire.failure is not None
        if connection_is_lost:
            self._take_results(sender, results, now, before_loss=True)
            self._lose_connection(sender, now)
        elif sender.was_open and isinstance(error, Impossible | DestinationFailed):
            error = self._find_cause(sender, error)
        self._take_results(sender, results, now)
        if sender.state is LinkState.LOST:
            self._sender = self._stuck_since = None
            if error is not None and isinstance(self.state, Available) and not connection_is_lost:
                self._fail(error, now)

    def _take_results(
        self, sender: RawSender[Batch], results: SendResults, now: float, before_loss: bool = False
    ) -> None:
        """Handles the outcomes of batches; with `before_loss` only answers that came before the connection was lost."""
        while sender.results and not (before_loss and sender.results[0].unknown):
            sent = sender.results.popleft()
            self._messages_in_flight -= len(sent.ticket)
            self._bytes_in_flight -= _size(sent.ticket)
            if sent.unknown:
                _may_have_arrived(sent.ticket)
            else:
                results.answers.append(Answer(sent.ticket, sent.seconds, sent.error))
                self.suspicion.answered(bool(self._unsent.again))
            self._handle(sent, results, now)

    def _find_cause(self, sender: RawSender[Batch], error: SyphonError) -> SyphonError | None:
        """Finds out whether one message made the service end a link that had worked.

        The reason may be about the entity (then the next attach is refused), about one message, or out of date. If one
        batch was in flight, the error is its answer. If several were, it is unknown which one caused it: they are sent
        one at a time from now on, and the error counts as a broken link.
        """
        self._careful = True
        unknown = [sent for sent in sender.results if sent.unknown]
        if len(unknown) != 1:
            return Interrupted(str(error), error.condition)
        sender.results.remove(unknown[0])
        _may_have_arrived(unknown[0].ticket)
        sender.results.append(Sent(unknown[0].ticket, error))
        return None

    def _handle(self, sent: Sent[Batch], results: SendResults, now: float) -> None:
        batch, error = sent.ticket, sent.error
        if (
            not batch
            and isinstance(error, Impossible)
            and not isinstance(error, DestinationMissing | DestinationDisabled)
        ):
            error = None  # it has refused the ping, but not messages
        if error is None:
            if self.suspicion.waiting:
                for transfer in batch:
                    self.suspicion.waiting.pop(transfer.key, None)
            self.has_recovered = self.has_recovered or self.breaker.failures > 0
            self.breaker.worked()
            self._proven = min(MOST_IN_BATCH, self._proven + len(batch))
            if self._keys and batch:
                self._keys.worked(_key(batch))
            self.has_accepted = True
            self.left = self._failed_singles = 0
            self._stuck_since = None
            if len(batch) > 1:
                self._refused_batches = 0
            results.accepted += batch
            self._unsent.accepted(batch)
        elif not batch:
            self._fail(error, now)
        elif sent.unknown and self._has_lost_its_link():
            # An unknown outcome counts as not sent: send again, with the same message id (D10).
            if self.suspicion.limit is None:
                self._unsent.again.append(batch)
            else:
                self._unsent.again.appendleft(batch)  # the cause may be in it
        elif isinstance(error, DestinationBusy):
            self._fail(error, now)
            self._proven = 1
            if self._busy:
                self._busy = max(self._busy, len(batch))
            self._unsent.again.appendleft(batch)
        elif isinstance(error, DestinationSilent) and _key(batch) != NO_KEY:
            if not self._is_one_key_to_blame(batch, now):
                self._fail(error, now)
            results.left += [Left(transfer, error, may_defer=False) for transfer in batch]
        elif not isinstance(error, Impossible | DestinationFailed):
            self._fail(error, now)
            results.left += [Left(transfer, error) for transfer in batch]
        elif len(batch) == 1:
            self._handle_single(batch[0], error, results, now)
        elif isinstance(error, Impossible):
            self._split(batch)
        else:
            self._unsent.again_in_halves_first(batch)  # the first half soon shows whether it accepts anything
            self._careful = True

    def _has_lost_its_link(self) -> bool:
        return self._sender is None or self._sender.state is LinkState.LOST

    def _handle_single(self, transfer: MessageTransfer, error: SyphonError, results: SendResults, now: float) -> None:
        """Handles a message that failed alone. If the next ones fail too, the cause is the destination."""
        if self.breaker.is_permanent(error):
            results.refused.append((transfer, error))
            return
        results.left.append(Left(transfer, error))
        if isinstance(error, MessageTooLarge):
            return  # however many fail: the cause is the messages
        self._failed_singles += 1
        if self._failed_singles >= FAILED_SINGLES or isinstance(error, DestinationMissing | DestinationDisabled):
            self._failed_singles = 0
            self._fail(error, now)

    def _split(self, batch: Batch) -> None:
        """Sends a batch again in halves, to find the faulty message.

        After several refused batches in a row messages go one by one: a partitioned entity with duplicate detection
        accepts no batch, because each message has a key of its own, its id (S8).
        """
        self._refused_batches += 1
        if self._refused_batches >= REFUSED_BATCHES:
            self._unsent.pending.batch_limit = 1
        self._unsent.again_in_parts_last(batch)

    def _fail(self, error: SyphonError, now: float) -> None:
        self.breaker.failed(error, now)
        self.has_accepted = self.has_recovered = False
        self._stuck_since = None
        if isinstance(error, DestinationBusy) and self.breaker.busy_in_a_row == 1:
            self._busy = max(self._busy, 1)  # later ones say nothing new about the namespace: only this entity is busy

    # --- one key -------------------------------------------------------------------------------------------------

    def _is_one_key_to_blame(self, batch: Batch, now: float) -> bool:
        """Backs off the key of a batch that timed out. False if the destination is to blame: several keys in a row."""
        return self._keys.failed(_key(batch), now) < FAILED_KEYS

    def _leave_failing_keys(self, results: SendResults, now: float) -> None:
        """Leaves the messages of keys that back off."""
        because = DestinationSilent(f"'{self.path}' does not answer for the session or partition key of this message.")
        for transfer in self.take_unsent(lambda transfer: self._keys.is_backing_off(_key([transfer]), now)):
            results.left.append(Left(transfer, because, may_defer=False))

    # --- what cuts the connection --------------------------------------------------------------------------------

    def _lose_connection(self, sender: RawSender[Batch], now: float) -> None:
        """Tells the suspicion of the loss, and backs off if the destination is to blame.

        `_handle` sends the messages again, except the ones that `_leave_waiting` leaves.
        """
        unknown = [sent for sent in sender.results if sent.unknown]
        if not unknown and sender.was_open:
            return  # it had nothing in flight, so it is not the cause
        keys = [transfer.key for sent in unknown for transfer in sent.ticket]
        if self.suspicion.lost(keys, now, self.breaker.failures > 0) is Verdict.DESTINATION:
            self.breaker.cut_off(now)
            self._stuck_since = None

    def _leave_waiting(self, results: SendResults, now: float) -> None:
        """Leaves messages that have cut the connection in the backlog, until it is time to retry them, alone."""
        waiting, keep = self.suspicion.waiting, deque[Batch]()
        for batch in self._unsent.again:
            until, _ = waiting.get(batch[0].key, (0.0, 0)) if len(batch) == 1 else (0.0, 0)
            if now < until:
                because = Waits(f"The connection was lost when this message was sent to '{self.path}'.")
                results.left.append(Left(batch[0], because))
            else:
                if until:
                    self.suspicion.allow_retry()
                keep.append(batch)
        self._unsent.again = keep

    def _make_room(self, results: SendResults, now: float) -> None:
        """Leaves excess messages of a suspected destination in the backlog until its turn.

        As many stay in flight as the next attempts need. Without them the pump would find its queues quiet, and end.
        """
        if now < self.suspicion.not_before and len(self._unsent.pending) > ENOUGH:
            because = Waits(f"The connection was lost when messages were sent to '{self.path}'.")
            results.left += [Left(transfer, because) for transfer in self._unsent.take_pending_after(ENOUGH)]

    def _next_isolated(self, sender: RawSender[Batch], limit: int) -> Batch:
        """The messages that are tried now; the others are sent later."""
        first = self.suspicion.first_of(len(self._unsent), self.breaker.failures)
        if first is not None:
            return self._unsent.take_number(first)
        return self._unsent.first_part(self._next_batch(sender, limit), limit)

    # --- the end -------------------------------------------------------------------------------------------------

    def _leave_all(self, results: SendResults, because: SyphonError) -> None:
        results.left += [Left(transfer, because) for transfer in self.take_unsent()]

    def _leave_excess(self, results: SendResults, because: SyphonError, most: int) -> None:
        """Leaves the messages of a throttled destination that do not fit into its share of the window."""
        if most and len(self._unsent) > most:
            results.left += [Left(transfer, because) for transfer in self._unsent.take_pending_after(most)]

    def _refuse_all(self, results: SendResults, because: SyphonError) -> None:
        results.refused += [(transfer, because) for transfer in self.take_unsent()]

    def take_unsent(self, chosen: Chosen = None) -> list[MessageTransfer]:
        """Removes and returns the messages that were not sent: all, or the chosen ones."""
        return self._unsent.take(chosen)

    def close(self) -> None:
        """Closes the link. Messages in flight that were not refused may have arrived: they are possible duplicates."""
        if self._sender is not None:
            self._sender.close()
            for sent in self._sender.results:
                if sent.unknown or sent.error is None:
                    _may_have_arrived(sent.ticket)
            self._sender = self._stuck_since = None
            self._messages_in_flight = self._bytes_in_flight = 0


def _key(batch: Batch) -> Key:
    first = batch[0].restored
    return first.session_id, first.partition_key


def _size(batch: Batch) -> int:
    return sum(transfer.restored.size for transfer in batch)


def _may_have_arrived(batch: Batch) -> None:
    for transfer in batch:
        transfer.possible_duplicate = True
