"""`python -m bench.page bench.json`: writes the results of a run into two pages, with charts.

The pages are bench/RESULTS.md and docs/performance.md.
It replaces the text between `<!-- bench: NAME -->` and `<!-- /bench -->`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import click

from bench.charts import Axis, above, bars, decades, lines
from bench.report import Report
from bench.stage import Measured
from bench.workloads import FAR, LONG, MIDDLE, NEAR, ONE, OURS, PEERS, SCALING, Workload, workloads

DOCS = Path(__file__).parents[1] / "docs"
SUMMARY = (NEAR, FAR, ONE, "1,000 destinations", "64 KB, TLS")
"""The workloads of the summary in docs/performance.md."""
LOOPS = {**PEERS, **OURS}
BLOCK = re.compile(r"(<!-- bench: (\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)


@click.command()
@click.argument("found", type=click.Path(path_type=Path, exists=True), default=Path("bench.json"))
@click.option("--docs", type=click.Path(path_type=Path, exists=True), default=DOCS, help="Where performance.md is.")
def main(found: Path, docs: Path) -> None:
    """Write the tables of bench/RESULTS.md, and the tables and charts of docs/performance.md."""
    report = Report.read(found)
    pages = (docs.parent / "bench" / "RESULTS.md", docs / "performance.md")
    for page in (page for page in pages if page.exists()):
        page.write_text(filled(page.read_text(), report))
    for name, chart in charts(report).items():
        (docs / f"{name}.svg").write_text(chart)


def filled(page: str, report: Report) -> str:
    return BLOCK.sub(lambda block: f"{block[1]}{PARTS[block[2]](report)}\n{block[3]}", page)


# --- tables ---------------------------------------------------------------------------------------------------------


def machine(report: Report) -> str:
    return "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in report.machine.items())


def results(report: Report) -> str:
    rows = ["| workload | loop | messages | messages/s | once open | CPU-s per 1000 | emulator's | peak memory |"]
    rows.append("|---|---|--:|--:|--:|--:|--:|--:|")
    for workload in workloads(1):
        for loop in workload.counts:
            measured = report.results.get((workload.name, loop))
            cells = _cells(measured, workload) if measured else [report.absent.get(loop, "not measured"), *[""] * 5]
            row = [workload.name, LOOPS[loop], *cells]
            rows.append(f"| {' | '.join(f'**{cell}**' if cell and loop == 'pump' else cell for cell in row)} |")
    return "\n".join(rows)


def summary(report: Report) -> str:
    """The speed of each loop, once its connections are open, in a few workloads."""
    loops = [loop for loop in LOOPS if any((workload, loop) in report.results for workload in SUMMARY)]
    rows = [f"| messages/s | {' | '.join(LOOPS[loop] for loop in loops)} |", f"|---|{'--:|' * len(loops)}"]
    for workload in SUMMARY:
        found = [report.results.get((workload, loop)) for loop in loops]
        cells = [f"{each.speed:,.0f}" if each and not each.stopped else "" for each in found]
        rows.append(f"| {workload} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _cells(found: Measured, workload: Workload) -> list[str]:
    memory = f"{found.megabytes:,.0f} MB"
    if found.stopped:
        arrived = f"{found.arrived:,} of {workload.arriving(found.messages):,}"
        return [arrived, f"stops: {found.stopped}", "", "", "", memory]
    steady = f"{found.steady_per_second:,.0f}" if found.steady_per_second else ""
    seconds = f"{found.cpu_per_1000:.3f}", f"{found.emulator_cpu_per_1000:.3f}"
    return [f"{found.arrived:,}", f"{found.per_second:,.0f}", steady, *seconds, memory]


def goals(report: Report) -> str:
    rows = ["| | measured | target | |", "|---|--:|--:|---|"]
    for target in report.targets():
        what = f"{target.what} (worst: {target.where})" if target.where else target.what
        bound = f"{'≤' if target.at_most else '≥'} {target.wanted:g}"
        rows.append(f"| {what} | {target.found:.3g} | {bound} | {'met' if target.is_met else '**not met**'} |")
    return "\n".join(rows)


def costs(report: Report) -> str:
    rows = [f"| {cost.what} | {cost.value:.3g} {cost.unit} |" for cost in report.costs]
    return "\n".join(["| | |", "|---|--:|", *rows])


def profile(report: Report) -> str:
    """The modules that take a microsecond or more; and the sum of all others."""
    shown = {f"`{module}`": micros for module, micros in report.profile.items() if micros >= 1}
    total = sum(report.profile.values())
    shown |= {"all others": total - sum(shown.values()), "total": total}
    rows = [f"| {module} | {micros:.1f} |" for module, micros in shown.items()]
    return "\n".join(["| module | µs a message |", "|---|--:|", *rows])


def limits(report: Report) -> str:
    """The speed of a core that does nothing else, by the CPU time that a message took."""
    found = report.results.get((LONG, "pump")) or report.results[NEAR, "pump"]
    speeds = {
        f"measured ({found.workload})": found.per_second,
        "one core that runs only the pump": 1000 / found.cpu_per_1000,
        "one core that runs only the emulator, which is one process": 1000 / found.emulator_cpu_per_1000,
        "both on two cores that run nothing else": 2000 / (found.cpu_per_1000 + found.emulator_cpu_per_1000),
    }
    rows = [f"| {what} | {speed:,.0f} |" for what, speed in speeds.items()]
    return "\n".join(["| 1 KB, 8 destinations | messages/s |", "|---|--:|", *rows])


PARTS: dict[str, Callable[[Report], str]] = {
    "machine": machine,
    "results": results,
    "summary": summary,
    "targets": goals,
    "costs": costs,
    "profile": profile,
    "limits": limits,
}


# --- charts ---------------------------------------------------------------------------------------------------------


def charts(report: Report) -> dict[str, str]:
    """The charts for which there are measurements, by the names of their files."""
    drawn = {
        "performance-speed": _by_loop(report, "Messages per second, 1 KB, one destination", "messages/s", "speed"),
        "performance-cpu": _by_loop(report, "CPU time, 1 KB, one destination", "CPU-s per 1000", "cpu_per_1000"),
        "performance-distance": _by_distance(report),
        "performance-scaling": _by_count(report),
    }
    return {name: chart for name, chart in drawn.items() if chart}


def _by_loop(report: Report, title: str, unit: str, number: str) -> str:
    values = {
        LOOPS[loop]: float(getattr(found, number))
        for (workload, loop), found in report.results.items()
        if workload == ONE and not found.stopped
    }
    return bars(title, unit, values, OURS["pump"]) if values else ""


def _by_distance(report: Report) -> str:
    distances = {NEAR: 0.0, MIDDLE: 5.0, FAR: 20.0}
    series = {
        LOOPS[loop]: [
            (milliseconds, report.results[workload, loop].speed)
            for workload, milliseconds in distances.items()
            if (workload, loop) in report.results
        ]
        for loop in ("sdk_sync", "sdk_async", "node", "pump")
    }
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    speeds = [speed for points in series.values() for _, speed in points]
    distance, speed = Axis("round trip in ms", (0, 5, 10, 15, 20)), Axis("messages/s", decades(speeds), is_log=True)
    return lines("Speed and distance, 1 KB, 8 destinations", distance, speed, series, OURS["pump"])


def _by_count(report: Report) -> str:
    points = [
        (float(count), report.results[name, "pump"].cpu_per_1000)
        for name, count in SCALING.items()
        if (name, "pump") in report.results
    ]
    if not points:
        return ""
    messages = Axis("messages in the backlog", (10_000, 100_000, 1_000_000), is_log=True)
    cost = Axis("CPU-s per 1000", above(max(cost for _, cost in points)))
    ours = OURS["pump"]
    return lines("The cost of a message and the length of the backlog", messages, cost, {ours: points}, ours)


if __name__ == "__main__":
    main()
