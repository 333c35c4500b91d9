"""`make bench`: compares the pump with other tools, in one run, on one emulator, with the same messages.

Prints a table of ratios and which targets are met, and writes bench.json. The numbers of two machines cannot be
compared; their ratios can.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench import javascript, shovel
from bench.costs import costs
from bench.report import Report
from bench.sampling import where
from bench.stage import Measured, measure
from bench.workloads import workloads

WORKLOADS = [workload.name for workload in workloads(1)]
LOOPS = sorted({loop for workload in workloads(1) for loop in workload.counts})


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="A share of the default number of messages.")
@click.option("--repeat", default=1, show_default=True, help="How often each is measured, in turn; medians are shown.")
@click.option("--only", "wanted", type=click.Choice(WORKLOADS), multiple=True, help="A workload. May be given again.")
@click.option("--loop", "loops", type=click.Choice(LOOPS), multiple=True, help="A loop. May be given again.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("bench.json"), show_default=True)
def main(scale: float, repeat: int, wanted: tuple[str, ...], loops: tuple[str, ...], output: Path) -> None:
    """Compare the pump with other tools."""
    console = Console()
    if not console.is_terminal:
        console.width = 130
    here = machine(scale)
    absent = {loop: why for loop, why in {"node": javascript.missing(), "shovel": shovel.missing()}.items() if why}
    results: dict[tuple[str, str], Measured] = {}
    for workload in workloads(scale):
        if wanted and workload.name not in wanted:
            continue
        chosen = [loop for loop in workload.counts if loop not in absent and (not loops or loop in loops)]
        found: dict[str, list[Measured]] = {loop: [] for loop in chosen}
        for _ in range(repeat):
            for loop, runs in found.items():
                runs.append(measure(workload, loop))
                console.print(f"[dim]{workload.name}, {loop}: {summary(runs[-1])}[/dim]")
        results |= {(workload.name, loop): middle(runs) for loop, runs in found.items()}
    report = Report(here, results, [], {}, absent)
    if not (wanted or loops):
        report = replace(report, costs=list(costs(scale >= 1)), profile=where(round(40_000 * scale)))
    show(report, console)
    report.write(output)
    console.print(f"Written to {output}")


def summary(found: Measured) -> str:
    if found.stopped:
        return f"stopped by {found.stopped}"
    return f"{found.per_second:,.0f} messages/s, {found.cpu_per_1000:.3f} CPU-s per 1000"


def middle(runs: list[Measured]) -> Measured:
    """The median of each number."""
    numbers = [field.name for field in fields(Measured) if field.type == "float"]
    return Measured(**asdict(runs[0]) | {name: median(getattr(run, name) for run in runs) for name in numbers})


def show(report: Report, console: Console) -> None:
    console.print(table(report.results))
    for cost in report.costs:
        console.print(str(cost))
    for loop, why in report.absent.items():
        console.print(f"{loop}: {why}")
    for target in report.targets():
        console.print(f"{'[green]met' if target.is_met else '[red]not met'}[/]  {target}")


def table(results: Mapping[tuple[str, str], Measured]) -> Table:
    shown = Table(title="Messages from a backlog queue to their destinations")
    for heading in ("workload", "loop"):
        shown.add_column(heading, no_wrap=True)
    for heading in ("a second", "once open", "SDK sync", "CPU-s/1000", "SDK sync", "MB"):
        shown.add_column(heading, justify="right")
    for (workload, loop), found in results.items():
        base = results.get((workload, "sdk_sync"))
        if found.stopped:
            shown.add_row(workload, loop, "stopped", "", "", "", "", f"{found.megabytes:.0f}")
            continue
        ratios = base is not None and not base.stopped
        shown.add_row(
            workload,
            loop,
            f"{found.per_second:,.0f}",
            f"{found.steady_per_second:,.0f}",
            f"{found.speed / base.speed:.1f} ×" if base and ratios else "",
            f"{found.cpu_per_1000:.3f}",
            f"1/{base.cpu_per_1000 / found.cpu_per_1000:.1f}" if base and ratios else "",
            f"{found.megabytes:.0f}",
        )
    return shown


def machine(scale: float) -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gigabytes": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "azure-servicebus": importlib.metadata.version("azure-servicebus"),
        "pyspark": importlib.metadata.version("pyspark"),
        "node": _version("node", "--version"),
        "rabbitmq-server": _version("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "scale": scale,
        "load_before": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def _version(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return "not installed"


if __name__ == "__main__":
    main()
