"""The world of one incident: two brokers, the network between, a process that is started again, and the faults."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, ClassVar, Protocol

from syphon.amqp import Properties, data_section, properties_bytes
from syphon.backlog import to_backlog
from syphon.emulator.amqp_front import AmqpConnection, AmqpTimeouts
from syphon.emulator.broker import (
    Action,
    BrokeredMessage,
    BrokerNamespace,
    Claim,
    EntityStatus,
    Fault,
    NamespaceIdentity,
    NoJournal,
    Operation,
    Outage,
    Policy,
    QueueDescription,
    Refusal,
    Tier,
)
from syphon.emulator.broker.message import StoredState
from syphon.emulator.broker.virtual_hosts import VirtualHosts

from .checker import Checker, Story, Violation
from .connections import KEY, KEY_NAME
from .control import LATENCY, ControlConditions
from .drain_runner import DrainRunner
from .incident import (
    EVERYTHING,
    HELD_UP,
    OF_CONTROL,
    OF_SPARK,
    OF_THE_JVM,
    PAIRS,
    Incident,
    Kind,
    Mode,
    SimulatedFault,
    SimulatedMessage,
    secondary_of,
)
from .network import Conditions, Network
from .pairs_runner import PairsRunner, backlog_queues
from .pump_runner import PumpRunner
from .scheduler import BrokerClock, ProcessClock, VirtualTime
from .sender_runner import SenderRunner
from .worker_runner import WorkerRunner

PRIMARY, SECONDARY = PAIRS[0], secondary_of(PAIRS[0])
BEFORE = 10.0
"""Seconds from a direct send without an answer to the send to the backlog."""


class Runner(Protocol):
    """What is under test: it is started, struck by faults, and started again."""

    def start(self) -> None: ...

    def end(self) -> None: ...

    def crash(self, silently: bool) -> None: ...

    def stand_still(self, seconds: float) -> None: ...

    def strike(self, fault: SimulatedFault) -> None: ...

    def is_in_flight(self, lock_token: bytes) -> bool: ...


RUNNERS: dict[Mode, Callable[[World], Runner]] = {
    Mode.PUMP: PumpRunner,
    Mode.WORKER: WorkerRunner,
    Mode.DRAIN: DrainRunner,
    Mode.SENDER: SenderRunner,
    Mode.PAIRS: PairsRunner,
}


class Site:
    """One namespace: the emulator's broker and AMQP front, reached over the simulated network."""

    def __init__(self, name: str, world: World, checker: Checker) -> None:
        self._checker = checker
        self.clock = BrokerClock(world.time, world.incident.broker_ahead)
        policy = Policy(KEY_NAME, KEY, frozenset((Claim.MANAGE,)))
        identity = NamespaceIdentity(name, name, Tier.STANDARD, (policy,), False)
        self.broker = BrokerNamespace(identity, self.clock, NoJournal(), world.incident.seed)
        self.broker.access.seconds = self.clock.seconds
        self.broker.faults.on_outage = self._on_outage
        self.name = name
        self.connections: dict[AmqpConnection, None] = {}
        self.network = Conditions(world.incident.latency, world.incident.jitter, world.incident.splits)
        world.network.serve(name, self._connection, self.network)

    def _connection(self) -> AmqpConnection:
        connection = AmqpConnection(VirtualHosts(self.broker), AmqpTimeouts(), self._gone)
        self.connections[connection] = None
        return connection

    def _gone(self, connection: AmqpConnection) -> None:
        del self.connections[connection]
        if not connection._peer_closed:
            self._checker.failure()

    def _on_outage(self, outage: Outage | None) -> None:
        self.network.refuses = outage is Outage.REFUSE
        for connection in list(self.connections):
            if outage is Outage.HANG:
                connection.hang()
            elif outage in (Outage.REFUSE, Outage.DROP) or connection.is_hung:
                connection.abort()


class World:
    """Runs one incident."""

    checker_kind: ClassVar[type[Checker]] = Checker

    def __init__(self, incident: Incident, trace: Callable[[str], None] | None = None) -> None:
        self.incident = incident
        self.time = VirtualTime()
        self.rng = random.Random(incident.seed ^ 0x5EED)
        self.network = Network(self.time, self.rng)
        self.checkers = {pair: self.checker_kind(incident.of_pair(pair), self.time.time) for pair in incident.pairs}
        self.checker = self.checkers[PRIMARY]
        """The one of the first pair: most incidents have no other."""
        self.trace = trace
        self.queues = tuple(f"contoso/backlog-{number}" for number in range(incident.queues))
        """The backlog queues of the first pair."""
        self.clock = ProcessClock(self.time, incident.drift)
        self.control = ControlConditions()
        self.runner = self._make_runner()
        self._put_into: dict[str, list[SimulatedMessage]] = defaultdict(list)

    def _make_runner(self) -> Runner:
        return RUNNERS[self.incident.mode](self)

    def run(self) -> None:
        """Runs the incident to its end. Raises `Violation` if a promise is broken."""
        with self.time.as_event_loop(), parsed_once():
            self.sites = {
                name: Site(name, self, checker)
                for pair, checker in self.checkers.items()
                for name in (pair, secondary_of(pair))
            }
            self.backlog: dict[str, Any] = {}
            for pair in self.incident.pairs:
                self._create_entities(pair)
            for fault in self.incident.faults:
                self.time.call_at(fault.at, self._begin, fault)
            arrivals: dict[float, list[SimulatedMessage]] = {}
            for message in self.incident.messages:
                arrivals.setdefault(message.at, []).append(message)
                if message.number in self.incident.sent_before:
                    self.time.call_at(max(0.0, message.at - BEFORE), self._send_before, message)
            if self.incident.mode is not Mode.SENDER:
                for at, messages in arrivals.items():
                    self.time.call_at(at, self._put, messages)
            self.runner.start()
            try:
                end = max(checker.end_of_run() for checker in self.checkers.values())
                self.time.run(end, self.checker.is_over if len(self.checkers) == 1 else self._is_over)
            finally:
                self.runner.end()
            for checker in self.checkers.values():
                checker.check_end()

    def _is_over(self) -> bool:
        checkers = self.checkers.values()
        return all(checker.is_over() for checker in checkers) or any(checker.violation for checker in checkers)

    def stories(self) -> list[Story]:
        """What happened to each message, of all pairs."""
        return [story for checker in self.checkers.values() for story in checker.stories.values()]

    def queues_of(self, pair: str) -> tuple[str, ...]:
        """The backlog queues of a pair."""
        return backlog_queues(pair, self.incident.queues) if self.incident.mode is Mode.PAIRS else self.queues

    # --- the brokers ---------------------------------------------------------------------------------------------

    def _create_entities(self, pair: str) -> None:
        lock = round(self.incident.lock * 1000)
        for path in self.queues_of(pair):
            entity = self.backlog[path] = self._create(
                secondary_of(pair),
                QueueDescription(path, lock, max_delivery_count=2**31 - 1, dead_lettering_on_message_expiration=True),
            )
            self._watch(entity.main, self.checkers[pair])
            if self.incident.mode is Mode.SENDER:
                self._watch_senders(entity)
        for path in self.incident.destinations:
            self._create_destination(path, pair)

    def _watch(self, queue: Any, checker: Checker) -> None:
        """Tells the checker what happens to the messages of a backlog queue."""
        complete, lock_message, dead_letter = queue.complete, queue._lock, queue._dead_letter

        def completed(token: bytes) -> None:
            message = queue._locks.get(token)
            complete(token)
            self.note("completed", message.message_id)
            checker.completed(message.message_id)

        def locked(message: BrokeredMessage) -> None:
            checker.received(str(message.message_id))
            self.note("received", message.message_id)
            lock_message(message)

        def dead_lettered(message: BrokeredMessage, properties: dict[str, Any]) -> None:
            self.note("dead-lettered", (message.message_id, properties))
            dead_letter(message, properties)
            checker.dead_lettered(str(message.message_id), str(properties.get("DeadLetterReason")))

        end_locks, unlock = queue._end_locks, queue._unlock

        def locks_ended(now: int) -> None:
            queue._unlock = lock_ended
            end_locks(now)
            queue._unlock = unlock

        def lock_ended(message: BrokeredMessage, failed: bool) -> None:
            is_in_flight = self.runner.is_in_flight(message.lock_token or b"")
            unlock(message, failed)
            self.note("lock ended", message.message_id)
            checker.lock_ended(str(message.message_id), is_in_flight)

        queue.complete, queue._lock, queue._dead_letter = completed, locked, dead_lettered
        queue._end_locks = locks_ended

    def _watch_senders(self, entity: Any) -> None:
        """Tells the checker what senders put into a backlog queue."""
        submit = entity.submit

        def submitted(messages: list[BrokeredMessage]) -> None:
            submit(messages)
            for message in messages:
                self.note("put into the backlog", message.message_id)
                self.checker.put_into_backlog(str(message.message_id))

        entity.submit = submitted

    def queues_with_messages(self) -> list[str]:
        """The backlog queues that have messages which can be received now, also by their numbers."""
        return [
            path
            for path, entity in self.backlog.items()
            if entity.main._ready or entity.main.count(StoredState.DEFERRED)
        ]

    def _create(self, side: str, description: QueueDescription) -> Any:
        broker = self.sites[side].broker
        broker.add_entity(description)
        return broker.entity(description.name)

    def _create_destination(self, path: str, pair: str = PRIMARY) -> None:
        incident = self.incident
        description = QueueDescription(
            path,
            requires_duplicate_detection=path in incident.detects_duplicates,
            enable_partitioning=path in incident.partitioned,
        )
        entity = self._create(pair, description)
        submit, checker = entity.submit, self.checkers[pair]

        def submitted(messages: list[BrokeredMessage]) -> None:
            submit(messages)
            messages = [message for message in messages if not message.ping]  # no receiver gets them
            if self.trace is not None:
                self.note(f"{path} accepted", [message.message_id for message in messages])
            checker.accepted(path, messages)

        entity.submit = submitted
        if path in incident.detects_duplicates:
            self._watch_duplicates(entity, checker)

    def _watch_duplicates(self, entity: Any, checker: Checker) -> None:
        """Tells the checker which messages an entity with duplicate detection does not drop."""
        admit = entity.admission.admit

        def admitted(description: Any, messages: list[BrokeredMessage]) -> list[BrokeredMessage]:
            kept: list[BrokeredMessage] = admit(description, messages)
            for message in kept:
                checker.stored(str(message.message_id))
            return kept

        entity.admission.admit = admitted

    def _send_before(self, message: SimulatedMessage) -> None:
        """Its sender sends it to the destination, past the checker. It hears no answer, and sends it to the backlog."""
        entity = self.sites[PRIMARY].broker._queues.get(message.destination)
        if entity is not None:
            with suppress(Refusal):
                entity.check([sent := _plain(message)])
                entity.accept([sent])

    def _put(self, messages: list[SimulatedMessage]) -> None:
        for pair in self.incident.pairs:
            for number, path in enumerate(self.queues_of(pair)):
                ours = [message for message in messages if message.queue == number and message.pair == pair]
                if ours:
                    self._put_into[path] += ours
                    self.backlog[path].submit(
                        [_parsed(m.number, m.destination, m.size, m.session).copy() for m in ours]
                    )

    def messages_in(self, queue: str) -> set[str]:
        """The messages in a backlog queue that are neither completed nor dead-lettered."""
        put = {message.id for message in self._put_into[queue]}
        return {name for name in put if not self.checker.stories[name].has_ended}

    # --- the faults ----------------------------------------------------------------------------------------------

    def note(self, what: str, about: Any) -> None:
        if self.trace is not None:
            self.trace(f"{self.time.now:9.3f}  {what} {about}")

    def _begin(self, fault: SimulatedFault) -> None:
        self.note("fault:", fault)
        site = self.sites[fault.side]
        end = self._start(fault, site)
        if end is not None and fault.lasts < math.inf:
            self.time.call_later(fault.lasts, self._over, fault, end)

    def _over(self, fault: SimulatedFault, end: Callable[[], None]) -> None:
        self.note("over:", fault)
        end()

    def _start(self, fault: SimulatedFault, site: Site) -> Callable[[], None] | None:
        """Starts a fault; returns what ends it."""
        kind, conditions = fault.kind, site.network
        if kind is Kind.CUT:
            self.network.cut_all(site.name)
            return None
        if kind is Kind.CUT_AFTER_BYTES:
            name = "cut_up" if fault.how == "up" else "cut_down"
            setattr(conditions, name, fault.number)
            return partial(setattr, conditions, name, None)
        if kind is Kind.STALL:
            conditions.stalls_up = fault.how in ("up", "both")
            conditions.stalls_down = fault.how in ("down", "both")
            return partial(self._end_stall, site)
        if kind is Kind.SLOW:
            conditions.latency = HELD_UP
            return partial(setattr, conditions, "latency", self.incident.latency)
        if kind is Kind.REFUSE:
            conditions.refuses = True
            self.network.cut_all(site.name)
            return partial(setattr, conditions, "refuses", False)
        if kind is Kind.SILENT:
            conditions.is_silent = True
            self.network.cut_all(site.name)
            return partial(setattr, conditions, "is_silent", False)
        if kind is Kind.CRASH:
            self.runner.crash(fault.how == "silently")
            return None
        if kind is Kind.PAUSE:
            self.runner.stand_still(fault.lasts)
            return None
        if kind in (*OF_SPARK, *OF_THE_JVM):
            self.runner.strike(fault)
            return None
        if kind in OF_CONTROL:
            return self._disturb_control(kind)
        if kind is Kind.KEY_REFUSED:
            return self._refuse_key(site)
        if kind is Kind.GONE:
            conditions.has_no_name = True
            self.network.cut_all(site.name)
            return partial(setattr, conditions, "has_no_name", False)
        return self._start_in_broker(fault, site)

    def _end_stall(self, site: Site) -> None:
        site.network.stalls_up = site.network.stalls_down = False
        self.network.go_on(site.name)

    def _disturb_control(self, kind: Kind) -> Callable[[], None]:
        name, value, usual = {
            Kind.REPORTS_LOST: ("loses_reports", True, False),
            Kind.ANSWERS_LOST: ("loses_answers", True, False),
            Kind.REPORTS_LATE: ("delay", 1.5, LATENCY),
        }[kind]
        setattr(self.control, name, value)
        return partial(setattr, self.control, name, usual)

    def _refuse_key(self, site: Site) -> Callable[[], None]:
        """A key is replaced, and the connections that were opened with it end."""
        access, policy = site.broker.access, Policy(KEY_NAME, KEY, frozenset((Claim.MANAGE,)))
        access.policies = {KEY_NAME: Policy(KEY_NAME, "another key", policy.claims)}
        self.network.cut_all(site.name)
        return partial(setattr, access, "policies", {KEY_NAME: policy})

    def _start_in_broker(self, fault: SimulatedFault, site: Site) -> Callable[[], None] | None:
        kind, faults = fault.kind, site.broker.faults
        if kind is Kind.OUTAGE:
            faults.begin_outage(Outage(fault.how))
            return faults.end_outage
        if kind is Kind.THROTTLE:
            faults.set_throttle(fault.number)
            return partial(faults.set_throttle, None)
        if kind is Kind.FOREIGN:
            self._use_credits(fault, site)
            return None
        if kind is Kind.FRAGMENT:
            down = broker_queue(site.broker, fault.entity).down_fragments
            down.add(fault.number)
            return partial(down.discard, fault.number)
        if kind in (Kind.MISSING, Kind.DISABLED, Kind.FULL):
            return self._take_destination_away(fault, site)
        if kind is Kind.CUT_ON_SEND:
            armed = Fault(Action.DROP, Operation.SEND, fault.entity)
        elif kind is Kind.POISON:
            poison = next((m.id for m in self.incident.messages if m.number == fault.number), "-")
            armed = Fault(Action.DROP, Operation.SEND, message_id=poison)
        else:
            action, _, condition = fault.how.partition(" ")
            armed = Fault(
                Action(action),
                Operation(fault.operation),
                fault.entity if fault.entity != EVERYTHING else "*",
                condition or None,
                seconds=HELD_UP,
                times=fault.number or None,
                share=fault.share,
            )
        number = faults.add(armed)
        return partial(faults.clear, number)

    def _use_credits(self, fault: SimulatedFault, site: Site) -> None:
        """Another client sends a tenth of its messages every tenth of a second. It does not wait when it is refused."""
        with suppress(Refusal):
            site.broker.faults.charge(max(1, fault.number // 10))
        self.time.call_later(0.1 * max(1, fault.number // 10) / (fault.number / 10), self._use_credits, fault, site)

    def _take_destination_away(self, fault: SimulatedFault, site: Site) -> Callable[[], None]:
        path, broker = fault.entity, site.broker
        if fault.kind is Kind.MISSING:
            if path in broker._queues:
                broker.delete(path)
            return partial(self._bring_back, path)
        entity = broker._queues.get(path)
        if entity is None:
            return partial(self._bring_back, path)
        if fault.kind is Kind.FULL:
            entity.quota_bytes = 0
            return partial(setattr, entity, "quota_bytes", None)
        self._set_status(path, EntityStatus.DISABLED)
        return partial(self._set_status, path, EntityStatus.ACTIVE)

    def _bring_back(self, path: str) -> None:
        if path not in self.sites[PRIMARY].broker._queues:
            self._create_destination(path)

    def _set_status(self, path: str, status: EntityStatus) -> None:
        from dataclasses import replace

        broker = self.sites[PRIMARY].broker
        if path in broker._queues:
            broker.update_queue(replace(broker._queues[path].description, status=status))


def broker_queue(broker: BrokerNamespace, path: str) -> Any:
    """The message queue of an entity."""
    return broker._queues[path].main


@lru_cache(50_000)
def _parsed(number: int, destination: str, size: int, session: str | None) -> BrokeredMessage:
    """The message as it is in the backlog. Many incidents have the same ones, and parsing costs as much as a run."""
    message = SimulatedMessage(number, destination, 0.0)
    properties = properties_bytes(Properties(message_id=message.id, group_id=session))
    return _read_message(to_backlog(properties + data_section(b"x" * size), destination))


def _plain(message: SimulatedMessage) -> BrokeredMessage:
    properties = properties_bytes(Properties(message_id=message.id, group_id=message.session))
    return _read_message(properties + data_section(b"x" * message.size))


_read_message = BrokeredMessage.parse
_read_once = lru_cache(50_000)(_read_message)


def _parse(payload: bytes) -> BrokeredMessage:
    """What `BrokeredMessage.parse` returns for these bytes, which destinations get again in other incidents."""
    message = _read_once(payload)
    twin = message.copy()
    twin.due, twin.ping = message.due, message.ping
    return twin


@contextmanager
def parsed_once() -> Iterator[None]:
    """Lets the brokers read each message once. Reading has no state: it is tested by itself."""
    own = vars(BrokeredMessage)["parse"]
    BrokeredMessage.parse = staticmethod(_parse)  # type: ignore[method-assign]
    try:
        yield
    finally:
        BrokeredMessage.parse = own  # type: ignore[method-assign]


def run(incident: Incident, trace: Callable[[str], None] | None = None) -> World:
    """Runs an incident; raises `Violation` if a promise is broken."""
    world = World(incident, trace)
    world.run()
    return world


__all__ = ["Violation", "World", "run"]
