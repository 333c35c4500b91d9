"""`python -m bench.isolation`: what one part that fails does to the others, with real workers, as ratios.

- One fragment of a partitioned destination is down: the speed of the messages for the other fifteen, as a share of the
  speed without the fault. Each message has a session of its own.
- One of two pairs has a wrong key: the speed of the other, as a share of its speed alone.
- One busy answer: how much later its messages arrive.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import click
from rich.console import Console

from bench.commands import backlog_queues, worker
from bench.fill import fill
from bench.stage import Place, emulator
from bench.targets import Target
from bench.worker import control, sent

ORDERS = "orders"
BUSY = {"action": "error", "operation": "send", "entity": ORDERS, "condition": "com.microsoft:server-busy", "times": 1}
STILL = 5.0
"""Seconds without a message after which no other arrives soon."""
WITHIN = 180.0


def speed(
    count: int, *, fragment_down: bool = False, partitioned: bool = False, beside_a_bad_pair: bool = False
) -> float:
    """Messages per second from the first arrival to the last one that is not held up."""
    queues = backlog_queues(2)
    with (
        tempfile.TemporaryDirectory() as folder,
        emulator([ORDERS], queues, lock="1m", partitioned=partitioned) as place,
    ):
        if fragment_down:
            control(place.primary_http, "PUT", "fragments", {"entity": ORDERS, "down": [3]})
        for queue in queues:
            fill(
                place.secondary,
                queue,
                count // len(queues),
                256,
                lambda _: ORDERS,
                sessions=count if partitioned else 0,
            )
        with worker(place, Path(folder), len(queues), beside_a_bad_pair=beside_a_bad_pair):
            seen, began = [(time.monotonic(), 0)], time.monotonic()
            while seen[-1][1] < count and (seen[-1][1] == 0 or time.monotonic() - seen[-1][0] < STILL):
                if time.monotonic() - began > WITHIN:
                    raise RuntimeError(f"only {seen[-1][1]:,} of {count:,} messages arrived within {WITHIN:g} s")
                arrived = sent(place, ORDERS)
                if arrived > seen[-1][1]:
                    seen.append((time.monotonic(), arrived))
                time.sleep(0.02)
    (first, before), (last, arrived) = seen[1], seen[-1]
    return (arrived - before) / max(0.02, last - first)


def busy_answer() -> float:
    """Seconds until messages have arrived whose first sending meets a busy answer."""
    queues = backlog_queues(2)
    with (
        tempfile.TemporaryDirectory() as folder,
        emulator([ORDERS], queues, lock="1m") as place,
        worker(place, Path(folder), len(queues)),
    ):
        fill(place.secondary, queues[0], 1, 256, lambda _: ORDERS)
        _wait_for(place, 1)  # Spark has started
        control(place.primary_http, "POST", "faults", BUSY)
        began = time.monotonic()
        fill(place.secondary, queues[0], 3, 256, lambda _: ORDERS)
        return _wait_for(place, 4) - began


def _wait_for(place: Place, count: int) -> float:
    """Waits until so many messages have arrived; returns when that was."""
    deadline = time.monotonic() + WITHIN
    while sent(place, ORDERS) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} messages have not arrived within {WITHIN:g} s")
        time.sleep(0.05)
    return time.monotonic()


@click.command()
@click.option("--messages", default=40_000, show_default=True, help="Messages of each run.")
@click.option(
    "--repeat", default=3, show_default=True, help="How often each is measured, in turn; medians are compared."
)
def main(messages: int, repeat: int) -> None:
    """Measure whom a fragment, a pair or a busy answer disturbs."""
    console = Console(width=120)
    usual, beside_fragment, alone, beside_pair = [], [], [], []
    for _ in range(repeat):
        usual.append(speed(messages, partitioned=True))
        beside_fragment.append(speed(messages, partitioned=True, fragment_down=True))
        alone.append(speed(messages))
        beside_pair.append(speed(messages, beside_a_bad_pair=True))
        found = (
            ("all fragments", usual),
            ("one down", beside_fragment),
            ("one pair", alone),
            ("a bad pair", beside_pair),
        )
        console.print("[dim]" + ", ".join(f"{what}: {runs[-1]:,.0f}/s" for what, runs in found) + "[/dim]")
    delay = busy_answer()
    goals = (
        Target("speed beside a fragment that is down", median(beside_fragment) / median(usual), 0.8),
        Target("speed beside a pair with a wrong key", median(beside_pair) / median(alone), 0.8),
        Target("seconds that one busy answer delays its messages", delay, 10),
        Target("seconds that one busy answer delays its messages", delay, 12, at_most=True),
    )
    for goal in goals:
        console.print(f"{'[green]met' if goal.is_met else '[red]not met'}[/]  {goal}")


if __name__ == "__main__":
    main()
