"""`python -m bench.leaks --messages 10000000`: looks for leaks while messages pass at full speed for an hour.

A worker, or a pump alone, drains a backlog that is filled again all the time. The destinations are topics without
subscriptions: they accept messages and keep none, so any growth is a leak. The verdict compares the last third of the
samples with the middle third; the first third is for warming up.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from bench.commands import worker
from bench.fill import fill
from bench.stage import QUEUE, Place, emulator
from bench.task import asked
from bench.usage import Usage, usage
from bench.workloads import KB
from syphon.config import SideSettings
from syphon.servicebus.factory import namespace_of
from syphon.transfer.pump import Pump

DESTINATIONS = 8
AHEAD, CHUNK = 40_000, 10_000
"""The most messages in the backlog, and how many are added at a time."""
ALLOWED = (("megabytes", 0.05, 10), ("descriptors", 0, 8), ("sockets", 0, 8), ("processes", 0, 2))
"""The growth that is allowed, as a share and as an amount: heaps vary in size, and connections come and go."""
ENOUGH = 9
"""The fewest samples: three in each third."""
STANDSTILL = 300.0
"""Seconds without any message after which the run fails."""


@dataclass(frozen=True)
class Sample:
    seconds: float
    arrived: int
    transfer: Usage
    emulator: Usage


@dataclass(frozen=True)
class Trend:
    """One number in the middle and in the last third of a run."""

    what: str
    middle: float
    last: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.last - self.middle <= self.allowed


def trends(samples: Sequence[Sample]) -> Iterator[Trend]:
    third = len(samples) // 3
    for part in ("transfer", "emulator"):
        for number, share, least in ALLOWED:
            values = [float(getattr(getattr(sample, part), number)) for sample in samples]
            middle, last = median(values[third : 2 * third]), median(values[2 * third :])
            yield Trend(f"{number} of the {part}", middle, last, max(least, share * middle))


def watched(place: Place, transfer: int, messages: int, every: float, show: Callable[[Sample], None]) -> list[Sample]:
    """Keeps the backlog filled until so many messages have arrived, and takes a sample every few seconds."""
    samples: list[Sample] = []
    began = moved_at = due = time.monotonic()
    put = arrived = 0
    while arrived < messages:
        before, arrived, now = arrived, int(asked(place.primary_http, "counters")["totals"]["send"]), time.monotonic()
        if arrived > before:
            moved_at = now
        elif now - moved_at > STANDSTILL:
            raise RuntimeError(f"nothing has arrived for {STANDSTILL:.0f} s, after {arrived} messages")
        if now >= due:
            samples.append(Sample(now - began, arrived, usage(transfer), usage(place.process)))
            show(samples[-1])
            due = now + every
        if put < messages and put - arrived < AHEAD:
            fill(place.secondary, QUEUE, CHUNK, KB, lambda number: f"d{number % DESTINATIONS}")
            put += CHUNK
        else:
            time.sleep(0.2)
    return samples


@contextmanager
def pump(place: Place) -> Iterator[int]:
    """Runs one pump after the other in its own process, as a worker does; yields its process id."""
    process = multiprocessing.get_context("spawn").Process(target=_pump_for_ever, args=(place,))
    process.start()
    try:
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join()


def _pump_for_ever(place: Place) -> None:
    while True:
        home = namespace_of(SideSettings(connection_string=SecretStr(place.primary)), "")
        away = namespace_of(SideSettings(connection_string=SecretStr(place.secondary)), QUEUE)
        pump = Pump(away, home, lambda _: None)
        pump.serve(QUEUE)
        pump.run()
        away.close()
        home.close()


@click.command()
@click.option("--messages", default=10_000_000, show_default=True, help="How many messages to forward.")
@click.option("--every", default=30.0, show_default=True, help="Seconds between two samples.")
@click.option("--transfer", type=click.Choice(["worker", "pump"]), default="worker", show_default=True)
def main(messages: int, every: float, transfer: str) -> None:
    """Look for leaks while messages pass at full speed; exit code 1 if there is one."""
    console = Console()
    if not console.is_terminal:
        console.width = 130
    destinations = [f"d{number}" for number in range(DESTINATIONS)]
    with (
        tempfile.TemporaryDirectory() as folder,
        emulator(destinations, kind="topics") as place,
        worker(place, Path(folder), 1) if transfer == "worker" else pump(place) as process,
    ):
        samples = watched(place, process, messages, every, lambda sample: console.print(line(sample), style="dim"))
    if len(samples) < ENOUGH:
        raise click.ClickException(f"{len(samples)} samples are too few: use more --messages, or a shorter --every.")
    found = list(trends(samples))
    console.print(table(samples), verdict(samples, found))
    sys.exit(not all(trend.is_flat for trend in found))


def line(sample: Sample) -> str:
    return f"{sample.seconds:,.0f} s, {sample.arrived:,} messages, {sample.transfer.megabytes:,.0f} MB"


def table(samples: Sequence[Sample]) -> Table:
    """About twenty of the samples."""
    headings = ("MB", "files", "sockets", "processes")
    shown = Table("seconds", "messages", *headings, *headings, title="The transfer, and the emulator")
    for sample in samples[:: max(1, len(samples) // 20)]:
        cells = [*_cells(sample.transfer), *_cells(sample.emulator)]
        shown.add_row(f"{sample.seconds:,.0f}", f"{sample.arrived:,}", *cells)
    return shown


def _cells(part: Usage) -> list[str]:
    return [f"{part.megabytes:,.0f}", str(part.descriptors), str(part.sockets), str(part.processes)]


def verdict(samples: Sequence[Sample], found: Sequence[Trend]) -> Table:
    """Growth per million messages, from the centre of the middle third to the centre of the last."""
    millions = (samples[-1].arrived - samples[0].arrived) / 3 / 1e6
    shown = Table("", "middle third", "last third", "per million", "verdict")
    for trend in found:
        growth = f"{(trend.last - trend.middle) / millions:+,.1f}"
        shown.add_row(
            trend.what, f"{trend.middle:,.1f}", f"{trend.last:,.1f}", growth, "flat" if trend.is_flat else "GROWS"
        )
    return shown


if __name__ == "__main__":
    main()
