"""The syphon inside the application (`enable_syphon`): one thread that listens to the backlog queues and carries home
what comes, without Spark. For small deployments; it ends with the application.

While the primary is out of reach it does not even listen: what is in the backlog is best left there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from azure.servicebus import ServiceBusClient

from syphon.backlog import QueueName
from syphon.bus import Connection, Namespace, Pair, wait_for_traffic
from syphon.model import Faulted, MessageTooLarge, NotAllowedByEntity, Outcome, Result, SyphonError
from syphon.transfer import Doorbell, Pump, PumpOptions

log = logging.getLogger(__name__)

TURN = 0.2
"""Seconds between looks at connections, heartbeats and the five-second rule."""
REST = 5.0
"""Seconds of rest after a queue could not be listened to."""
OPTIONS = PumpOptions(quiet=1.0, lease=20.0, grace=4.0, permanent=frozenset({MessageTooLarge, NotAllowedByEntity}))
"""Queues take turns: none may keep the others waiting for long. And an entity that is missing or disabled is worth
waiting for: that may be why its messages are in the backlog."""


class EmbeddedSyphon:
    """Carries the backlog of one pair home until it is closed, or the pair is faulted."""

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        queues: Sequence[QueueName],
        now: Callable[[], float],
    ) -> None:
        self.forwarded = 0
        self.dead_lettered = 0
        self.left = 0
        """How often a message was left in the backlog, to come again."""
        self._primary = Namespace(primary.fully_qualified_namespace, lambda: Connection(primary, ""), now)
        self._secondary = Namespace(secondary.fully_qualified_namespace, lambda: Connection(secondary, queues[0]), now)
        self._pair = Pair(self._primary, self._secondary)
        self._queues = queues
        self._now = now
        self._bells = self._new_bells()
        self._pump: Pump | None = None
        self._broken: SyphonError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syphon", daemon=True)
        self._thread.start()

    @property
    def fault(self) -> SyphonError | None:
        """Why it has ended by itself, if it has: its pair cannot be used any more (C3), or it made a mistake."""
        return self._pair.fault or self._broken

    def close(self) -> None:
        """Finishes or gives back what is in hand. What is left is in the backlog."""
        self._stopping.set()
        pump = self._pump  # its thread may be letting go of it just now
        if pump is not None:
            pump.stop()
        self._thread.join(2 * OPTIONS.grace)

    # --- the loop ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self._pair.has_ended:
                self._turn()
                self._pair.check()
        except Exception as error:  # whoever asks must hear that nobody carries anything home any more
            self._broken = SyphonError(f"{type(error).__name__}: {error}")
            log.debug("the syphon inside this process", exc_info=True)
        finally:
            for side in self._pair.sides:
                side.close()
        if self.fault is not None:
            log.error("The syphon inside this process has ended, the backlog stays where it is: %s", self.fault)

    def _turn(self) -> None:
        try:
            sides = [side.connection() for side in self._pair.sides]
            connections = [connection for connection in sides if connection is not None]
            self._wait_for_traffic(connections)
            if len(connections) == 2:
                for bell in self._bells:
                    if bell.listen(connections[1]):
                        self._carry_home(bell)
        except Faulted:
            self._stopping.wait(TURN)  # the other side gets its five seconds
        except SyphonError as error:
            log.warning("The backlog cannot be listened to, next try in %g s: %s", REST, error)
            self._bells = self._new_bells()
            self._stopping.wait(REST)

    def _wait_for_traffic(self, connections: Sequence[Connection]) -> None:
        if connections:
            wait_for_traffic([connection.wire for connection in connections], TURN)
        else:
            self._stopping.wait(TURN)
        for connection in connections:
            if connection.wire.failure is None:
                connection.read()
                connection.tick()

    def _carry_home(self, bell: Doorbell) -> None:
        bell.close()
        self._pump = Pump(bell.queue, self._secondary, self._primary, self._note, OPTIONS)
        if not self._stopping.is_set():
            self._pump.run()
        self._pump = None
        bell.arm()  # for the next outage

    def _note(self, outcome: Outcome) -> None:
        self.forwarded += outcome.result is Result.FORWARDED
        self.left += outcome.result is Result.LEFT
        if outcome.result is Result.DEAD_LETTERED:
            self.dead_lettered += 1
            log.warning("A message of %s was dead-lettered: %s", outcome.queue, outcome.reason)

    def _new_bells(self) -> list[Doorbell]:
        return [Doorbell(queue, self._now) for queue in self._queues]
