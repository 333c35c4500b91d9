"""The syphon inside an application (`enable_syphon`): the listener and the pump, without Spark.

It is for small deployments, and ends with the application. While the primary cannot be reached it does not even listen
(`Listener`): messages in the backlog are best left there. The pump has connections of its own, which are open only
while it works.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from azure.servicebus import ServiceBusClient

from syphon.backlog import QueueName
from syphon.bus import HANDSHAKE_WITHIN, NOTICING_PAUSE, Connection, Namespace, Pair, SideFault
from syphon.model import Faulted, Outcome, Result, SyphonError
from syphon.transfer import Listener, Pump, PumpOptions

log = logging.getLogger(__name__)

TURN = 0.2
"""Seconds between looks at the listener while no queue has messages."""
REST = 5.0
"""Seconds of rest after a queue could not be received from."""
OPTIONS = PumpOptions(quiet=1.0, lease=20.0, grace=4.0)
"""Queues take turns, so that none keeps the others waiting for long."""


class EmbeddedSyphon:
    """Moves the backlog of one pair to the primary until it is closed, or the pair is faulted."""

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
        """How often a message was left in the backlog, to be received again."""
        self._clients = primary, secondary
        self._queues = queues
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The backlog queues in which a message has arrived."""
        self._listener = Listener(
            f"the backlog of {primary.fully_qualified_namespace}",
            self._new_pair(now),
            queues,
            on_message=lambda name, _: self._waiting.put(name),
            now=now,
        )
        self._pump: Pump | None = None
        self._failure: Exception | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syphon", daemon=True)

    def start(self) -> None:
        """Starts to listen. The syphon works in threads of its own."""
        self._listener.start()
        self._thread.start()

    @property
    def sides(self) -> tuple[Namespace, Namespace]:
        """The primary and the secondary, as the syphon sees them."""
        return self._listener.pair.sides

    def end_side(self, fault: SideFault) -> None:
        """A side cannot be used any more: nothing more is moved, and the syphon ends within five seconds (C1)."""
        self._listener.fault(fault)

    @property
    def fault(self) -> SyphonError | None:
        """Why it ended by itself, if it did: the pair cannot be used any more (C3), or the syphon has a bug."""
        failure = self._failure or self._listener.failure
        if self._listener.pair.fault is None and failure is not None:
            return SyphonError(f"{type(failure).__name__}: {failure}")
        return self._listener.pair.fault

    def close(self) -> None:
        """Finishes or gives back the messages in hand. All others are in the backlog."""
        self._stopping.set()
        pump = self._pump  # the other thread may set it to None at any time
        if pump is not None:
            pump.stop()
        self._thread.join(2 * OPTIONS.grace)

    # --- its own thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and self._listener.is_running:
                self._turn()
        except Exception as error:  # the application must learn that its backlog is not moved any more
            self._failure = error
            log.debug("the syphon inside this process", exc_info=True)
        finally:
            self._listener.stop()
        if self.fault is not None:
            log.error("The syphon inside this process has ended, the backlog stays where it is: %s", self.fault)

    def _turn(self) -> None:
        try:
            name = self._waiting.get(timeout=TURN)
        except queue.Empty:
            return
        self._move(name)
        self._listener.arm(name)  # for the next messages

    def _move(self, name: str) -> None:
        """Runs a pump on one backlog queue."""
        pair = self._new_pair()
        self._pump = Pump(pair.secondary, pair.primary, self._note, OPTIONS)
        self._pump.serve(name)
        try:
            for _ in self._pump.turns():
                if self._stopping.is_set() or any(side.has_ended for side in self.sides):
                    self._pump.stop()
        except Faulted as error:  # the listener applies the five-second rule to the other side (C1)
            side = SideFault.of("primary" if pair.primary.has_ended else "secondary", error)
            self._listener.fault(side)
        except SyphonError as error:
            log.warning("%s cannot be received from: %s Next try in %g s", name, error, REST)
            self._stopping.wait(REST)
        finally:
            self._pump = None
            for side_used in pair.sides:
                side_used.close()

    def _new_pair(self, now: Callable[[], float] = time.monotonic) -> Pair:
        """Both namespaces, with connections of their own."""
        primary, secondary = self._clients
        return Pair(
            _namespace(primary, "", now),
            _namespace(secondary, self._queues[0], now),
        )

    def _note(self, outcome: Outcome) -> None:
        self.forwarded += outcome.result is Result.FORWARDED
        self.left += outcome.result is Result.LEFT
        if outcome.result is Result.DEAD_LETTERED:
            self.dead_lettered += 1
            log.warning("A message of %s was dead-lettered: %s", outcome.queue, outcome.reason)


def _namespace(client: ServiceBusClient, entity: str, now: Callable[[], float]) -> Namespace:
    """A namespace whose return after an outage is noticed within five seconds (D16)."""
    return Namespace(
        client.fully_qualified_namespace,
        lambda: Connection(client, entity, handshake_within=HANDSHAKE_WITHIN),
        now,
        longest_pause=NOTICING_PAUSE,
    )
