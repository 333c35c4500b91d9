"""The targets, as ratios within one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from bench.stage import Measured
from bench.workloads import (
    FAR,
    FAR_SESSION,
    FAR_SESSIONS,
    LARGE,
    LARGE_TLS,
    LARGE_WEBSOCKETS_TLS,
    LONG,
    MANY,
    NEAR,
    ONE,
    ORDERED,
    PEERS,
    SESSIONS,
    SHORT,
    SPARK,
    TEN,
    TLS,
    WEBSOCKETS,
    WEBSOCKETS_TLS,
)
from syphon.transfer.unsent import MOST_IN_BATCH

Results = Mapping[tuple[str, str], Measured]
"""By workload and loop."""


@dataclass(frozen=True)
class Target:
    """A measured number and its target: at least, or at most."""

    what: str
    found: float
    wanted: float
    at_most: bool = False
    where: str = ""
    """The worst case, if there are several."""

    @property
    def is_met(self) -> bool:
        return self.found <= self.wanted if self.at_most else self.found >= self.wanted

    def __str__(self) -> str:
        worst = f" (worst: {self.where})" if self.where else ""
        return f"{self.what}: {self.found:.3g}{worst}, target {'≤' if self.at_most else '≥'} {self.wanted:g}"


def targets(results: Results) -> Iterator[Target]:
    """The targets for which there are measurements."""
    yield from _against_peers(results)
    yield from _against_ourselves(results)


def _against_peers(results: Results) -> Iterator[Target]:
    """The ratios of the pump to other loops. Loops that stopped with an error are left out."""
    others = [peer for peer in PEERS if peer != "sdk_sync"]
    for peer in PEERS:
        yield from _least(results, (peer,), f"times the speed of {PEERS[peer]}", _faster, 1)
        yield from _least(results, (peer,), f"times less CPU than {PEERS[peer]}", _cheaper, 1)
    yield from _least(results, ("sdk_sync",), "times less CPU than the SDK's sync loop", _cheaper, 8)
    if (FAR, "sdk_sync") in results and (FAR, "pump") in results:
        ratio = _faster(results[FAR, "pump"], results[FAR, "sdk_sync"])
        yield Target("times the speed of the SDK's sync loop at 20 ms", ratio, 150)
    yield from _least(results, others, "times the speed of the best other peer", _faster, 2)
    yield from _least(results, others, "times less CPU than the best other peer", _cheaper, 2)


def _least(
    results: Results,
    peers: tuple[str, ...] | list[str],
    what: str,
    ratio: Callable[[Measured, Measured], float],
    wanted: float,
) -> Iterator[Target]:
    """The smallest of these ratios, over all workloads and these peers."""
    pairs = [
        (ratio(results[workload, "pump"], theirs), f"{workload}, {PEERS[peer]}" if len(peers) > 1 else workload)
        for (workload, peer), theirs in results.items()
        if peer in peers and not theirs.stopped and (workload, "pump") in results
    ]
    if pairs:
        found, where = min(pairs)
        yield Target(what, found, wanted, where=where)


def _faster(ours: Measured, theirs: Measured) -> float:
    """The ratio of speeds. If one of the loops did little but open connections, both include that time."""
    if theirs.steady_per_second:
        return ours.speed / theirs.speed
    return ours.per_second / theirs.per_second


def _cheaper(ours: Measured, theirs: Measured) -> float:
    return theirs.cpu_per_1000 / ours.cpu_per_1000


def _against_ourselves(results: Results) -> Iterator[Target]:
    def speed(workload: str, loop: str = "pump") -> float:
        """The speed from start to end, opening included: the pump opens some links later."""
        return results[workload, loop].per_second

    def on_spark(loop: str, base: str) -> float:
        return speed(SPARK, loop) / speed(SPARK, base)

    def cpu(workload: str) -> float:
        return results[workload, "pump"].cpu_per_1000

    def megabytes(workload: str) -> float:
        return results[workload, "pump"].megabytes

    wanted: list[tuple[str, Callable[[], float], float, bool]] = [
        ("speed at 20 ms, as a share of the speed at 0 ms", lambda: speed(FAR) / speed(NEAR), 0.75, False),
        (
            "CPU per message with 500,000 messages, as a share of that with 10,000",
            lambda: cpu(LONG) / cpu(SHORT),
            1.1,
            True,
        ),
        ("speed of a move, as a share of one pump", lambda: speed(ONE, "move") / speed(ONE), 0.9, False),
        ("speed of one slot on Spark, as a share of one pump", lambda: on_spark("drain, 1 slot", "pump"), 0.9, False),
        (
            "speed of two slots on Spark, as a share of two pumps",
            lambda: on_spark("drain, 2 slots", "two pumps"),
            0.9,
            False,
        ),
        ("speed with 10 queues, as a share of that with one", lambda: speed(TEN) / speed(NEAR), 1, False),
        ("speed with 1,000 destinations, as a share of that with 8", lambda: speed(MANY) / speed(NEAR), 0.5, False),
        (
            "speed in the order of 1,000 sessions, as a share of that without order",
            lambda: speed(SESSIONS, ORDERED) / speed(SESSIONS),
            0.5,
            False,
        ),
        (
            "the same at 20 ms",
            lambda: speed(FAR_SESSIONS, ORDERED) / speed(FAR_SESSIONS),
            0.5,
            False,
        ),
        (
            "speed of one session at 20 ms, as a share of a batch per round trip",
            lambda: results[FAR_SESSION, ORDERED].speed / (MOST_IN_BATCH / 0.02),
            0.5,
            False,
        ),
        ("speed over WebSockets, as a share of AMQP", lambda: speed(WEBSOCKETS) / speed(NEAR), 0.8, False),
        (
            "speed over WebSockets with TLS, as a share of AMQP with TLS",
            lambda: speed(WEBSOCKETS_TLS) / speed(TLS),
            0.8,
            False,
        ),
        (
            "speed of 64 KB over WebSockets with TLS, as a share of AMQP with TLS",
            lambda: speed(LARGE_WEBSOCKETS_TLS) / speed(LARGE_TLS),
            0.8,
            False,
        ),
        ("memory (MB) after 500,000 messages", lambda: megabytes(LONG), 120, True),
        ("memory (MB) with messages of 64 KB", lambda: megabytes(LARGE), 120, True),
    ]
    for what, find, bound, at_most in wanted:
        try:
            yield Target(what, find(), bound, at_most)
        except KeyError:
            continue
