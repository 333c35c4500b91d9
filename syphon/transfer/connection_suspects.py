"""Finds what cuts the connection: a destination, or one message. All destinations share one connection, so each loss
concerns them all, and says nothing about its cause.

A destination that had something in flight at two losses in a row, with no answer between them, is suspected; one that
has failed before, at the first loss. It is then isolated: first one message is sent, then more. An isolated attempt
waits a few seconds until nothing else is in flight. Then a loss shows its cause, and costs the other destinations no
duplicates; otherwise it shows nothing. If two single messages are lost, the destination backs off; if it has answered
while isolated, then after four. If a larger batch is lost, it is sent in halves, until the message that cuts the
connection is alone: that message waits, and the others arrive.

The next attempt after a back-off begins with other messages than the last one: those may have been to
blame, and not the destination. The number of its failures decides which. A new pump knows that number only while the
back-off lasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Protocol

from syphon.model import RetryPolicy
from syphon.time_budget import BETWEEN_SUSPECTS, ISOLATED_WITHIN

LOSSES = 2
"""A destination is suspected at this many losses in a row: connections break now and then."""
GROWTH = 4
"""After each answer the next isolated attempt may be this many times larger."""
ENOUGH = 100
"""Once attempts have this size, an answer clears the destination, unless a batch is still to be resent."""
LOST_ALONE, LOST_ALONE_AFTER_ANSWER = 2, 4
"""Single messages lost in a row before the destination is blamed. The second value applies if it has answered while
isolated: then some of its messages are more likely to blame."""
FAR = 0.618
"""How far the next message to try is from the last one, as a share of all messages. Several steps of this size are far
apart from each other, too: 0.62, 0.24, 0.85."""
FIRST_WAIT, LONGEST_WAIT = 30.0, 120.0
"""Seconds for which a message waits that has cut the connection; each time doubles them."""
_RETRIES = RetryPolicy(first=FIRST_WAIT, longest=LONGEST_WAIT)

MessageKey = tuple[str, int]
"""The queue of a message, and its sequence number there."""


class Verdict(Enum):
    """What a lost connection says about a destination that had something in flight."""

    NOTHING = auto()
    """Something else may have been the cause."""
    DESTINATION = auto()
    """The destination is unavailable: it backs off."""
    BATCH = auto()
    """The cause is in this batch, or is the destination: it is tried in halves."""
    MESSAGE = auto()
    """The message may be the cause: it waits, and the others are sent."""


class Suspicion:
    """Whether one destination cuts the connection, as far as is known."""

    def __init__(self) -> None:
        self.limit: int | None = None
        """The most messages of the next isolated attempt; None if the destination is not suspected."""
        self.is_alone = False
        """Nothing else was in flight when its attempt began."""
        self.was_tried = False
        """The attempt has sent something."""
        self.not_before = 0.0
        self.waiting: dict[MessageKey, tuple[float, int]] = {}
        """Messages that have cut the connection: when each may be retried, and how often it was lost."""
        self._losses = 0
        self._has_answered = False
        self._unproven: list[MessageKey] = []
        """Messages lost alone for the first time, since the last answer: they are the cause, or the destination is."""

    def suspect(self) -> None:
        """Tries the destination alone from now on, beginning with one message."""
        self.limit, self._has_answered = 1, False

    def allow_retry(self) -> None:
        """Sends one message at a time again, because one that may cut the connection has waited long enough."""
        if self.limit is None:
            self.suspect()
        self.limit = 1

    def answered(self, has_more: bool = False) -> None:
        """Notes an answer, whatever it says: the connection is still there.

        `has_more` says that something is still to be sent again. What cuts the connection may be in it, so the
        destination stays suspected. A batch has one session or partition key, so an attempt may be much smaller than
        its limit.
        """
        self._losses = 0
        self._unproven.clear()
        if self.limit is not None:
            self._has_answered = True
            if self.limit < ENOUGH:
                self.limit *= GROWTH
            elif not has_more:
                self.limit = None

    def lost(self, keys: Sequence[MessageKey], now: float, has_failed: bool) -> Verdict:
        """Notes a lost connection, and decides on the next attempt. A message that was lost alone has to wait.

        `keys` are the messages that were in flight to the destination; there are none if it was attaching.
        `has_failed` says that the destination has failed before: then it is suspected at once.
        """
        if self.limit is None:
            self._losses += 1
            if self._losses >= LOSSES or has_failed:
                self.suspect()
            return Verdict.NOTHING
        if not self.is_alone:
            return Verdict.NOTHING
        self.not_before = now + BETWEEN_SUSPECTS
        self.limit = max(1, len(keys) // 2)
        if len(keys) > 1:
            return Verdict.BATCH
        is_known = bool(keys) and keys[0] in self.waiting  # then its loss says nothing new about the destination
        if keys and (is_known or len(self._unproven) + 1 < self._lost_alone_to_blame):
            self._set_aside(keys[0], now)
            if not is_known:
                self._unproven.append(keys[0])
            return Verdict.MESSAGE
        if not self._has_answered:
            for key in self._unproven:
                del self.waiting[key]
        self._unproven.clear()
        self._has_answered = False  # whatever it accepted before, it is unavailable now
        return Verdict.DESTINATION

    @property
    def _lost_alone_to_blame(self) -> int:
        return LOST_ALONE_AFTER_ANSWER if self._has_answered else LOST_ALONE

    def _set_aside(self, key: MessageKey, now: float) -> None:
        """Lets a message wait that was lost alone."""
        _, times = self.waiting.get(key, (0.0, 0))
        self.waiting[key] = now + _RETRIES.delay(times), times + 1

    def first_of(self, messages: int, failures: int) -> int | None:
        """The index of the message to try first; None if any will do.

        Until the destination has answered, each try begins with another one. After a message was lost alone, the next
        one is far from it: its neighbours may be to blame too, and the destination must not be blamed for them.
        """
        if self.limit != 1 or not messages or (self._has_answered and not self._unproven):
            return None
        return (failures + int(len(self._unproven) * FAR * messages)) % messages


class Suspect(Protocol):
    """What the isolation needs of a destination."""

    suspicion: Suspicion

    @property
    def awaits_answer(self) -> bool:
        """Whether it owes an answer to a batch or an attach."""

    def wants_isolation(self, now: float) -> bool:
        """Whether it is suspected, and has something to send."""

    def has_link(self) -> bool: ...


class Isolation:
    """Lets suspected destinations send one at a time, with nothing else in flight."""

    def __init__(self) -> None:
        self._current: Suspect | None = None
        self._since = 0.0
        self._waiting_since: float | None = None
        self._others_wait = False

    def begin_round(self, busy: Iterable[Suspect], room_for_links: int, now: float) -> None:
        """Decides which destinations may send in this round."""
        current = self._current
        if current is not None:
            suspicion = current.suspicion
            is_over = suspicion.limit is None or (suspicion.was_tried and not current.awaits_answer)
            if not is_over and now - self._since <= ISOLATED_WITHIN:
                return
            if not is_over:
                suspicion.not_before = now + ISOLATED_WITHIN  # it must not hold up the others again at once
            self.end()
        wanting = [suspect for suspect in busy if suspect.wants_isolation(now)]
        ready = [suspect for suspect in wanting if suspect.has_link() or room_for_links > 0]
        self._others_wait = bool(ready)
        if not ready:
            self._waiting_since = None
            return
        if self._waiting_since is None:
            self._waiting_since = now
        is_alone = not any(other.awaits_answer for other in busy)
        if is_alone or now - self._waiting_since > ISOLATED_WITHIN:
            self._current, self._since, self._waiting_since = ready[0], now, None
            ready[0].suspicion.is_alone, ready[0].suspicion.was_tried = is_alone, False

    @property
    def is_active(self) -> bool:
        return self._current is not None

    def may_send(self, destination: Suspect) -> bool:
        if destination.suspicion.limit is not None:
            return destination is self._current
        return not self._others_wait

    def end(self) -> None:
        """Ends the current attempt: it was answered, took too long, or lost the connection."""
        if self._current is not None:
            self._current.suspicion.is_alone = False
        self._current, self._others_wait = None, False
