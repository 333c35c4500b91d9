"""The two connections of a pump: it waits for traffic on both, and measures for how long the primary is unreachable."""

from __future__ import annotations

from collections.abc import Callable

from syphon.model import Faulted, SyphonError
from syphon.servicebus import Connection, Namespace, Wait
from syphon.time_budget import FIRST_OPENING_WITHIN, OPENING_TURN, PAUSED_BY_OS_AFTER, PUMP_TURN, UNREACHABLE_AFTER


class Sides:
    """The secondary, from which a pump receives, and the primary, to which it sends."""

    def __init__(self, secondary: Namespace, primary: Namespace, now: Callable[[], float], wait: Wait) -> None:
        self.secondary = secondary
        self.primary = primary
        self.fault: Faulted | None = None
        """Why the primary cannot be used any more, if it cannot."""
        self.late_since: float | None = None
        """The time of the last read but one, if that was long ago: what was read last may have waited since then."""
        self._now = now
        self._wait = wait
        self._connected_at = self._read_at = now()

    def primary_connection(self) -> Connection | None:
        """The primary's connection. If the primary is faulted, the pump can only abandon the messages in flight."""
        try:
            connection = self.primary.connection()
        except Faulted as fault:
            self.fault = fault
            return None
        if connection is not None:
            self._connected_at = self._now()
        return connection

    def is_primary_unreachable(self, now: float) -> bool:
        """Whether the primary has not been connected for long. To open a connection may take half a minute."""
        if self.primary.is_connected:
            return False
        return now - self._connected_at > (
            UNREACHABLE_AFTER if self.primary.error is not None else FIRST_OPENING_WITHIN
        )

    def wait_for_traffic(self, at_most: float = PUMP_TURN) -> list[Connection]:
        """Waits until there is traffic, and reads it. Returns the open connections."""
        sides = self.secondary.connection(), self.primary_connection()
        turn = OPENING_TURN if None in sides else at_most
        # A replay into the backlog has one connection for both sides.
        connections = [connection for connection in dict.fromkeys(sides) if connection is not None]
        self._wait([connection.wire for connection in connections], turn)
        before, self._read_at = self._read_at, self._now()
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
        self.late_since = before if self._now() - before > PAUSED_BY_OS_AFTER else None
        return connections

    def flush(self) -> None:
        """Writes the last frames."""
        for namespace in (self.secondary, self.primary):
            try:
                connection = namespace.connection()
            except SyphonError:
                continue
            if connection is not None:
                connection.wire.flush()
