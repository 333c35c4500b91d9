"""The workloads: which messages, over which round trip, by which loops."""

from __future__ import annotations

from dataclasses import dataclass

KB = 1024
STUCK = "stuck"
"""The destination that accepts no messages, because it is full."""
STUCK_SHARE = 10
"""One message in so many is for another destination."""


@dataclass(frozen=True)
class Workload:
    """Messages in the backlog, for a number of destinations, with a round trip in milliseconds."""

    name: str
    counts: dict[str, int]
    """How many messages each loop moves. Slow loops get fewer, to keep the run short."""
    size: int = KB
    destinations: int = 8
    round_trip: int = 0
    queues: int = 1
    """The messages are shared equally by so many backlog queues."""
    is_stuck: bool = False
    """Nine of ten messages are for a destination that is full."""
    sessions: int = 0
    """Message n has session n modulo so many; 0: none has a session."""
    is_encrypted: bool = False
    """Over TLS, as on Azure."""
    uses_websockets: bool = False

    def destination(self, number: int) -> str:
        if self.is_stuck:
            return STUCK if number % STUCK_SHARE else f"d{number // STUCK_SHARE % self.destinations}"
        return f"d{number % self.destinations}"

    def arriving(self, count: int) -> int:
        """How many of so many messages can arrive."""
        return count // STUCK_SHARE if self.is_stuck else count


NEAR, MIDDLE, FAR, ONE, MANY = "near", "5 ms", "20 ms", "1 destination", "1,000 destinations"
LARGE, HELD_UP, SPARK, TEN = "64 KB", "90 % stuck", "on Spark", "10 queues"
TLS, LARGE_TLS = "TLS", "64 KB, TLS"
WEBSOCKETS, WEBSOCKETS_TLS, LARGE_WEBSOCKETS_TLS = "WebSockets", "WebSockets, TLS", "64 KB, WebSockets, TLS"
SESSIONS, FAR_SESSIONS, SESSION, FAR_SESSION = (
    "1,000 sessions",
    "1,000 sessions, 20 ms",
    "1 session",
    "1 session, 20 ms",
)
ORDERED = "pump, in order"
SCALING = {"10,000 messages": 10_000, "100,000 messages": 100_000, "500,000 messages": 500_000}
SHORT, LONG = "10,000 messages", "500,000 messages"
PEERS = {
    "sdk_sync": "SDK, sync",
    "sdk_async": "SDK, asyncio and gather",
    "node": "@azure/service-bus in node",
    "shovel": "RabbitMQ shovel",
}
OURS = {
    "pump": "the pump",
    ORDERED: "the pump, in order",
    "move": "the pump, in a move",
    "two pumps": "two pumps",
    "drain, 1 slot": "drain on Spark, 1 slot",
    "drain, 2 slots": "drain on Spark, 2 slots",
}


def workloads(scale: float) -> list[Workload]:
    def of(count: int, least: int) -> int:
        return max(least, round(count * scale) // STUCK_SHARE * STUCK_SHARE)

    many, few, some = of(20_000, 2000), of(3_000, 300), of(500, 100)
    deep = of(160_000, 8000)
    sdk = {"sdk_sync": few, "sdk_async": few, "node": few}
    slow = {"sdk_sync": of(300, 100), "sdk_async": few, "node": few}
    large = {"sdk_sync": some, "sdk_async": some, "node": some, "pump": of(2000, 500)}
    in_python = {"sdk_sync": few, "sdk_async": few, "pump": many}
    return [
        Workload(NEAR, {**sdk, "pump": many}),
        Workload(MIDDLE, {**slow, "pump": many}, round_trip=5),
        Workload(FAR, {**slow, "pump": many}, round_trip=20),
        Workload(ONE, {**sdk, "shovel": many, "pump": many, "move": many}, destinations=1),
        # The sync loop opens a connection for each destination, half a second each.
        Workload(MANY, {"sdk_sync": 20, "sdk_async": 100, "node": few, "pump": many}, destinations=1000),
        Workload(LARGE, large, size=64 * KB),
        Workload(TLS, in_python, is_encrypted=True),
        Workload(LARGE_TLS, {loop: large[loop] for loop in in_python}, size=64 * KB, is_encrypted=True),
        Workload(WEBSOCKETS, {"pump": many}, uses_websockets=True),
        Workload(WEBSOCKETS_TLS, in_python, is_encrypted=True, uses_websockets=True),
        Workload(LARGE_WEBSOCKETS_TLS, {"pump": large["pump"]}, size=64 * KB, is_encrypted=True, uses_websockets=True),
        Workload(HELD_UP, {"sdk_sync": some, "sdk_async": some, "node": some, "pump": many}, is_stuck=True),
        Workload(TEN, {"pump": many}, queues=10),
        Workload(SESSIONS, {"pump": many, ORDERED: many}, sessions=1000),
        Workload(FAR_SESSIONS, {"pump": many, ORDERED: many}, sessions=1000, round_trip=20),
        Workload(SESSION, {ORDERED: many}, destinations=1, sessions=1),
        Workload(FAR_SESSION, {ORDERED: many}, destinations=1, sessions=1, round_trip=20),
        Workload(SPARK, dict.fromkeys((loop for loop in OURS if loop != ORDERED), deep)),
        *(Workload(name, {"pump": of(count, 2000)}) for name, count in SCALING.items()),
    ]
