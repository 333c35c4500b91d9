"""`python -m bench.emulator`: the CPU time that the emulator itself takes for 1,000 messages, by the client it serves.

Every benchmark runs on the emulator, so its cost limits what they can show. Each message is received, forwarded and
completed. CPU time is less disturbed by other programs than speed is; the client's CPU time beside it shows how busy
the machine was.
"""

from __future__ import annotations

from dataclasses import replace

import click

from bench.stage import Measured, measure
from bench.workloads import NEAR, OURS, PEERS, workloads

COUNTS = {"pump": 20_000, "sdk_sync": 4_000}


def costs(rounds: int) -> list[Measured]:
    """The round with the lowest cost for each client: other programs can only add to it."""
    near = next(workload for workload in workloads(1.0) if workload.name == NEAR)
    found = []
    for loop, count in COUNTS.items():
        results = [measure(replace(near, counts={loop: count}), loop) for _ in range(rounds)]
        found.append(min(results, key=lambda result: result.emulator_cpu_per_1000))
    return found


@click.command()
@click.option("--rounds", default=3, help="How often each client runs; the best round counts.")
def main(rounds: int) -> None:
    """Measures the emulator's cost and prints it."""
    for result in costs(rounds):
        name = (PEERS | OURS)[result.loop]
        click.echo(
            f"{name}: {result.emulator_cpu_per_1000:.3f} CPU-s of the emulator for 1,000 messages "
            f"({result.cpu_per_1000:.3f} of the client; {result.messages:,} messages of 1 KB)"
        )


if __name__ == "__main__":
    main()
