"""The driver's watch over one pair: a doorbell at every backlog queue, and the five-second rule (D3, D8).

It has a thread and two connections of its own. It costs four receives an hour for a queue, and hardly any processor.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from syphon.bus import Connection, Namespace, Pair, SideFault, namespace_of, wait_for_traffic
from syphon.config import PairSettings
from syphon.model import Faulted, SyphonError

from .doorbell import Doorbell

log = logging.getLogger(__name__)

TURN = 0.5
"""Seconds it waits for traffic at the most, before it looks around."""
TICK = 5.0
"""Seconds between looks at heartbeats and tokens."""
TROUBLE = 30.0
"""Seconds a queue that could not be listened to is left alone."""


class Listener:
    """Listens to the backlog queues of one pair."""

    def __init__(
        self,
        settings: PairSettings,
        queues: Iterable[str],
        rang: Callable[[str], None],
        worth: Callable[[str, bytes], bool],
        long_poll: float,
        is_paused: Callable[[str], bool] = lambda queue: False,  # noqa: ARG005
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        names = list(queues)
        self.name = settings.name
        self.pair = Pair(
            namespace_of(settings.primary, settings.primary_entity, now),
            namespace_of(settings.secondary, names[0], now),
        )
        self.heard_at = now()
        """When it last turned: a watchdog looks at this."""
        self._now = now
        self._rang = rang
        self._is_paused = is_paused
        self._bells = {name: Doorbell(name, now, long_poll, partial(worth, name)) for name in names}
        self._to_arm: set[str] = set()
        self._is_silent = False
        self._troubled: dict[str, tuple[float, str]] = {}
        self._ticked_at = now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {self.name}", daemon=True)
        self.failure: BaseException | None = None
        """What ended it, if it was not us."""

    # --- what others ask of it -----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def arm(self, queue: str) -> None:
        """Listen to a queue again."""
        self._to_arm.add(queue)

    def silence(self) -> None:
        """Listen to none any more: the worker stops."""
        self._is_silent = True

    def trouble(self, queue: str) -> str:
        """Why it cannot listen to a queue, if it cannot."""
        known = self._troubled.get(queue)
        return known[1] if known is not None else ""

    def fault(self, fault: SideFault) -> None:
        """A slot found that a namespace cannot be used any more."""
        self.pair.fault_side(fault)

    def stop(self, within: float = 5.0) -> None:
        """Closes both sides."""
        for side in self.pair.sides:
            side.closing()
        self._over.set()
        self._thread.join(within)

    # --- its thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._turn()
        except BaseException as error:
            self.failure = error
            log.exception("%s: the watch has ended, and the worker with it", self.name)
        finally:
            for bell in self._bells.values():
                bell.close()
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
        was = side.error
        try:
            connection = side.connection()
        except Faulted as error:
            log.error("%s: %s is faulted: %s", self.name, side.name, error)
            return None
        if side.error is not was:
            if side.error is None:
                log.info("%s: %s is back", self.name, side.name)
            elif was is None:
                log.warning("%s: %s is out of reach; it is tried again: %s", self.name, side.name, side.error)
        return connection

    def _listen(self, connection: Connection) -> None:
        now = self._now()
        for queue, bell in self._bells.items():
            if self._is_silent:
                bell.silence()
            elif self._is_paused(queue):
                if bell.is_armed:
                    self._to_arm.add(queue)  # for when it goes on
                bell.silence()
            elif queue in self._to_arm:
                self._to_arm.discard(queue)
                bell.arm()
            if queue in self._troubled and now < self._troubled[queue][0]:
                continue
            try:
                if bell.listen(connection):
                    self._rang(queue)
                self._troubled.pop(queue, None)
            except Faulted as error:
                self.pair.secondary.fault(error)
                return
            except SyphonError as error:
                self._be_troubled(queue, error, now)

    def _be_troubled(self, queue: str, error: SyphonError, now: float) -> None:
        known = self._troubled.get(queue)
        if known is None or known[1] != str(error):
            log.warning("%s: cannot listen to %s: %s; next try in %.0f s", self.name, queue, error, TROUBLE)
        self._troubled[queue] = now + TROUBLE, str(error)

    def _wait(self, connections: list[Connection]) -> None:
        if not connections:
            self._over.wait(TURN)
            return
        wait_for_traffic([connection.wire for connection in connections], TURN)
        ticks = self._now() - self._ticked_at > TICK
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
                if ticks:
                    connection.tick()
        if ticks:
            self._ticked_at = self._now()
