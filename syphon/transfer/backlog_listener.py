"""The listener of one pair: a doorbell at every backlog queue, and the five-second rule (C1, D3, D8).

It has a thread of its own, a connection to the primary, and one to the secondary for each eighty queues. It costs four
receives per hour and queue, and hardly any CPU. While the primary is unreachable it neither receives nor peeks (D16).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from syphon.model import Faulted, SyphonError
from syphon.servicebus import RUNTIME, Connection, Namespace, Pair, Runtime, SideFault
from syphon.time_budget import LISTEN_RETRY_AFTER, LISTENER_TICK, LISTENER_TURN, LONG_POLL

from .backoff_gate import Gate
from .deferred_scan import Ring, WaitingMessages
from .doorbell import Doorbell
from .pump_options import MOST_QUEUES

log = logging.getLogger(__name__)


class Listener:
    """Listens to the backlog queues of one pair, until it is stopped or both sides of the pair have ended (C2)."""

    def __init__(
        self,
        name: str,
        pair: Pair,
        queues: Iterable[str],
        on_message: Callable[[str, Ring], None],
        *,
        gate: Gate | None = None,
        long_poll: float = LONG_POLL,
        is_paused: Callable[[str], bool] = lambda queue: False,  # noqa: ARG005
        now: Callable[[], float] | None = None,
        runtime: Runtime = RUNTIME,
    ) -> None:
        now = now or runtime.now
        self.name = name
        self.pair = pair
        self.heard_at = now()
        """When the listener last turned: the watchdog checks this."""
        self._now = now
        self._on_message = on_message
        self._is_paused = is_paused
        self._doorbells = {queue: Doorbell(queue, now, gate, long_poll) for queue in queues}
        self._parts = _parts(pair.secondary, list(self._doorbells.values()))
        self._namespaces = {doorbell.queue: namespace for namespace, part in self._parts for doorbell in part}
        self._to_arm: dict[str, bool] = {}
        self._to_rescan: set[str] = set()
        self._is_silent = False
        self._troubled: dict[str, tuple[float, str]] = {}
        self._unreachable: set[Namespace] = set()
        """The sides that the log last called unreachable."""
        self._ticked_at = now()
        self._wait_for_traffic = runtime.wait
        self._over = runtime.event()
        self._thread = runtime.thread(self._run, f"listen {name}")
        self.failure: BaseException | None = None
        """The error that ended the listener, if one did."""

    # --- for other threads ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def arm(self, queue: str, scan: bool = False) -> None:
        """Listens to a queue again.

        `scan`: the transfer has received messages. The listener first peeks for those that were deferred. If
        the transfer received nothing, it must be false: a message that can be moved and is locked (by a slot that was
        killed) would be peeked at and ring without end.
        """
        self._to_arm[queue] = scan

    def rescan(self) -> None:
        """Scans again all messages that cannot be moved: they may go to other destinations by now (a rename)."""
        self._to_rescan.update(self._doorbells)

    def reached_primary(self) -> None:
        """A slot has just talked to the primary: it counts as reachable, and our own side retries at once."""
        self.pair.primary.reached_elsewhere()

    def missed_primary(self) -> None:
        """A slot cannot reach the primary: our own side reconnects before any doorbell rings."""
        self.pair.primary.missed_elsewhere()

    def waiting(self, queue: str) -> dict[str, WaitingMessages]:
        """The deferred messages of a queue, which wait for their destinations, by destination (its key)."""
        return self._doorbells[queue].waiting

    def silence(self) -> None:
        """Stops listening to all queues: the owner stops."""
        self._is_silent = True

    def trouble(self, queue: str) -> str:
        """Why it cannot listen to a queue; empty if it can."""
        if (known := self._troubled.get(queue)) is not None:
            return known[1]
        secondary = self.pair.secondary
        if secondary.error is not None:
            return ""  # that side is in trouble, not one queue
        error = self._namespaces.get(queue, secondary).error
        return "" if error is None else str(error)

    def fault(self, fault: SideFault) -> None:
        """Faults a side of the pair: a pump found that it can no longer be used."""
        self.pair.fault_side(fault)

    def stop(self, within: float = 5.0) -> None:
        """Closes both sides of the pair, and waits for the thread."""
        for side in self.pair.sides:
            side.closing()
        self._over.set()
        self._thread.join(within)

    # --- its own thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over.is_set() and not self.pair.has_ended:
                self._turn()
        except BaseException as error:
            self.failure = error
            log.exception(
                "%s: the listener failed; the worker no longer listens on the backlog queues of this pair", self.name
            )
        finally:
            for doorbell in self._doorbells.values():
                doorbell.close()
            for namespace, _ in reversed(self._parts):
                namespace.close()
            self.pair.primary.close()

    def _turn(self) -> None:
        self.heard_at = self._now()
        connections = [self._connection(self.pair.primary)]
        for namespace, doorbells in self._parts:
            connection = None if self.pair.secondary.has_ended else self._connection(namespace)
            connections.append(connection)
            if connection is not None:
                self._listen(connection, doorbells)
        self.pair.check()
        self._wait([connection for connection in connections if connection is not None])

    def _connection(self, side: Namespace) -> Connection | None:
        if side.has_ended:
            return None
        try:
            connection = side.connection()
        except Faulted as error:
            log.error("%s: %s has faulted and is unusable: %s", self.name, side.name, error)
            if side is not self.pair.primary:
                self.pair.secondary.fault(error)
            return None
        why = side.error  # other threads may set it to None
        if side in self._unreachable and side.is_reachable:
            self._unreachable.discard(side)
            log.info("%s: %s is reachable again", self.name, side.name)
        elif side not in self._unreachable and why is not None:
            self._unreachable.add(side)
            log.warning("%s: %s is unreachable; retrying: %s", self.name, side.name, why)
        return connection

    def _listen(self, connection: Connection, doorbells: Sequence[Doorbell]) -> None:
        now, is_away = self._now(), not self.pair.primary.is_reachable
        for doorbell in doorbells:
            queue = doorbell.queue
            if (scan := self._to_arm.pop(queue, None)) is not None:
                doorbell.arm(scan)
            if queue in self._to_rescan:
                self._to_rescan.discard(queue)
                doorbell.rescan()
            if is_away or self._is_silent or self._is_paused(queue):
                doorbell.hold()
                continue
            if queue in self._troubled and now < self._troubled[queue][0]:
                continue
            try:
                if (ring := doorbell.listen(connection)) is not None:
                    self._on_message(queue, ring)
                self._troubled.pop(queue, None)
            except Faulted as error:
                self.pair.secondary.fault(error)
                return
            except SyphonError as error:
                self._record_trouble(queue, error, now)

    def _record_trouble(self, queue: str, error: SyphonError, now: float) -> None:
        known = self._troubled.get(queue)
        if known is None or known[1] != str(error):
            reason = str(error).rstrip(".")
            log.warning("%s: cannot listen on %s: %s; retrying in %.0f s", self.name, queue, reason, LISTEN_RETRY_AFTER)
        self._troubled[queue] = now + LISTEN_RETRY_AFTER, str(error)

    def _wait(self, connections: list[Connection]) -> None:
        if not connections:
            self._over.wait(LISTENER_TURN)
            return
        self._wait_for_traffic([connection.wire for connection in connections], LISTENER_TURN)
        is_tick = self._now() - self._ticked_at > LISTENER_TICK
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
                if is_tick:
                    connection.tick()
        if is_tick:
            self._ticked_at = self._now()


def _parts(secondary: Namespace, doorbells: Sequence[Doorbell]) -> list[tuple[Namespace, Sequence[Doorbell]]]:
    """Groups the doorbells by connection: one has links for at most `MOST_QUEUES` queues."""
    starts = range(0, len(doorbells), MOST_QUEUES)
    return [
        (secondary.another() if start else secondary, doorbells[start : start + MOST_QUEUES]) for start in starts
    ] or [(secondary, ())]
