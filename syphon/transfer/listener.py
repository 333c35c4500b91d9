"""The listener of one pair: a doorbell at every backlog queue, and the five-second rule (C1, D3, D8).

It has a thread and two connections of its own. It costs four receives an hour for a queue, and hardly any CPU.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from syphon.bus import Connection, Namespace, Pair, SideFault, wait_for_traffic
from syphon.model import Faulted, SyphonError

from .doorbell import LONG_POLL, Doorbell

log = logging.getLogger(__name__)

TURN = 0.5
"""Seconds for which the listener waits for traffic at most."""
TICK = 5.0
"""Seconds between looks at heartbeats and tokens."""
TROUBLE = 30.0
"""Seconds until the listener tries a queue again that it could not listen to."""


class Listener:
    """Listens to the backlog queues of one pair, until it is stopped or both sides of the pair have ended (C2)."""

    def __init__(
        self,
        name: str,
        pair: Pair,
        queues: Iterable[str],
        on_message: Callable[[str], None],
        is_worth_a_job: Callable[[str, bytes], bool] = lambda queue, payload: True,  # noqa: ARG005
        long_poll: float = LONG_POLL,
        is_paused: Callable[[str], bool] = lambda queue: False,  # noqa: ARG005
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.pair = pair
        self.heard_at = now()
        """When the listener last turned: a watchdog looks at this."""
        self._now = now
        self._on_message = on_message
        self._is_paused = is_paused
        self._doorbells = {queue: Doorbell(queue, now, long_poll, partial(is_worth_a_job, queue)) for queue in queues}
        self._to_arm: set[str] = set()
        self._is_silent = False
        self._troubled: dict[str, tuple[float, str]] = {}
        self._ticked_at = now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"listen {name}", daemon=True)
        self.failure: BaseException | None = None
        """The error that ended the listener, if one did."""

    # --- for other threads ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def arm(self, queue: str) -> None:
        """Listens to a queue again."""
        self._to_arm.add(queue)

    def silence(self) -> None:
        """Listens to no queue any more: the owner stops."""
        self._is_silent = True

    def trouble(self, queue: str) -> str:
        """Why it cannot listen to a queue; empty if it can."""
        known = self._troubled.get(queue)
        return known[1] if known is not None else ""

    def fault(self, fault: SideFault) -> None:
        """Faults a side of the pair: a pump found that it cannot be used any more."""
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
            log.exception("%s: the listener failed; no backlog queue of this pair is listened to any more", self.name)
        finally:
            for doorbell in self._doorbells.values():
                doorbell.close()
            for side in self.pair.sides:
                side.close()

    def _turn(self) -> None:
        self.heard_at = self._now()
        primary, secondary = self._connection(self.pair.primary), self._connection(self.pair.secondary)
        if secondary is not None:
            self._listen(secondary)
        self.pair.check()
        self._wait([connection for connection in (primary, secondary) if connection is not None])

    def _connection(self, side: Namespace) -> Connection | None:
        if side.has_ended:
            return None
        before = side.error
        try:
            connection = side.connection()
        except Faulted as error:
            log.error("%s: %s is faulted and cannot be used any more: %s", self.name, side.name, error)
            return None
        if side.error is not before:
            if side.error is None:
                log.info("%s: %s can be reached again", self.name, side.name)
            elif before is None:
                log.warning("%s: %s is out of reach; trying again: %s", self.name, side.name, side.error)
        return connection

    def _listen(self, connection: Connection) -> None:
        now = self._now()
        for queue, doorbell in self._doorbells.items():
            if self._is_silent:
                doorbell.silence()
            elif self._is_paused(queue):
                if doorbell.is_armed:
                    self._to_arm.add(queue)  # for the end of the pause
                doorbell.silence()
            elif queue in self._to_arm:
                self._to_arm.discard(queue)
                doorbell.arm()
            if queue in self._troubled and now < self._troubled[queue][0]:
                continue
            try:
                if doorbell.listen(connection):
                    self._on_message(queue)
                self._troubled.pop(queue, None)
            except Faulted as error:
                self.pair.secondary.fault(error)
                return
            except SyphonError as error:
                self._note_trouble(queue, error, now)

    def _note_trouble(self, queue: str, error: SyphonError, now: float) -> None:
        known = self._troubled.get(queue)
        if known is None or known[1] != str(error):
            log.warning("%s: cannot listen to %s: %s; next try in %.0f s", self.name, queue, error, TROUBLE)
        self._troubled[queue] = now + TROUBLE, str(error)

    def _wait(self, connections: list[Connection]) -> None:
        if not connections:
            self._over.wait(TURN)
            return
        wait_for_traffic([connection.wire for connection in connections], TURN)
        is_tick = self._now() - self._ticked_at > TICK
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
                if is_tick:
                    connection.tick()
        if is_tick:
            self._ticked_at = self._now()
