"""`python -m bench.status`: measures the status server of a worker under load: its cost and its response times.

A worker in its own process forwards 2,000 messages a second. In turns of equal length it gets no requests, or requests
for /status, / and /metrics four times a second each. The cost is the difference in processor time of its driver, which
runs the status server: tasks are other processes.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import click
from rich.console import Console
from rich.table import Table

from bench.commands import status_port, worker
from bench.fill import fill
from bench.stage import QUEUE, emulator
from bench.targets import Target
from bench.usage import own_cpu

PATHS = ("/status", "/", "/metrics")
EVERY = 0.25
RATE = 2000
"""Messages a second, at least."""
ALLOWED = 1.25 * RATE


@dataclass
class Turn:
    """Some seconds under load."""

    cpu: float
    """Of a core."""
    per_second: float
    answers: dict[str, list[float]] = field(default_factory=dict)
    """By path, in seconds."""


class Worker:
    """A worker, as seen from outside."""

    def __init__(self, process: int, port: int) -> None:
        self._process = process
        self._port = port

    def ask(self, path: str) -> tuple[float, bytes]:
        """The time from the connection to the last byte of the answer, and the answer."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}")
        return time.perf_counter() - began, body

    def forwarded(self) -> int:
        return int(json.loads(self.ask("/status")[1])["totals"]["forwarded"])

    def turn(self, seconds: float, asking: bool) -> Turn:
        answers: dict[str, list[float]] = {path: [] for path in PATHS} if asking else {}
        moved, used, began = self.forwarded(), own_cpu(self._process), time.monotonic()
        due = began
        while (now := time.monotonic()) < began + seconds:
            if now < due:
                time.sleep(due - now)
                continue
            due += EVERY
            for path, took in answers.items():
                took.append(self.ask(path)[0])
        spent = time.monotonic() - began
        return Turn((own_cpu(self._process) - used) / spent, (self.forwarded() - moved) / spent, answers)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


@click.command()
@click.option(
    "--seconds", default=20.0, show_default=True, help="How long it is measured without requests, and with them."
)
def main(seconds: float) -> None:
    """Measure the status server of a worker under load."""
    console = Console()
    turns: dict[bool, list[Turn]] = {False: [], True: []}
    names = [f"d{number}" for number in range(8)]
    with tempfile.TemporaryDirectory() as folder, emulator(names) as place:
        count = round(ALLOWED * (2 * seconds + 15))
        fill(place.secondary, QUEUE, count, 256, lambda number: names[number % len(names)])
        with worker(place, Path(folder), 1, ALLOWED) as process:
            found = Worker(process, status_port(Path(folder)))
            while found.forwarded() < RATE:
                time.sleep(0.5)
            for asking in (False, True, True, False):  # in this order, so that a drift affects both
                turns[asking].append(found.turn(seconds / 2, asking))
    shown = Table(title="A worker under load, with four requests a second")
    for heading in ("", "p50 ms", "p99 ms", "max ms"):
        shown.add_column(heading, justify="left" if not heading else "right")
    slowest = 0.0
    for path in PATHS:
        took = [1000 * each for turn in turns[True] for each in turn.answers[path]]
        slowest = max(slowest, *took)
        shown.add_row(path, *(f"{value:.1f}" for value in (percentile(took, 0.5), percentile(took, 0.99), max(took))))
    console.print(shown)
    alone, asked = (mean(turn.cpu for turn in turns[asking]) for asking in (False, True))
    speed = min(turn.per_second for pair in turns.values() for turn in pair)
    console.print(f"its driver used {alone:.1%} of a core without requests, and {asked:.1%} with them")
    for goal in (
        Target("messages a second, at least", speed, RATE),
        Target("the slowest answer, in ms", slowest, 100, at_most=True),
        Target("the cost of requests, in % of a core", 100 * (asked - alone), 5, at_most=True),
    ):
        console.print(f"{'[green]met' if goal.is_met else '[red]not met'}[/]  {goal}")


if __name__ == "__main__":
    main()
