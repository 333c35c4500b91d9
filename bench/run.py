"""`make bench`: the pump beside the SDK's own loops, in one run, on one emulator, with the same messages.

Prints a table of ratios, says which targets are met, and writes bench.json. Numbers of two machines say little to each
other; the ratios do.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import asdict, fields
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from .stage import Measured, measure
from .targets import targets
from .workloads import workloads


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="A share of the usual number of messages.")
@click.option("--repeat", default=1, show_default=True, help="Times each is measured, in turn; medians are shown.")
@click.option("--only", "wanted", multiple=True, help="A workload, by its name. May be given again.")
@click.option("--loop", "loops", multiple=True, help="A loop, by its name. May be given again.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench.json"), show_default=True)
def main(scale: float, repeat: int, wanted: tuple[str, ...], loops: tuple[str, ...], output: Path) -> None:
    """Measure the pump beside the SDK's loops."""
    console = Console()
    load = os.getloadavg()[0]
    results: dict[tuple[str, str], Measured] = {}
    for workload in workloads(scale):
        if wanted and workload.name not in wanted:
            continue
        found: dict[str, list[Measured]] = {loop: [] for loop in workload.counts if not loops or loop in loops}
        for _ in range(repeat):
            for loop, runs in found.items():
                runs.append(measure(workload, loop))
                console.print(
                    f"[dim]{workload.name}, {loop}: {runs[-1].per_second:,.0f} messages/s, "
                    f"{runs[-1].cpu_per_1000:.3f} CPU-s per 1000[/dim]"
                )
        results |= {(workload.name, loop): middle(runs) for loop, runs in found.items()}
    console.print(table(results))
    goals = list(targets(results))
    for goal in goals:
        console.print(f"{'[green]met' if goal.is_met else '[red]not met'}[/]  {goal}")
    report = {
        "machine": machine() | {"load_before": load},
        "results": [asdict(result) for result in results.values()],
        "targets": [asdict(goal) | {"is_met": goal.is_met} for goal in goals],
    }
    output.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"Written to {output}")


def middle(runs: list[Measured]) -> Measured:
    """The median of each number."""
    numbers = [field.name for field in fields(Measured) if field.type == "float"]
    return Measured(**asdict(runs[0]) | {name: median(getattr(run, name) for run in runs) for name in numbers})


def table(results: dict[tuple[str, str], Measured]) -> Table:
    shown = Table(title="Messages from a backlog queue to their destinations")
    for heading in ("workload", "loop"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("a second", "once open", "SDK sync", "CPU-s/1000", "SDK sync", "MB"):
        shown.add_column(heading, justify="right")
    for (workload, loop), found in results.items():
        base = results.get((workload, "sdk_sync"))
        shown.add_row(
            workload, loop, f"{found.per_second:,.0f}", f"{found.steady_per_second:,.0f}",
            f"{found.per_second / base.per_second:.1f} ×" if base else "",
            f"{found.cpu_per_1000:.3f}",
            f"1/{base.cpu_per_1000 / found.cpu_per_1000:.1f}" if base else "", f"{found.megabytes:.0f}",
        )  # fmt: skip
    return shown


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "azure-servicebus": importlib.metadata.version("azure-servicebus"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
