"""One destination: its link, its pending messages, its batches under way, and what its answers mean.

A destination never holds up another. While it backs off, its messages stay in the backlog under their locks: the lock
is the timer. A batch that is refused is split until the faulty message is alone; the other messages arrive once.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from syphon.bus import Connection, LinkState, RawSender, Sent, ping_payload
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

from .batches import Batch, Chosen, MessageTransfer, encoded, split
from .breaker import Available, BackingOff, Breaker, Rejecting, State
from .suspicion import ENOUGH, Suspicion, Verdict
from .unsent import Unsent

ANSWER_WITHIN = 60.0
"""Seconds a destination has to answer a batch."""
STUCK, STUCK_AGAIN = 10.0, 1.0
"""Seconds after which pending messages are left in the backlog if none could be sent: they take the room of others. The
second value applies after a failure, when success is unlikely."""
REFUSED_BATCHES = 4
"""How many batches in a row may be refused before messages are sent one by one."""
FAILED_SINGLES = 3
"""How many single messages in a row may fail before the destination counts as failed."""


class WindowShare(NamedTuple):
    """How much may be under way to one destination: its share of the pump's window. One batch is always allowed."""

    messages: int
    bytes: int


NO_LINK = WindowShare(0, 0)
"""The share of a destination that has no link and gets none now."""
HELD = WindowShare(0, 0)
"""The share of a destination that must not send now: another one is tried alone, or it waits for its own trial. It is
compared by identity: it equals NO_LINK."""


class Answer(NamedTuple):
    """The answer of a destination to a batch."""

    batch: Batch
    seconds: float
    """How long it took."""
    error: SyphonError | None


@dataclass(slots=True)
class SendResults:
    """The results of one round of work."""

    accepted: list[MessageTransfer] = field(default_factory=list)
    refused: list[tuple[MessageTransfer, SyphonError]] = field(default_factory=list)
    left: list[tuple[MessageTransfer, SyphonError]] = field(default_factory=list)
    late: list[MessageTransfer] = field(default_factory=list)
    """Not sent, because their locks have run out, or are about to."""
    answers: list[Answer] = field(default_factory=list)


class Destination:
    """A queue or topic of the primary."""

    def __init__(self, path: str, permanent: frozenset[type[SyphonError]]) -> None:
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
        self._unsent = Unsent()
        self._messages_under_way = self._bytes_under_way = 0
        self._stuck_since: float | None = None
        self._careful = False
        """A message that is to be sent again may have caused a failure: send one batch at a time, to find it."""
        self._refused_batches = 0
        self._failed_singles = 0

    @property
    def state(self) -> State:
        return self.breaker.state

    def defers(self, now: float) -> bool:
        """Whether its messages are set aside in the backlog: it is paused or unavailable, and not only busy (S5)."""
        state = self.breaker.state_at(now)
        return self.is_paused or (isinstance(state, BackingOff) and not isinstance(state.because, DestinationBusy))

    def pause(self, is_paused: bool) -> None:
        """Pauses the destination, or ends the pause, as the operator asked."""
        self.is_paused = is_paused

    # --- pending messages ----------------------------------------------------------------------------------------

    def offer(self, transfer: MessageTransfer) -> None:
        if self.suspicion.waiting and transfer.key in self.suspicion.waiting:
            self._unsent.again.append([transfer])
        else:
            self._unsent.pending.add(transfer)

    def ping(self) -> None:
        """Finds out without a message whether it is available: with an attach, and a ping if that is not refused."""
        self._wants_ping = not (self._unsent or self.is_under_way)

    def has_work(self) -> bool:
        """Whether there is something to send, or an answer to wait for."""
        sender = self._sender
        return bool(
            self._wants_ping
            or self._unsent
            or (sender is not None and (sender.results or sender.awaits_answer_since() is not None))
        )

    def has_link(self) -> bool:
        return self._sender is not None

    def can_spare_its_link(self) -> bool:
        sender = self._sender
        return sender is not None and not (self._unsent or self._wants_ping or sender.under_way or sender.results)

    @property
    def is_under_way(self) -> bool:
        """Whether it owes an answer to a batch or an attach."""
        sender = self._sender
        return sender is not None and (bool(sender.under_way) or sender.state is LinkState.ATTACHING)

    def wants_trial(self, now: float) -> bool:
        """Whether it is suspected of cutting the connection, and has something to send."""
        suspicion = self.suspicion
        return (
            suspicion.limit is not None
            and now >= suspicion.not_before
            and (bool(self._unsent) or self._wants_ping)
            and not self.is_paused
            and isinstance(self.breaker.state_at(now), Available)
        )

    # --- a round of work -----------------------------------------------------------------------------------------

    def work(self, connection: Connection | None, now: float, share: WindowShare) -> SendResults:
        """Sends what can be sent, and returns the answers that have arrived."""
        results = SendResults()
        self._collect(results, now)
        if self.suspicion.waiting:
            self._leave_waiting(results, now)
        state = self.breaker.state_at(now)
        if self.is_paused:
            self._leave_all(results, PausedByOperator())
        elif isinstance(state, BackingOff):
            self._leave_all(results, state.because)
            self._stuck_since = None  # the next try gets the full time
        elif isinstance(state, Rejecting):
            self._refuse_all(results, state.because)
        elif share is HELD:
            self._make_room(results, now)
        elif connection is not None and (self._unsent or self._wants_ping):
            self.used_at = now
            self._send(connection, results, now, share)
            self._leave_if_stuck(results, now)
        if not isinstance(state, Available):
            self._wants_ping = False
        self.left += len(results.left)
        return results

    def _leave_if_stuck(self, results: SendResults, now: float) -> None:
        """Leaves pending messages that could not be sent for long: all destinations share one window."""
        if not (self._unsent or self._wants_ping):
            return
        if self._stuck_since is None:
            self._stuck_since = now
        elif self._wants_ping and now - self._stuck_since > STUCK:
            self._wants_ping = False
            self._fail(DestinationSilent(f"'{self.path}' takes nothing at the moment."), now)
        elif now - self._stuck_since > (STUCK_AGAIN if self.breaker.failures else STUCK):
            self._leave_all(results, DestinationSilent(f"'{self.path}' takes nothing at the moment."))
            if self._sender is None:
                self._stuck_since = None  # the next link gets the full time

    def _send(self, connection: Connection, results: SendResults, now: float, share: WindowShare) -> None:
        try:
            if self._sender is None:
                if share is NO_LINK or not connection.tokens.allow(self.path):
                    return
                self._sender = RawSender(connection.wire, self.path)
        except SyphonError as error:
            self._fail(error, now)
            return
        sender = self._sender
        if not self._unsent.again and not sender.under_way:
            self._careful = False
        while sender.has_room() and self._may_send(sender, share):
            if self.suspicion.limit is not None and self._unsent:
                batch = self._next_for_trial(sender, self.suspicion.limit)
            else:
                batch = self._next_batch(sender)
            if not batch:
                if self._wants_ping and not sender.under_way:
                    self._wants_ping = False
                    self.suspicion.was_tried = True
                    sender.send(ping_payload(), 0, [])
                return
            if any(transfer.is_late for transfer in batch):  # the process stood still, or the message came again
                late, batch = split(batch, lambda transfer: transfer.is_late)
                results.late += late
                if not batch:
                    continue
            size = batch[0].restored.size
            if size > sender.max_size:
                self._handle(Sent(batch, self._too_large(size, sender.max_size)), results, now)
                continue
            payload, message_format = encoded(batch)
            sender.send(payload, message_format, batch)
            self.suspicion.was_tried = True
            self._messages_under_way += len(batch)
            self._bytes_under_way += _size(batch)
            self._stuck_since = None

    def _may_send(self, sender: RawSender[Batch], share: WindowShare) -> bool:
        """Whether another batch may be sent now. After a failure only one is under way, to see whether it arrives."""
        if not sender.under_way:
            return True
        if self.breaker.failures or self._careful or self.suspicion.limit is not None:
            return False
        return self._messages_under_way < share.messages and self._bytes_under_way < share.bytes

    def _next_batch(self, sender: RawSender[Batch]) -> Batch:
        """The next messages to send together.

        After a single message has failed it is one message from the middle of the largest batch: it shows whether the
        destination takes anything at all. The messages next to the failed one may have the same fault.
        """
        return self._unsent.next_batch(sender, from_the_middle=self._failed_singles > 0)

    def _too_large(self, size: int, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"The message has {size} bytes, and '{self.path}' takes {limit}.", "amqp:link:message-size-exceeded"
        )

    # --- answers -------------------------------------------------------------------------------------------------

    def _collect(self, results: SendResults, now: float) -> None:
        sender = self._sender
        if sender is None:
            return
        since = sender.awaits_answer_since()
        if since is None and sender.state is LinkState.OPEN and not sender.has_room():
            since = self._stuck_since  # there is no credit to send
        if since is not None and now - since > ANSWER_WITHIN:
            sender.close()
            self._fail(DestinationSilent(f"'{self.path}' has not answered for {ANSWER_WITHIN:.0f} seconds."), now)
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
            self._messages_under_way -= len(sent.ticket)
            self._bytes_under_way -= _size(sent.ticket)
            if sent.unknown:
                _may_have_arrived(sent.ticket)
            else:
                results.answers.append(Answer(sent.ticket, sent.seconds, sent.error))
                self.suspicion.answered(bool(self._unsent.again))
            self._handle(sent, results, now)

    def _find_cause(self, sender: RawSender[Batch], error: SyphonError) -> SyphonError | None:
        """Finds out whether one message made the service end a link that had worked.

        The reason may be about the entity (then the next attach is refused), about one message, or out of date. If one
        batch was under way, the error is its answer. If several were, it is unknown which one caused it: they are sent
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
            self.has_accepted = True
            self.left = self._failed_singles = 0
            self._stuck_since = None
            if len(batch) > 1:
                self._refused_batches = 0
            results.accepted += batch
        elif not batch:
            self._fail(error, now)
        elif sent.unknown and self._has_lost_its_link():
            # An unknown outcome counts as not sent: send again, with the same message id (D10).
            if self.suspicion.limit is None:
                self._unsent.again.append(batch)
            else:
                self._unsent.again.appendleft(batch)  # the cause may be in it
        elif not isinstance(error, Impossible | DestinationFailed):
            self._fail(error, now)
            results.left += [(transfer, error) for transfer in batch]
        elif len(batch) == 1:
            self._handle_single(batch[0], error, results, now)
        elif isinstance(error, Impossible):
            self._split(batch)
        else:
            self._unsent.again_in_halves_first(
                batch
            )  # the first half soon shows whether the destination takes anything
            self._careful = True

    def _has_lost_its_link(self) -> bool:
        return self._sender is None or self._sender.state is LinkState.LOST

    def _handle_single(self, transfer: MessageTransfer, error: SyphonError, results: SendResults, now: float) -> None:
        """Handles a message that failed alone. If the next ones fail too, the cause is the destination."""
        if self.breaker.is_permanent(error):
            results.refused.append((transfer, error))
            return
        results.left.append((transfer, error))
        if isinstance(error, MessageTooLarge):
            return  # however many fail: the cause is the messages
        self._failed_singles += 1
        if self._failed_singles >= FAILED_SINGLES or isinstance(error, DestinationMissing | DestinationDisabled):
            self._failed_singles = 0
            self._fail(error, now)

    def _split(self, batch: Batch) -> None:
        """Sends a batch again in halves, to find the faulty message.

        After several refused batches in a row messages go one by one: a partitioned entity with duplicate detection
        takes no batch, because each message has a key of its own, its id (S8).
        """
        self._refused_batches += 1
        if self._refused_batches >= REFUSED_BATCHES:
            self._unsent.pending.batch_limit = 1
        self._unsent.again_in_parts_last(batch)

    def _fail(self, error: SyphonError, now: float) -> None:
        self.breaker.failed(error, now)
        self.has_accepted = self.has_recovered = False
        self._stuck_since = None

    # --- what cuts the connection --------------------------------------------------------------------------------

    def _lose_connection(self, sender: RawSender[Batch], now: float) -> None:
        """Tells the suspicion of the loss, and backs off if the destination is to blame.

        `_handle` sends the messages again, except the ones that `_leave_waiting` leaves.
        """
        unknown = [sent for sent in sender.results if sent.unknown]
        if not unknown and sender.was_open:
            return  # it had nothing under way, so it is not the cause
        keys = [transfer.key for sent in unknown for transfer in sent.ticket]
        if self.suspicion.lost(keys, now, self.breaker.failures > 0) is Verdict.DESTINATION:
            self.breaker.cut_off(now)
            self._stuck_since = None

    def _leave_waiting(self, results: SendResults, now: float) -> None:
        """Leaves messages that have cut the connection in the backlog, until it is time to try them again, alone."""
        waiting, keep = self.suspicion.waiting, deque[Batch]()
        for batch in self._unsent.again:
            until, _ = waiting.get(batch[0].key, (0.0, 0.0)) if len(batch) == 1 else (0.0, 0.0)
            if now < until:
                because = Waits(f"The connection was lost when this message was sent to '{self.path}'.")
                results.left.append((batch[0], because))
            else:
                if until:
                    self.suspicion.try_again()
                keep.append(batch)
        self._unsent.again = keep

    def _make_room(self, results: SendResults, now: float) -> None:
        """Leaves messages of a destination that waits for its trial: they take the room of others.

        As many stay in hand as the next trials need. Without them the pump would find its queues quiet, and end.
        """
        if now < self.suspicion.not_before and len(self._unsent.pending) > ENOUGH:
            because = Waits(f"The connection was lost when messages were sent to '{self.path}'.")
            results.left += [(transfer, because) for transfer in self._unsent.take_pending_after(ENOUGH)]

    def _next_for_trial(self, sender: RawSender[Batch], limit: int) -> Batch:
        """The messages that are tried now; the others are sent later."""
        first = self.suspicion.first_of(len(self._unsent), self.breaker.failures)
        if first is not None:
            return self._unsent.take_number(first)
        return self._unsent.for_trial(self._next_batch(sender), limit)

    # --- the end -------------------------------------------------------------------------------------------------

    def _leave_all(self, results: SendResults, because: SyphonError) -> None:
        results.left += [(transfer, because) for transfer in self.take_unsent()]

    def _refuse_all(self, results: SendResults, because: SyphonError) -> None:
        results.refused += [(transfer, because) for transfer in self.take_unsent()]

    def take_unsent(self, chosen: Chosen = None) -> list[MessageTransfer]:
        """Removes and returns the messages that were not sent: all, or the chosen ones."""
        return self._unsent.take(chosen)

    def close(self) -> None:
        """Closes the link. Messages under way that were not refused may have arrived: they are possible duplicates."""
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
