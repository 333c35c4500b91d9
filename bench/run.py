"""`make bench`: the pump beside the SDK's own loops, in one run, on one emulator, with the same messages.

Prints a table of ratios and writes bench.json. Numbers of two machines say little to each other; the ratios do.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from .fill import fill

QUEUE = "contoso/x-servicebus-transfer/0"


@dataclass(frozen=True)
class Workload:
    """What is moved, and over which distance."""

    name: str
    size: int
    destinations: int
    round_trip: int
    counts: dict[str, int]
    """How many messages each loop moves: a slow one fewer, so that a run ends today."""


@dataclass(frozen=True)
class Measured:
    """What one loop took for one workload."""

    workload: str
    loop: str
    messages: int
    per_second: float
    cpu_per_1000: float
    megabytes: float


def workloads(scale: float) -> list[Workload]:
    many = max(1000, round(20_000 * scale))
    few = max(300, round(3_000 * scale))
    return [
        Workload("1 KB, 8 destinations", 1024, 8, 0, {"sdk_sync": few, "sdk_async": few, "pump": many}),
        Workload("1 KB, 8 destinations, 20 ms", 1024, 8, 20, {"sdk_sync": 200, "sdk_async": few, "pump": many}),
        Workload("1 KB, 1000 destinations", 1024, 1000, 0, {"pump": many}),
        Workload("64 KB, 8 destinations", 65_536, 8, 0, {"sdk_sync": 500, "sdk_async": 500, "pump": many // 10}),
        Workload("1 KB, 8 destinations, 200 k", 1024, 8, 0, {"pump": many * 10}),
    ]


@contextmanager
def emulator(destinations: int) -> Iterator[tuple[str, str]]:
    """Two namespaces, fresh: connection strings of the primary and the secondary."""
    queues = "".join(f"      - {{name: d{i}, max_size_in_megabytes: 5120}}\n" for i in range(destinations))
    settings = (
        "namespaces:\n  - name: contoso\n    amqp_port: 0\n    http_port: 0\n    queues:\n" + queues
        + "  - name: contoso-dr\n    amqp_port: 0\n    http_port: 0\n    queues:\n"
        + f"      - {{name: {QUEUE}, max_delivery_count: 2147483647, max_size_in_megabytes: 5120, lock_duration: 5m}}\n"
    )  # fmt: skip
    command = [sys.executable, "-m", "syphon", "emulator", "--json", "--config", "/dev/stdin"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(settings)
            process.stdin.close()
            found = json.loads(process.stdout.readline())["namespaces"]
            yield found[0]["connection_string"], found[1]["connection_string"]
        finally:
            process.terminate()


@contextmanager
def distant(connection_string: str, round_trip: int) -> Iterator[str]:
    """The same namespace, further away."""
    if not round_trip:
        yield connection_string
        return
    port = connection_string.partition("127.0.0.1:")[2].partition(";")[0]
    command = [sys.executable, "-m", "bench.proxy", port, str(round_trip / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield connection_string.replace(f":{port}", f":{process.stdout.readline().strip()}")
        finally:
            process.terminate()


def measure(workload: Workload, loop: str) -> Measured:
    count = workload.counts[loop]
    with emulator(workload.destinations) as (primary, secondary):
        fill(secondary, QUEUE, count, workload.size, workload.destinations)
        with distant(primary, workload.round_trip) as home, distant(secondary, workload.round_trip) as away:
            command = [sys.executable, "-m", "bench.loops", loop, QUEUE, str(count)]
            environment = {**os.environ, "PRIMARY": home, "SECONDARY": away}
            done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True)  # noqa: S603
    result = json.loads(done.stdout)
    if result["moved"] != count:
        raise RuntimeError(f"{loop} moved {result['moved']} of {count} messages")
    return Measured(
        workload.name, loop, count, count / result["seconds"], result["cpu"] / count * 1000, result["megabytes"]
    )


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="A share of the usual number of messages.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench.json"), show_default=True)
def main(scale: float, output: Path) -> None:
    """Measure the pump beside the SDK's loops."""
    console = Console()
    table = Table(title="Messages from a backlog queue to their destinations")
    for heading in ("workload", "loop", "messages/s", "against SDK sync", "CPU-s per 1000", "against SDK sync", "MB"):
        table.add_column(heading, justify="left" if heading in ("workload", "loop") else "right")
    results: list[Measured] = []
    for workload in workloads(scale):
        base: Measured | None = None
        for loop in workload.counts:
            console.print(f"[dim]{workload.name}: {loop} …[/dim]")
            found = measure(workload, loop)
            base = found if loop == "sdk_sync" else base
            results.append(found)
            console.print(f"  {found.per_second:,.0f} messages/s, {found.cpu_per_1000:.3f} CPU-s per 1000")
            table.add_row(
                workload.name, loop, f"{found.per_second:,.0f}",
                f"{found.per_second / base.per_second:.1f} ×" if base else "",
                f"{found.cpu_per_1000:.3f}",
                f"1/{base.cpu_per_1000 / found.cpu_per_1000:.1f}" if base else "", f"{found.megabytes:.0f}",
            )  # fmt: skip
    console.print(table)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    report = {"machine": machine, "results": [asdict(found) for found in results]}
    output.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"Written to {output}")


if __name__ == "__main__":
    main()
