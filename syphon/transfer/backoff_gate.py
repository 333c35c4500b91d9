"""The gate of a listener: it knows which destinations back off, and so which messages are worth a job (D16).

A pump finds that a destination is full or throttled, and ends. The next pump must not try that destination at once,
and a message for it is no reason to start one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from syphon.backlog import destination_of
from syphon.model import EntityPath, Renames, RetryPolicy
from syphon.time_budget import LONGEST_DESTINATION_DELAY

from .destinations import DestinationBackoff

log = logging.getLogger(__name__)

MOST_REMEMBERED = 2000
"""Destinations that are remembered, so that each back-off is logged once. With more, only those that still back off."""


class Gate(Protocol):
    """Knows which destinations back off or are paused. Other threads may change its answers at any time."""

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:
        """Whether a message can be moved now: to its destination, or to the dead letters."""

    def can_move(self, destination: str) -> bool:
        """Whether a destination (the key of an `EntityPath`) neither backs off nor is paused."""

    def has_failed(self, destination: str) -> bool:
        """Whether a destination (the key of an `EntityPath`) has failed, and not worked since."""

    def destination_of(self, payload: bytes) -> EntityPath | None:
        """The destination that a message goes to; None if the message names none."""


class OpenGate:
    """A gate for an owner that knows of no back-offs: every message can be moved."""

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:  # noqa: ARG002
        return True

    def can_move(self, destination: str) -> bool:  # noqa: ARG002
        return True

    def has_failed(self, destination: str) -> bool:  # noqa: ARG002
        return False

    def destination_of(self, payload: bytes) -> EntityPath | None:
        return destination_of(payload)


class BackoffGate:
    """The destinations of one pair that back off, each until a moment. Safe for threads."""

    def __init__(self, name: str, now: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._now = now
        self._until: dict[str, tuple[float, DestinationBackoff]] = {}
        self._lock = threading.Lock()
        self.renames = Renames()
        """Where messages go instead of the destinations that they name. Its owner may replace it at any time."""

        self.target: EntityPath | None = None
        """Where all messages go, whatever they name: in a move."""

    def record(self, found: Iterable[DestinationBackoff]) -> None:
        """Remembers back-offs that a pump has found. Logs those that are new.

        Each failure in a row doubles the delay (S9), and a new pump does not know of the failures before it. So a
        failure after the end of a back-off counts as the next one, unless the destination has worked in between
        (`forget`).
        """
        for reported in found:
            if reported.seconds <= 0:
                continue  # it is over
            with self._lock:
                now = self._now()
                known = self._until.get(EntityPath.of(reported.path).key)
                is_next = known is not None and known[0] <= now
                destination = _next_failure(known[1], reported) if known is not None and is_next else reported
                until = now + destination.seconds
                if known is None or until > known[0]:
                    self._until[EntityPath.of(destination.path).key] = until, destination
                if len(self._until) > MOST_REMEMBERED:
                    self._until = {path: held for path, held in self._until.items() if held[0] > self._now()}
            if destination.is_throttled:
                continue  # not unavailable: the rate limit says it
            if known is None or known[1].reason != destination.reason:
                # The first report may come before the messages are abandoned: then their number is not known yet.
                log.warning(
                    "%s: destination %s is unavailable: %s; %s stay in the backlog; retrying in %.0f s",
                    self._name,
                    destination.path,
                    destination.reason.rstrip("."),
                    f"at least {destination.left:,}" if destination.left else "its messages",
                    destination.seconds,
                )

    def backing_off(self) -> tuple[DestinationBackoff, ...]:
        """The destinations that still back off, and for how long."""
        with self._lock:
            moment = self._now()
            return tuple(
                known._replace(seconds=until - moment) for until, known in self._until.values() if until > moment
            )

    def failing(self) -> tuple[DestinationBackoff, ...]:
        """The destinations that back off, or did when a pump last tried them. The time may be over: 0 seconds."""
        with self._lock:
            moment = self._now()
            return tuple(known._replace(seconds=max(0.0, until - moment)) for until, known in self._until.values())

    def retry(self, path: str) -> bool:
        """Ends the back-off of a destination: it has failed, and may be tried. False if it does not back off."""
        key = EntityPath.of(path).key
        with self._lock:
            now, known = self._now(), self._until.get(key)
            if known is None or known[0] <= now or known[1].is_throttled:
                return False
            self._until[key] = now, known[1]
            return True

    def forget(self, path: str) -> None:
        """The destination has accepted a message."""
        with self._lock:
            self._until.pop(EntityPath.of(path).key, None)

    def is_worth_a_job(self, queue: str, payload: bytes) -> bool:  # noqa: ARG002
        """Whether a message can be moved now. A message without a destination can: to the dead letters."""
        destination = self.destination_of(payload) if self._until else None
        return destination is None or self.can_move(destination.key)

    def destination_of(self, payload: bytes) -> EntityPath | None:
        """The destination that a message goes to; None if the message names none."""
        if self.target is not None:
            return self.target
        named = destination_of(payload)
        return None if named is None else self.renames.actual(named)

    def has_failed(self, destination: str) -> bool:
        """Whether a destination (the key of its path) has failed, and not worked since."""
        with self._lock:
            return destination in self._until

    def can_move(self, destination: str) -> bool:
        """Whether a destination (the key of its path) does not back off.

        A throttled one counts as available: a pump keeps its messages in flight for the ten seconds.
        """
        with self._lock:
            known = self._until.get(destination)
            return known is None or known[0] <= self._now() or known[1].is_throttled


def _next_failure(known: DestinationBackoff, reported: DestinationBackoff) -> DestinationBackoff:
    """The report of a pump that may not know how often the destination has failed before."""
    if reported.failures > known.failures or reported.is_throttled:
        return reported
    missing = known.failures + 1 - reported.failures
    policy = RetryPolicy(first=reported.seconds, longest=LONGEST_DESTINATION_DELAY)
    seconds = max(reported.seconds, policy.delay(missing))
    return reported._replace(failures=known.failures + 1, seconds=seconds)
