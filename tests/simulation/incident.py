"""Incidents: what happens in a simulated run, as plain values.

An incident says everything: its messages, its settings and its faults. The same incident always runs in the same way,
and the shrinker can leave parts of it out.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from enum import StrEnum

from syphon.emulator.broker.admission import FRAGMENTS


class Mode(StrEnum):
    """What is under test."""

    PUMP = "pump"
    """One pump after another."""
    WORKER = "worker"
    """A whole worker: listener, doorbells, dispatcher, control, and slots on a simulated Spark."""
    DRAIN = "drain"
    """Drains, one after another, until one has proven that the backlog is empty."""
    SENDER = "sender"
    """Senders with failover, and a worker that brings back what they left in the backlog."""
    PAIRS = "pairs"
    """A worker that serves several pairs, supervised by the product's own `Worker`."""
    REPLAY = "replay"
    """Replays of dead letters, one after another, to an entity that may detect duplicates."""


class Kind(StrEnum):
    """The kinds of faults."""

    # the network, on the way to one namespace
    CUT = "cut"
    CUT_AFTER_BYTES = "cut after bytes"
    STALL = "stall"
    SLOW = "slow"
    REFUSE = "refuse connections"
    SILENT = "accept and stay silent"
    # a whole namespace
    OUTAGE = "outage"
    THROTTLE = "throttle"
    FOREIGN = "foreign traffic"
    """Another client uses so many credits per second of a namespace (`number`), as far as the service lets it."""
    # one entity or operation, in the emulator
    FRAGMENT = "fragment down"
    BROKER = "broker fault"
    MISSING = "destination missing"
    DISABLED = "destination disabled"
    FULL = "destination full"
    CUT_ON_SEND = "sends cut the connection"
    POISON = "a message cuts the connection"
    # the process
    CRASH = "crash"
    PAUSE = "the process stands still"
    # Spark, the control protocol and the worker
    SLOT_KILLED = "a slot is killed"
    SLOT_LOST = "a slot is taken for lost and goes on"
    JOB_GIVEN_UP = "Spark gives up its jobs"
    SPARK_FULL = "Spark has no place"
    ROWS_LATE = "rows come late"
    SPARK_LOST = "Spark's JVM is killed"
    SPARK_REFUSES = "Spark does not start"
    REPORTS_LOST = "reports are lost"
    ANSWERS_LOST = "orders are lost"
    REPORTS_LATE = "reports are late"
    STOPPED = "the worker is stopped and starts again"
    KEY_REFUSED = "the key is refused"
    GONE = "the namespace is gone"
    ORDER = "the order of sessions"
    """Not in the list of faults: a generator for the incidents in which sessions have an order (D21)."""
    ORDER_OF_SENDS = "the order of sends"
    """Nor this one: the order from the sender on."""
    KNOWN_ID = "an id that is known from elsewhere"
    """Not in the list of faults: the plan of the replays has it (`Elsewhere`)."""


EVERYTHING = "*"
OPERATION_TIMEOUT, FAILOVER, PING = 10.0, 10.0, 15.0
"""Seconds, in the settings of all senders."""
HELD_UP = 2.0
"""Seconds for which a slow network holds up every byte, and a broker that delays operations each of them."""
SPARK_STOPS = 1.5
"""Seconds until Spark has stopped."""
OF_THE_PROCESS = (Kind.CRASH, Kind.PAUSE)
OF_SPARK = (Kind.SLOT_KILLED, Kind.SLOT_LOST, Kind.JOB_GIVEN_UP, Kind.SPARK_FULL, Kind.ROWS_LATE, Kind.STOPPED)
OF_THE_JVM = (Kind.SPARK_LOST, Kind.SPARK_REFUSES)
"""Only where the product's own lifecycle starts and stops Spark: in the incidents of pairs."""
OF_CONTROL = (Kind.REPORTS_LOST, Kind.ANSWERS_LOST, Kind.REPORTS_LATE)
THAT_END_A_PAIR = (Kind.KEY_REFUSED, Kind.GONE)
"""A pair with such a fault cannot be used (C3). All others are outages, however long they last."""
PAIRS = ("contoso", "fabrikam", "tailspin")
"""The names of pairs, and of their primaries. Most incidents have the first one only."""


def secondary_of(pair: str) -> str:
    return f"{pair}-dr"


@dataclass(frozen=True)
class SimulatedFault:
    """One fault, from its start to its end."""

    kind: Kind
    at: float
    lasts: float = 0.0
    """Seconds; a fault that never ends lasts forever (`inf`)."""
    side: str = "contoso"
    entity: str = EVERYTHING
    """The destination it concerns; `*` for all."""
    how: str = ""
    """What exactly: a way of stalling, an outage, an action of the emulator."""
    operation: str = ""
    number: int = 0
    """Bytes, credits or times, depending on the kind."""
    share: float = 1.0

    @property
    def ends_at(self) -> float:
        return self.at + self.lasts

    @property
    def holds_up(self) -> bool:
        """Whether bytes arrive late because of it.

        Then a send may arrive after the end of a lock that lasted when it was made, and a message from the secondary
        with a lock that is older than the pump takes it for.
        """
        return self.kind in (Kind.STALL, Kind.SLOW, Kind.PAUSE) or self.how in ("delay", "hang")

    @property
    def holds_up_until(self) -> float:
        """When the last of what it has held up arrives."""
        return self.ends_at + (HELD_UP if self.kind is Kind.SLOW or self.how == "delay" else 0.0)

    @property
    def makes_a_long_pause(self) -> bool:
        """Whether a destination that fails for this reason backs off for ten seconds or more at the first time."""
        return self.kind in (Kind.MISSING, Kind.DISABLED, Kind.FULL, Kind.THROTTLE) or "busy" in self.how

    def is_fragment_of(self, message: SimulatedMessage) -> bool:
        """Whether a message belongs into the fragment that is down."""
        return message.session is not None and zlib.crc32(message.session.encode()) % FRAGMENTS == self.number

    def concerns(self, destination: str) -> bool:
        return self.entity in (EVERYTHING, destination)

    def is_of(self, pair: str) -> bool:
        """Whether it concerns a pair: it strikes one of its namespaces, or the worker of all pairs."""
        is_shared = self.kind in (*OF_THE_PROCESS, *OF_SPARK, *OF_THE_JVM, *OF_CONTROL)
        return is_shared or self.side in (pair, secondary_of(pair))

    def __str__(self) -> str:
        parts = [f"{self.kind.value}", f"at {self.at:.2f} s", f"for {self.lasts:.2f} s", f"of {self.side}"]
        parts += [part for part in (self.entity if self.entity != EVERYTHING else "", self.operation, self.how) if part]
        return ", ".join(parts + ([f"number {self.number}"] if self.number else []))


@dataclass(frozen=True)
class SimulatedMessage:
    """One message that a sender puts into the backlog."""

    number: int
    destination: str
    at: float
    size: int = 20
    session: str | None = None
    queue: int = 0
    """The number of its backlog queue."""
    pair: str = PAIRS[0]
    id_of: int | None = None
    """The number of an earlier message with the same message id, if there is one. Only in the incidents of replays."""

    @property
    def id(self) -> str:
        return f"m{self.number:05}"

    @property
    def message_id(self) -> str:
        return f"m{self.number if self.id_of is None else self.id_of:05}"


class Target(StrEnum):
    """Where a replay puts dead letters."""

    BACKLOG = "backlog"
    DESTINATION = "destination"


@dataclass(frozen=True)
class Elsewhere:
    """A message that has the id of a dead letter, and comes to the target of the replays without them.

    A consumer takes it at once. What remains is the id, which the target knows for the length of its window.
    """

    at: float
    number: int
    """The number of the message whose id it has."""


@dataclass(frozen=True)
class ReplayPlan:
    """The replays of an incident. The last one, long after all faults, gives new ids to what would stay."""

    to: Target
    window: float
    """Seconds for which the target drops what has an id that it knows; 0: it detects no duplicates."""
    starts: tuple[float, ...]
    new_ids: bool
    may_ask: bool
    """Whether the credentials have the Manage claim."""
    assumes_none: bool
    elsewhere: tuple[Elsewhere, ...] = ()


@dataclass(frozen=True)
class Incident:
    """Everything that happens in a run."""

    seed: int
    destinations: tuple[str, ...]
    messages: tuple[SimulatedMessage, ...]
    faults: tuple[SimulatedFault, ...] = ()
    mode: Mode = Mode.PUMP
    queues: int = 1
    slots: int = 2
    """How many slots Spark runs at once."""
    task_failures: int = 4
    """After so many failed attempts of a task Spark gives up its job: 1 in local mode, 4 on a cluster."""
    lock: float = 10.0
    window: int = 200
    latency: float = 0.005
    jitter: float = 0.0
    splits: float = 0.0
    max_links: int = 200
    lease: float | None = None
    linger: float = 0.0
    drift: float = 1.0
    """How fast the process's clock runs."""
    broker_ahead: float = 0.0
    """Seconds that the brokers' clocks are ahead of the process's."""
    detects_duplicates: frozenset[str] = field(default_factory=frozenset)
    sent_before: frozenset[int] = field(default_factory=frozenset)
    """Messages that the sender has also sent to their destination: it got no answer, and failed over."""
    partitioned: frozenset[str] = field(default_factory=frozenset)
    pairs: tuple[str, ...] = PAIRS[:1]
    """They have equal queues and destinations, and share the slots."""
    keeps_order: bool = False
    """No message may overtake an earlier one of its session."""
    spark_starts_within: float = 0.0
    """Seconds that Spark takes to start, as often as a worker of pairs needs it."""
    replays: ReplayPlan | None = None
    """The messages are dead letters, and this is what is done with them."""

    def of_pair(self, pair: str) -> Incident:
        """What of it concerns one pair, as an incident of the first pair. The faults of other pairs are none of its."""
        if len(self.pairs) == 1:
            return self
        sides = {pair: PAIRS[0], secondary_of(pair): secondary_of(PAIRS[0])}
        return replace(
            self,
            pairs=PAIRS[:1],
            messages=tuple(message for message in self.messages if message.pair == pair),
            faults=tuple(
                replace(fault, side=sides.get(fault.side, fault.side)) for fault in self.faults if fault.is_of(pair)
            ),
        )

    @property
    def ends_the_pair(self) -> bool:
        """Whether a fault makes the pair unusable."""
        return any(fault.kind in THAT_END_A_PAIR for fault in self.faults)

    @property
    def allowed_rate(self) -> float | None:
        """Messages per second that a throttled primary leaves for syphon, if nothing else disturbs it; else None."""
        throttles = [fault for fault in self.faults if fault.kind is Kind.THROTTLE]
        if not throttles or any(fault.kind not in (Kind.THROTTLE, Kind.FOREIGN) for fault in self.faults):
            return None
        used = sum(fault.number for fault in self.faults if fault.kind is Kind.FOREIGN)
        return min(fault.number for fault in throttles) - used

    @property
    def dead_destinations(self) -> frozenset[str]:
        """Destinations that accept nothing for long, from the beginning, if nothing else disturbs anything."""
        if any(fault.kind not in (Kind.MISSING, Kind.FULL) or fault.at or fault.lasts < 600 for fault in self.faults):
            return frozenset()
        return frozenset(fault.entity for fault in self.faults)

    def undisturbed_from(self, message: SimulatedMessage) -> float:
        """When the last fault that concerns a message is over; `inf` if that never happens.

        A destination or a message that cuts the connection concerns the others for a moment only: then it is alone.
        """
        last = message.at
        for fault in self.faults:
            if fault.kind is Kind.POISON:
                last = max(last, fault.ends_at if fault.number == message.number else fault.at)
            elif fault.kind is Kind.FOREIGN or (fault.kind is Kind.FRAGMENT and not fault.is_fragment_of(message)):
                continue
            elif fault.kind is Kind.CUT_ON_SEND and fault.entity != message.destination:
                last = max(last, fault.at)
            elif fault.concerns(message.destination):
                last = max(last, fault.ends_at)
        return last

    def earlier_in_session(self, message: SimulatedMessage) -> tuple[SimulatedMessage, ...]:
        """The messages that must arrive before it, if sessions have an order."""
        if not self.keeps_order or message.session is None:
            return ()
        session = (message.session, message.destination)
        return tuple(
            each
            for each in self.messages
            if each.number < message.number and (each.session, each.destination) == session
        )

    def only_disturbs(self, side: str) -> bool:
        """Whether all its faults are those of one namespace, or of the way to it."""
        return all(fault.side == side and fault.kind not in OF_THE_PROCESS for fault in self.faults)

    def describe(self) -> list[str]:
        lines = [
            f"seed {self.seed}: {self.mode.value}, {len(self.messages)} messages of {' and '.join(self.pairs)} "
            f"in {self.queues} queues for {len(self.destinations)} destinations, slots {self.slots}, "
            f"task failures {self.task_failures}, lock {self.lock:g} s, window {self.window}, "
            f"latency {self.latency * 1000:.0f} ms, lease {self.lease}, drift {self.drift:g}, "
            f"brokers ahead {self.broker_ahead:g} s"
        ]
        return lines + [f"  {fault}" for fault in self.faults]
