"""The syphon inside an application (`enable_syphon`): the listener and the pump, without Spark.

It is for small deployments, and ends with the application. One pump serves all queues that have messages (D15). It has
connections of its own, which are open only while it works.

It is as quiet as a worker (D16): while the primary is unreachable it does not even listen (`Listener`), and messages
for destinations that back off are not received repeatedly (`BackoffGate`).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from azure.servicebus import ServiceBusClient

from syphon.backlog import QueueName
from syphon.model import EntityPath, Faulted, Outcome, Result, SessionOrder, SyphonError
from syphon.servicebus import Connection, Namespace, Pair, SideFault
from syphon.time_budget import EMBEDDED_REST, EMBEDDED_TURN, HANDSHAKE_WITHIN, NOTICING_DELAY
from syphon.transfer import MOST_QUEUES, BackoffGate, Ended, Listener, Pump, PumpOptions

log = logging.getLogger(__name__)

OPTIONS = PumpOptions(quiet=1.0, lease=None, linger=2.0, grace=4.0)


class EmbeddedSyphon:
    """Moves the backlog of one pair to the primary until it is closed, or the pair is faulted."""

    def __init__(
        self,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        queues: Sequence[QueueName],
        now: Callable[[], float],
        session_order: bool = False,
    ) -> None:
        self.forwarded = 0
        self.dead_lettered = 0
        self.left = 0
        """How often a message was left in the backlog, to be received again."""
        self._clients = primary, secondary
        self._options = replace(OPTIONS, session_order=SessionOrder.KEPT if session_order else None)
        self._queues = queues
        self._waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        """The backlog queues that have rung."""
        self._served: dict[str, int] = {}
        """The queues that the pump serves, and how many of their messages it had left before."""
        self._troubled: dict[str, float] = {}
        """The queues that could not be received from, and when to listen to each again."""
        self._worked: set[str] = set()
        """The destinations that have accepted a message since the last check."""
        name = f"the backlog of {primary.fully_qualified_namespace}"
        self._name = name
        self._gate = BackoffGate(name, now)
        self._listener = Listener(
            name,
            self._new_pair(now),
            queues,
            on_message=lambda queue, _: self._waiting.put(queue),
            gate=self._gate,
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
        """A side can no longer be used: nothing more is moved, and the syphon ends within five seconds (C1)."""
        self._listener.fault(fault)

    @property
    def fault(self) -> SyphonError | None:
        """Why it ended by itself, if it did: the pair can no longer be used (C3), or the syphon has a bug."""
        failure = self._failure or self._listener.failure
        if self._listener.pair.fault is None and failure is not None:
            return SyphonError(f"{type(failure).__name__}: {failure}")
        return self._listener.pair.fault

    def close(self) -> None:
        """Finishes or abandons the messages in flight. All others are in the backlog."""
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
        except Exception as error:  # the application must learn that its backlog is no longer moved
            self._failure = error
            log.debug("the syphon inside this process", exc_info=True)
        finally:
            self._listener.stop()
        if self.fault is not None:
            log.error("The embedded syphon has stopped; messages stay in the backlog: %s", self.fault)

    def _turn(self) -> None:
        self._arm_troubled()
        try:
            name = self._waiting.get(timeout=EMBEDDED_TURN)
        except queue.Empty:
            return
        self._move(name)

    def _move(self, name: str) -> None:
        """Runs a pump on a backlog queue, and on those that ring meanwhile."""
        pair = self._new_pair()
        pump = self._pump = Pump(pair.secondary, pair.primary, self._count, self._options)
        self._serve(pump, name)
        try:
            for _ in pump.turns():
                if self._stopping.is_set() or any(side.has_ended for side in self.sides):
                    pump.stop()
                self._serve_waiting(pump)
                self._take_back(pump)
        except Faulted as error:  # the listener applies the five-second rule to the other side (C1)
            side = SideFault.of("primary" if pair.primary.has_ended else "secondary", error)
            self._listener.fault(side)
        except SyphonError:
            pass  # it is the error of a queue, which is handled below
        finally:
            self._take_back(pump)
            self._pump = None
            for side_used in pair.sides:
                side_used.close()

    def _serve(self, pump: Pump, name: str) -> None:
        known = pump.queues.get(name)
        self._served[name] = known.counters.received if known is not None else 0
        failing = self._gate.failing()
        for destination in failing:
            pump.back_off(destination)
        waiting = {EntityPath.of(destination.path).key for destination in failing}
        pump.serve(name, waiting=waiting.union(self._listener.waiting(name)))

    def _serve_waiting(self, pump: Pump) -> None:
        """Hands the queues to the pump that have rung since the last turn."""
        self._arm_troubled()
        while pump.accepting and len(self._served) < MOST_QUEUES and not self._waiting.empty():
            self._serve(pump, self._waiting.get())

    def _take_back(self, pump: Pump) -> None:
        """Listens again to the queues whose service has ended."""
        ended = [name for name in self._served if not pump.queues[name].is_served]
        if ended:
            self._record_backoffs(pump)
        for name in ended:
            served, received_before = pump.queues[name], self._served.pop(name)
            if served.error is not None:
                error = str(served.error).rstrip(".")
                log.warning(
                    "%s: cannot receive from %s: %s; retrying in %.0f s", self._name, name, error, EMBEDDED_REST
                )
                self._troubled[name] = time.monotonic() + EMBEDDED_REST
                continue
            if served.ended is Ended.PRIMARY_UNREACHABLE:
                self._listener.missed_primary()
            self._listener.arm(name, scan=served.counters.received > received_before)

    def _record_backoffs(self, pump: Pump) -> None:
        """Remembers which destinations back off, and that the others which took a message have worked."""
        failing = pump.backing_off()
        worked, self._worked = self._worked.union(pump.destinations.recovered()), set()
        for path in worked - {backoff.path for backoff in failing}:
            self._gate.forget(path)
        self._gate.record(failing)

    def _arm_troubled(self) -> None:
        now = time.monotonic()
        for name in [name for name, arm_at in self._troubled.items() if now >= arm_at]:
            del self._troubled[name]
            self._listener.arm(name)

    def _new_pair(self, now: Callable[[], float] = time.monotonic) -> Pair:
        """Both namespaces, with connections of their own."""
        primary, secondary = self._clients
        return Pair(
            _namespace(primary, "", now),
            _namespace(secondary, self._queues[0], now),
        )

    def _count(self, outcome: Outcome) -> None:
        self.left += outcome.result is Result.LEFT
        if outcome.result is Result.FORWARDED:
            self.forwarded += 1
            self._worked.add(outcome.destination)
        if outcome.result is Result.DEAD_LETTERED:
            self.dead_lettered += 1
            log.warning("A message of %s was dead-lettered: %s", outcome.queue, outcome.reason)


def _namespace(client: ServiceBusClient, entity: str, now: Callable[[], float]) -> Namespace:
    """A namespace whose return after an outage is noticed within five seconds (D16)."""
    return Namespace(
        client.fully_qualified_namespace,
        lambda: Connection(client, entity, handshake_within=HANDSHAKE_WITHIN),
        now,
        longest_delay=NOTICING_DELAY,
    )
