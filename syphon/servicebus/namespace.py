"""One namespace of a pair: its status (`Lifecycle`), and a connection that is opened and reopened in the background.

Opening takes half a second at best and half a minute at worst. The user does not wait for it: it asks for the
connection in each turn of its loop, and gets None until there is one. That is an outage and not a fault (C3): the
namespace stays `opened`, and `error` says why it cannot be reached. It is `faulted` when it can no longer be used;
then asking for the connection raises the reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from syphon.model import DestinationUnreachable, Faulted, Interrupted, SyphonError, Waits
from syphon.time_budget import GIVE_UP_OPENING_AFTER, LONGEST_RECONNECT_DELAY, REACHED_ELSEWHERE_FOR

from .backoff import Backoff

if TYPE_CHECKING:  # an application imports this to send, and most never open a connection of ours
    from .connection import Connection


class NamespaceStatus(StrEnum):
    """The states of a namespace (C1)."""

    OPENED = "opened"
    CLOSING = "closing"
    CLOSED = "closed"
    FAULTED = "faulted"


TRANSITIONS: Mapping[NamespaceStatus, frozenset[NamespaceStatus]] = {
    NamespaceStatus.OPENED: frozenset({NamespaceStatus.CLOSING, NamespaceStatus.CLOSED, NamespaceStatus.FAULTED}),
    NamespaceStatus.CLOSING: frozenset({NamespaceStatus.CLOSED, NamespaceStatus.FAULTED}),
    NamespaceStatus.CLOSED: frozenset(),
    NamespaceStatus.FAULTED: frozenset(),
}
"""The states that may follow each state. All other changes are ignored: the first end counts."""


class NamespaceClosed(Faulted):
    """The namespace was closed while it was in use."""


def _nothing() -> None:
    """There is no client to close, or no listener."""


def _in_a_thread(open_connection: Callable[[], None], name: str) -> None:
    threading.Thread(target=open_connection, name=name, daemon=True).start()


class Lifecycle:
    """The status of a namespace, since when it has it, and why. Any thread may read and change it."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self.now = now
        self.status = NamespaceStatus.OPENED
        self.has_ended = False
        """Whether it is closed or faulted: its status as a flag, which every turn of every pump reads."""
        self.since = now()
        self.reason: SyphonError | None = None
        """Why the namespace is faulted."""
        self.on_end: Callable[[], None] = _nothing
        """Called when it is closed or faulted, once, in the thread that did it."""
        self._lock = threading.Lock()

    def closing(self) -> None:
        """Marks it as about to be closed: its user finishes the messages in flight first."""
        self._become(NamespaceStatus.CLOSING)

    def close(self) -> None:
        """Marks it as closed."""
        self._become(NamespaceStatus.CLOSED)

    def fault(self, reason: SyphonError) -> None:
        """Marks it as unusable. Its user gets the reason the next time it asks for the connection."""
        self._become(NamespaceStatus.FAULTED, reason)

    def _become(self, status: NamespaceStatus, reason: SyphonError | None = None) -> None:
        with self._lock:
            if status not in TRANSITIONS[self.status]:
                return
            self.reason, self.since, self.status = reason, self.now(), status
            self.has_ended = not TRANSITIONS[status]
        if self.has_ended:
            self.on_end()


class Namespace(Lifecycle):
    """A namespace that one thread uses. Other threads may read its status, and fault it."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        now: Callable[[], float] = time.monotonic,
        close_client: Callable[[], None] = _nothing,
        longest_delay: float = LONGEST_RECONNECT_DELAY,
        begin: Callable[[Callable[[], None], str], None] = _in_a_thread,
    ) -> None:
        """Attempts begin at most `longest_delay` seconds apart, unless the service requests more or one takes longer.

        `begin` starts an opening in the background and returns at once.
        """
        super().__init__(name, now)
        self.error: SyphonError | None = None
        """Why the namespace is unreachable at the moment; None if it can be reached."""
        self.has_been_connected = False
        """Whether it has ever accepted our credentials."""
        self._connect = connect
        self._close_client = close_client
        self._longest_delay = longest_delay
        self._begin = begin
        self._connection: Connection | None = None
        self._opened: Connection | Exception | None = None
        self._opening = False
        self._tries = 0
        """The number of the current attempt; results of earlier ones are discarded."""
        self._opened_at = self._tried_at = self._next_try = self.since
        self._reached_at: float | None = None
        """When another connection was last known to have reached the namespace."""
        self._told: bool | None = None
        """What another thread has found since the last check: that the namespace can be reached, or that it cannot."""
        self._backoff = Backoff(longest_delay)

    def another(self) -> Namespace:
        """The same namespace with a connection of its own, for links that do not fit on one. This one has the client,
        and must be closed last."""
        return Namespace(self.name, self._connect, self.now, longest_delay=self._longest_delay, begin=self._begin)

    # --- the connection ------------------------------------------------------------------------------------------

    def connection(self) -> Connection | None:
        """The open connection, or None while one is being opened. Raises `Faulted` when there will never be one."""
        connection = self._connection
        if (
            connection is not None
            and connection.wire.failure is None
            and self._told is None
            and self.status is NamespaceStatus.OPENED
        ):
            return connection  # the usual case: the pump asks four times a turn
        if self.has_ended:
            self._release()
            raise self.reason or NamespaceClosed(f"{self.name} was closed; open it again.")
        self._take_told()
        self._notice_break()
        if self._opening and self.now() >= self._tried_at + GIVE_UP_OPENING_AFTER:
            self._give_up_opening()
        if self._connection is None and not self._opening:
            self._take_opened()
        if self._connection is None and not self._opening and self.now() >= self._next_try:
            self._opening, self._tried_at = True, self.now()
            self._tries += 1
            self._begin(partial(self._open, self._tries), f"open {self.name}")
        return self._connection

    def _notice_break(self) -> None:
        if self._connection is not None and self._connection.wire.failure is not None:
            # Connections break; only one that cannot be opened again is an error.
            failure, now = self._connection.wire.failure, self.now()
            opened_at = -math.inf if self._connection.is_isolating else self._opened_at
            self._connection.close()
            self._connection = self._reached_at = None
            delay = self._backoff.delay(now - opened_at)
            self._next_try = now + max(delay, failure.retry_after if isinstance(failure, Waits) else 0.0)

    def _take_opened(self) -> None:
        opened, self._opened = self._opened, None
        if isinstance(opened, Faulted):
            self.fault(opened)
            raise opened
        if isinstance(opened, SyphonError):
            self.error = None if self._is_reached_elsewhere else opened
            # From the beginning of the attempt: one that took long has waited already.
            not_before = self._tried_at + self._backoff.delay(0.0, at_once=False)
            self._next_try = max(self.now(), not_before, self.now() + _requested_quiet(opened))
        elif isinstance(opened, Exception):
            raise opened
        elif opened is not None:
            self._connection, self.error, self._opened_at = opened, None, self.now()
            self._reached_at, self.has_been_connected = None, True

    def _give_up_opening(self) -> None:
        with self._lock:
            if self._opening:  # it may have come to its end just now
                self._tries += 1
                self._opened = DestinationUnreachable(f"{self.name}: not opened within {GIVE_UP_OPENING_AFTER:g} s.")
                self._opening = False

    def _open(self, number: int) -> None:
        opened: Connection | Exception
        try:
            opened = self._connect()
        except Exception as error:  # raised in `connection`: in this thread it would be lost
            opened = error
        with self._lock:
            is_given_up = number != self._tries
            if not is_given_up:
                self._opened, self._opening = opened, False
        if is_given_up:
            if not isinstance(opened, Exception):
                opened.close()
        elif self.has_ended:
            self._release()

    def _take_told(self) -> None:
        told, self._told = self._told, None
        if told and self._connection is None:
            self._backoff.reset()
            self._next_try = self.now()
        elif told is False and self._connection is not None:
            self._connection.wire.fail(Interrupted(f"{self.name} may be unreachable: reconnecting."))

    # --- for other threads ---------------------------------------------------------------------------------------

    def reached_elsewhere(self) -> None:
        """Another connection has reached the namespace: it counts as reachable, and the next attempt begins at once."""
        if not self._is_reached_elsewhere:  # at the first of many reports
            self._told = True
        self._reached_at, self.error = self.now(), None

    def missed_elsewhere(self) -> None:
        """Another connection cannot reach the namespace. Ours is replaced: it may look alive for two more minutes."""
        self._reached_at, self._told = None, False

    @property
    def is_reachable(self) -> bool:
        """Whether there is a connection, here or elsewhere."""
        return not self.has_ended and (self.is_connected or self._is_reached_elsewhere)

    @property
    def _is_reached_elsewhere(self) -> bool:
        reached_at = self._reached_at
        return reached_at is not None and self.now() < reached_at + REACHED_ELSEWHERE_FOR

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as we know. Other threads may ask."""
        connection = self._connection
        return connection is not None and connection.wire.failure is None

    def close(self) -> None:
        """Closes the connection. One that is still being opened is closed as soon as it is open."""
        super().close()
        self._release()

    def _release(self) -> None:
        with self._lock:
            held = self._connection, self._opened
            self._connection = self._opened = None
            opening = self._opening
        for connection in held:
            if connection is not None and not isinstance(connection, Exception):
                connection.close()
        if not opening:
            self._close_client()


def _requested_quiet(error: SyphonError) -> float:
    """The seconds of quiet that the service requests (S5). A peer without an answer requests none."""
    return error.retry_after if isinstance(error, Waits) and not isinstance(error, DestinationUnreachable) else 0.0
