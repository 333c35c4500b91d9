"""`python -m bench.throttle`: real commands against a namespace that accepts so many credits per second and no more.

Emulator and commands are processes of their own. A foreign client is a process that sends to the primary at a steady
rate, half of what the namespace accepts: it shows what is left for syphon. The share is the number of messages that
arrive per second in the steady state (the best 15 s), divided by what is left times `rate_share`. The whole run, from
the first message to the last, is beside it: it includes the search for the limit and ten seconds of silence after each
busy answer, so it is lower in a short run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.commands import SYPHON, backlog_queues, settings, worker
from bench.fill import fill
from bench.stage import Place, emulator
from bench.targets import Target
from bench.worker import control, counted, received

SHARE = 0.8
"""`rate_share` of the settings."""
FOREIGN = "foreign"
STEADY = 15.0
"""Seconds of the span in which the steady state is measured."""
WITHIN = 900.0
KINDS = ("one destination", "three destinations", "both sides", "foreign client")


@dataclass(frozen=True)
class Case:
    """One run."""

    command: str
    credits: int
    messages: int
    destinations: int = 1
    both: bool = False
    """The secondary is limited, too."""
    foreign: bool = False

    @property
    def left(self) -> float:
        """Messages per second that are left for syphon."""
        return SHARE * self.credits * (0.5 if self.foreign else 1.0)

    def __str__(self) -> str:
        where = "both sides" if self.both else "primary"
        foreign = ", a foreign client uses half" if self.foreign else ""
        return f"{self.command}, {self.destinations} destination(s), {where} at {self.credits:,}{foreign}"


@dataclass(frozen=True)
class Throttled:
    """What was measured in one run."""

    case: Case
    arrived: int
    seconds: float
    steady: float
    """Messages per second in the steady state: the best rate that lasted for `STEADY` seconds."""
    receives: int
    exit_code: int | None

    @property
    def share(self) -> float:
        return self.steady / self.case.left

    @property
    def whole_share(self) -> float:
        """The share from the first message to the last, the search for the limit included."""
        return self.arrived / max(0.5, self.seconds) / self.case.left

    @property
    def per_message(self) -> float:
        return self.receives / max(1, self.arrived)


def measure(case: Case, folder: Path) -> Throttled:
    """Runs a drain, or a worker until everything has arrived."""
    queues, names = backlog_queues(10), [f"d{number}" for number in range(case.destinations)]
    with emulator([*names, FOREIGN], queues, lock="1m") as place:
        for queue in queues:
            fill(place.secondary, queue, case.messages // 10, 256, lambda number: names[number % len(names)])
        control(place.primary_http, "PUT", "throttle", {"credits_per_second": case.credits})
        if case.both:
            control(place.secondary_http, "PUT", "throttle", {"credits_per_second": case.credits})
        with foreign(place, case.credits / 2 if case.foreign else 0.0):
            if case.command == "run":
                with worker(place, folder, len(queues)):
                    return watched(case, place, names, None)
            command = [*SYPHON, "drain", "--yes", "-c", str(settings(place, folder, len(queues)))]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with subprocess.Popen(command, **quiet) as process:  # type: ignore[call-overload]  # noqa: S603
                try:
                    return watched(case, place, names, process)
                finally:
                    process.terminate()


def watched(case: Case, place: Place, names: list[str], process: subprocess.Popen[bytes] | None) -> Throttled:
    """Waits until the command has ended, or everything has arrived, and counts meanwhile."""
    before, began = received(place), time.monotonic()
    seen: list[tuple[float, int]] = []
    while time.monotonic() - began < WITHIN:
        arrived = sum(counted(place.primary_http, "send", name) for name in names)
        seen.append((time.monotonic(), arrived))
        if process is not None and process.poll() is not None:
            break
        if process is None and arrived >= case.messages:
            break
        time.sleep(0.5)
    first = next((at for at, count in seen if count), began)
    last = next(at for at, count in seen if count == seen[-1][1])
    exit_code = None if process is None else process.poll()
    receives = received(place) - before
    return Throttled(case, seen[-1][1], last - first, steady_rate(seen), receives, exit_code)


def steady_rate(seen: list[tuple[float, int]]) -> float:
    """The best rate that lasted for `STEADY` seconds, or over the second half if all was quicker than that."""
    rates = []
    for start, (at, count) in enumerate(seen):
        later = next(((t, c) for t, c in seen[start:] if t - at >= STEADY), None)
        if later is not None and count:
            rates.append((later[1] - count) / (later[0] - at))
    if rates:
        return max(rates)
    moving = [(at, count) for at, count in seen if count]
    (at, count), (end, last) = moving[len(moving) // 2], moving[-1]
    return (last - count) / max(0.5, end - at)


@contextmanager
def foreign(place: Place, per_second: float) -> Iterator[None]:
    """Another client of the primary, which sends steadily."""
    if not per_second:
        yield
        return
    command = [sys.executable, "-m", "bench.foreign_client", place.primary, FOREIGN, str(per_second)]
    with subprocess.Popen(command) as process:  # noqa: S603
        try:
            yield
        finally:
            process.terminate()


@click.command()
@click.option("--credits", "limits", type=int, multiple=True, default=(100, 1000, 5000), show_default=True)
@click.option("--seconds", default=60, show_default=True, help="About how long each run should take.")
@click.option("--command", "commands", multiple=True, default=("drain", "run"), show_default=True)
@click.option("--case", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, help="Only these cases.")
def main(limits: tuple[int, ...], seconds: int, commands: tuple[str, ...], kinds: tuple[str, ...]) -> None:
    """Measure drains and workers against a throttled service."""
    console = Console(width=140)
    table = Table(title="Against a throttled service")
    for heading in ("", "arrived", "seconds", "steady /s", "share of what is left", "whole run", "receives", "exit"):
        table.add_column(heading, justify="left" if not heading else "right")
    goals = []
    for limit in limits:
        messages = max(1000, limit * seconds // 20 * 10)
        for command in commands:
            cases = {
                "one destination": Case(command, limit, messages),
                "three destinations": Case(command, limit, messages, destinations=3),
                "both sides": Case(command, limit, messages, both=True),
                "foreign client": Case(command, limit, messages // 2, foreign=True),
            }
            for case in (cases[kind] for kind in kinds):
                with tempfile.TemporaryDirectory() as folder:
                    found = measure(case, Path(folder))
                table.add_row(
                    str(case),
                    f"{found.arrived:,}",
                    f"{found.seconds:.0f}",
                    f"{found.steady:,.0f}",
                    f"{found.share:.2f}",
                    f"{found.whole_share:.2f}",
                    f"{found.per_message:.2f}",
                    "" if found.exit_code is None else str(found.exit_code),
                )
                console.print(
                    f"[dim]{case}: {found.arrived:,} in {found.seconds:.0f} s, share {found.share:.2f}, "
                    f"whole run {found.whole_share:.2f}, {found.per_message:.2f} receives per message, "
                    f"exit {found.exit_code}[/dim]"
                )
                goals.append(Target(f"share of what is left, {case}", found.share, 0.85))
                goals.append(Target(f"receives per message, {case}", found.per_message, 1.1, at_most=True))
                if found.exit_code is not None:
                    goals.append(Target(f"exit code, {case}", found.exit_code, 0, at_most=True))
    console.print(table)
    for goal in goals:
        console.print(f"{'[green]met' if goal.is_met else '[red]not met'}[/]  {goal}")


if __name__ == "__main__":
    main()
