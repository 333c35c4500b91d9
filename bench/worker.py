"""`python -m bench.worker`: a real worker with many queues: how long a lone message takes, what an outage costs, and
how long the worker takes to end.

The worker and the emulator are processes of their own. A lone message goes into a queue that has been idle, beside
nothing, beside four queues with five messages a second each, and beside one queue at full speed. The outages count
receives: the primary refuses connections, or one destination is full. The endings begin with SIGTERM while ten queues
are served at full speed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from rich.console import Console
from rich.table import Table

from bench.commands import backlog_queues, status_port, worker
from bench.fill import fill
from bench.stage import FULL, Place, emulator
from bench.status import percentile
from bench.targets import Target
from bench.workloads import STUCK

LONE, BUSY = "lone", "busy"
TRICKLES = 4
PER_SECOND = 5
LOADS = ("nothing", "four trickles", "one queue at full speed")
AHEAD = 20_000
"""Messages that wait in the queue at full speed, at least."""
WITHIN = 180.0
DESTINATIONS = [LONE, BUSY, STUCK]


def control(http: str, method: str, route: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Calls a control route of the emulator."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{http}/$emulator/{route}", data, method=method)  # noqa: S310
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found


def counted(http: str, kind: str, entity: str | None = None) -> int:
    found = control(http, "GET", "counters")
    return int(found["totals"][kind] if entity is None else found["entities"].get(entity, {}).get(kind, 0))


def received(place: Place) -> int:
    return counted(place.secondary_http, "receive")


def sent(place: Place, entity: str) -> int:
    return counted(place.primary_http, "send", entity)


@contextmanager
def beside(load: str, place: Place, queues: list[str]) -> Iterator[None]:
    """The load, until the block ends."""
    over = threading.Event()
    if load == "nothing":
        threads = []
    elif load == "four trickles":
        threads = [threading.Thread(target=_trickle, args=(place, queue, over)) for queue in queues[:TRICKLES]]
    else:
        threads = [threading.Thread(target=_flood, args=(place, queues[0], over))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _aliased(destination: str) -> ServiceBusMessage:
    return ServiceBusMessage("x", application_properties={"x-ms-path": destination})


def _trickle(place: Place, queue: str, over: threading.Event) -> None:
    with (
        ServiceBusClient.from_connection_string(place.secondary) as client,
        client.get_queue_sender(queue) as sender,
    ):
        while not over.wait(1 / PER_SECOND):
            sender.send_messages(_aliased(BUSY))


def _flood(place: Place, queue: str, over: threading.Event) -> None:
    given = 0
    while not over.wait(0.1):
        if given - sent(place, BUSY) < AHEAD:
            fill(place.secondary, queue, AHEAD, 256, lambda _: BUSY)
            given += AHEAD


def latencies(place: Place, queues: list[str], load: str, count: int, rng: random.Random) -> list[float]:
    """Seconds that lone messages took, each in a queue without load that has been idle for up to ten seconds."""
    idle = queues[TRICKLES + 1 :]
    found = []
    with (
        ServiceBusClient.from_connection_string(place.secondary) as away,
        ServiceBusClient.from_connection_string(place.primary) as home,
        home.get_queue_receiver(LONE) as receiver,
        beside(load, place, queues),
    ):
        for number in range(count + 1):
            time.sleep(rng.uniform(0, 10))
            with away.get_queue_sender(idle[number % len(idle)]) as sender:
                began = time.monotonic()
                sender.send_messages(_aliased(LONE))
            messages = receiver.receive_messages(1, max_wait_time=WITHIN)
            if number:  # the first one starts Spark: `bench.idle` measures that
                found.append(time.monotonic() - began)
            if not messages:
                raise RuntimeError(f"a lone message beside {load} has not arrived within {WITHIN:g} s")
            receiver.complete_message(messages[0])
    return found


@dataclass(frozen=True)
class Outage:
    """What an outage cost."""

    what: str
    messages: int
    seconds: float
    receives: int
    """While it lasted, and until the last message had arrived."""
    peeks: int
    last_after: float
    """Seconds from its end to the arrival of the last message."""
    ready_after: float
    """Seconds from its end until the worker called itself ready."""

    @property
    def per_message(self) -> float:
        return self.receives / self.messages


def outage(what: str, count: int, seconds: float, folder: Path) -> Outage:
    queues = backlog_queues(10)
    with emulator(DESTINATIONS, queues, lock="1m") as place, worker(place, folder, len(queues)):
        destination = BUSY if what == "primary unreachable" else STUCK
        if what == "primary unreachable":
            control(place.primary_http, "PUT", "outage", {"kind": "refuse"})
        else:
            control(place.primary_http, "POST", "faults", FULL)
        before, peeked = received(place), counted(place.secondary_http, "peek")
        fill(place.secondary, queues[0], count, 256, lambda _: destination)
        time.sleep(seconds)
        control(place.primary_http, "DELETE", "outage" if what == "primary unreachable" else "faults")
        arrived, ready = _first_times(lambda: sent(place, destination) >= count, lambda: is_ready(folder))
        time.sleep(2.0)  # what was sent is completed
        peeks = counted(place.secondary_http, "peek") - peeked
        return Outage(what, count, seconds, received(place) - before, peeks, arrived, ready)


def _first_times(*conditions: Callable[[], bool]) -> list[float]:
    """Seconds from now until each condition was met."""
    began, found = time.monotonic(), dict[int, float]()
    while len(found) < len(conditions):
        for number, condition in enumerate(conditions):
            if number not in found and condition():
                found[number] = time.monotonic() - began
        if time.monotonic() - began > 2 * WITHIN:
            raise RuntimeError(f"only {len(found)} of {len(conditions)} things happened within {2 * WITHIN:g} s")
        time.sleep(0.1)
    return [found[number] for number in range(len(conditions))]


def is_ready(folder: Path) -> bool:
    """Whether the worker answers that it is ready."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{status_port(folder)}/readyz", timeout=10).close()
    except urllib.error.HTTPError:
        return False
    return True


def ending(count: int, folder: Path) -> float:
    """Seconds from SIGTERM to the end of a worker that serves ten queues at full speed."""
    queues = backlog_queues(10)
    with emulator(DESTINATIONS, queues, lock="1m") as place:
        for queue in queues:
            fill(place.secondary, queue, count, 256, lambda _: BUSY)
        with worker(place, folder, len(queues)) as process:
            while sent(place, BUSY) < count:
                time.sleep(0.1)
            if sent(place, BUSY) > 9 * count:
                raise RuntimeError(f"too few messages for an ending at full speed: {count:,} in each queue")
            began = time.monotonic()
            os.kill(process, signal.SIGTERM)
            while is_running(process):
                time.sleep(0.05)
            return time.monotonic() - began


def is_running(process: int) -> bool:
    """Whether a child of ours has not ended. Its parent still has to wait for one that has: a zombie is no process."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


@click.command()
@click.option("--messages", default=50, show_default=True, help="Lone messages for each case.")
@click.option("--queues", "sizes", type=int, multiple=True, default=(10, 100), show_default=True)
@click.option("--beside", "loads", type=click.Choice(LOADS), multiple=True, default=LOADS, help="Only these cases.")
@click.option("--outage", "seconds", default=60.0, show_default=True, help="Seconds that each outage lasts.")
@click.option("--waiting", default=1000, show_default=True, help="Messages that wait through an outage.")
@click.option("--endings", default=3, show_default=True, help="How often a worker is ended at full speed.")
@click.option("--deep", default=20_000, show_default=True, help="Messages in each queue of a worker that is ended.")
@click.option("--seed", default=1, show_default=True)
def main(
    messages: int,
    sizes: tuple[int, ...],
    loads: tuple[str, ...],
    seconds: float,
    waiting: int,
    endings: int,
    deep: int,
    seed: int,
) -> None:
    """Measure a worker with many queues."""
    console = Console()
    rng = random.Random(seed)  # noqa: S311
    goals = []
    lone = Table(title=f"A lone message in an idle queue, {messages} of each, in seconds")
    for heading in ("queues", "beside", "p50", "p99", "max"):
        lone.add_column(heading, justify="left" if heading == "beside" else "right")
    for size in sizes if messages else ():
        queues = backlog_queues(size)
        for load in loads:
            with (
                tempfile.TemporaryDirectory() as folder,
                emulator(DESTINATIONS, queues) as place,
                worker(place, Path(folder), size),
            ):
                took = latencies(place, queues, load, messages, rng)
            p99 = percentile(took, 0.99)
            lone.add_row(str(size), load, *(f"{value:.2f}" for value in (percentile(took, 0.5), p99, max(took))))
            console.print(f"[dim]{size} queues, beside {load}: p99 {p99:.2f} s[/dim]")
            goals.append(Target(f"p99 in seconds, {size} queues, beside {load}", p99, 3, at_most=True))
    if messages:
        console.print(lone)
    costs = Table(title=f"Outages of {seconds:g} s, {waiting:,} messages waiting")
    for heading in ("", "receives", "per message", "peeks", "last message after, s", "ready after, s"):
        costs.add_column(heading, justify="left" if not heading else "right")
    for what, most in (("primary unreachable", 1.1), ("one dead destination", 2)) if seconds else ():
        with tempfile.TemporaryDirectory() as folder:
            found = outage(what, waiting, seconds, Path(folder))
        costs.add_row(
            what,
            f"{found.receives:,}",
            f"{found.per_message:.2f}",
            f"{found.peeks:,}",
            f"{found.last_after:.1f}",
            f"{found.ready_after:.1f}",
        )
        goals.append(Target(f"receives per message, {what}", found.per_message, most, at_most=True))
    if seconds:
        console.print(costs)
    for number in range(endings):
        with tempfile.TemporaryDirectory() as folder:
            took_to_end = ending(deep, Path(folder))
        goals.append(Target(f"seconds from SIGTERM to the end, time {number + 1}", took_to_end, 25, at_most=True))
    for goal in goals:
        console.print(f"{'[green]met' if goal.is_met else '[red]not met'}[/]  {goal}")


if __name__ == "__main__":
    main()
