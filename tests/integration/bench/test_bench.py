"""The benchmarks: what they count, when a target is met, and what they draw and write of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.charts import Axis, above, bars, decades, lines
from bench.costs import Cost
from bench.leaks import Sample, trends
from bench.page import charts, filled
from bench.report import Report
from bench.stage import Measured
from bench.targets import Target, targets
from bench.usage import TICKS, Usage, cpu, peak_megabytes, usage
from bench.workloads import FAR, FAR_SESSION, LONG, NEAR, ONE, ORDERED, SESSIONS, SHORT, workloads

BUSY_CHILD = """
import subprocess, sys
busy = "sum(range(10**7)); print('up', flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE)
input()
child.communicate(b"\\n")
print("ended", flush=True)
input()
"""


def measured(workload: str, loop: str, speed: float, cpu_per_1000: float = 0.1, stopped: str = "") -> Measured:
    return Measured(workload, loop, 1000, 1000, speed, speed, cpu_per_1000, 50.0, 0.1, stopped)


def report(*results: Measured) -> Report:
    by_name = {(result.workload, result.loop): result for result in results}
    absent = {"node": "node or npm is not installed"}
    return Report({"cores": 2}, by_name, [Cost("syphon --help", 0.2, "s")], {"bus.wire": 4.2, "cli": 0.1}, absent)


def target(what: str, *results: Measured) -> Target:
    (found,) = [target for target in targets(report(*results).results) if what in target.what]
    return found


def test_a_process_that_has_ended_still_counts_in_the_time_of_its_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert usage(process.pid).processes == 2
        together = peak_megabytes(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert usage(process.pid).processes == 1
        own = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        assert cpu(process.pid) > sum(map(int, own[11:13])) / TICKS
        assert peak_megabytes(process.pid) < together
        process.communicate("\n")


def test_a_target_is_checked_against_the_closest_peer() -> None:
    found = target(
        "times the speed of the best other peer",
        measured(NEAR, "pump", 1000),
        measured(NEAR, "sdk_async", 100),
        measured(NEAR, "node", 200),
        measured(ONE, "pump", 1000),
        measured(ONE, "shovel", 900),
    )
    assert found.found == pytest.approx(1000 / 900)
    assert found.where == "1 destination, RabbitMQ shovel"
    assert not found.is_met


def test_a_loop_that_stopped_early_is_not_compared() -> None:
    results = measured(NEAR, "pump", 1000), measured(NEAR, "node", 1, stopped="QuotaExceeded")
    assert not [target for target in targets(report(*results).results) if "node" in target.what]


@pytest.mark.parametrize(("steady", "times"), [(50.0, 2.0), (0.0, 4.0)])
def test_speeds_are_compared_with_or_without_the_opening_of_connections_in_both(steady: float, times: float) -> None:
    ours = Measured(NEAR, "pump", 10, 10, 20.0, 100.0, 0.1, 50.0, 0.1)
    theirs = Measured(NEAR, "node", 10, 10, 5.0, steady, 0.1, 50.0, 0.1)
    assert target("times the speed of @azure/service-bus", ours, theirs).found == times


def test_a_longer_backlog_may_cost_a_tenth_more() -> None:
    def ratio(cpu_per_1000: float) -> Target:
        return target("with 500,000", measured(SHORT, "pump", 1000, 0.1), measured(LONG, "pump", 1000, cpu_per_1000))

    assert ratio(0.109).is_met
    assert not ratio(0.112).is_met


def test_distance_may_cost_a_quarter_of_the_speed() -> None:
    assert target("speed at 20 ms", measured(NEAR, "pump", 1000), measured(FAR, "pump", 760)).is_met
    assert not target("speed at 20 ms", measured(NEAR, "pump", 1000), measured(FAR, "pump", 740)).is_met


def test_the_order_of_sessions_may_cost_half_of_the_speed() -> None:
    assert target("1,000 sessions", measured(SESSIONS, "pump", 1000), measured(SESSIONS, ORDERED, 510)).is_met
    assert not target("1,000 sessions", measured(SESSIONS, "pump", 1000), measured(SESSIONS, ORDERED, 490)).is_met
    assert target("one session", measured(FAR_SESSION, ORDERED, 2501)).is_met  # 100 messages per 20 ms would be 5,000


def test_one_message_in_ten_is_not_for_the_stuck_destination() -> None:
    (stuck,) = [workload for workload in workloads(1) if workload.is_stuck]
    count = stuck.counts["pump"]
    free = [stuck.destination(number) for number in range(count) if stuck.destination(number) != "stuck"]
    assert len(free) == stuck.arriving(count) == count // 10
    assert set(free) == {f"d{number}" for number in range(stuck.destinations)}


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = report(measured(NEAR, "pump", 1000), measured(FAR, "pump", 900))
    written.write(tmp_path / "bench.json")
    assert Report.read(tmp_path / "bench.json") == written


def test_the_page_is_filled_between_its_marks_and_again() -> None:
    page = "# Ours\n<!-- bench: results -->\nold\n<!-- /bench -->\nwords\n<!-- bench: targets -->\n<!-- /bench -->\n"
    found = report(measured(NEAR, "pump", 12_345), measured(FAR, "pump", 900), measured(NEAR, "sdk_sync", 5))
    once = filled(page, found)
    assert "**12,345**" in once
    assert "not installed" in once
    assert "**not met**" in once
    assert "old" not in once
    assert "words" in once
    assert filled(once, found) == once


def test_charts_are_drawn_of_what_was_measured() -> None:
    found = report(measured(ONE, "pump", 1000), measured(ONE, "sdk_sync", 500), measured(SHORT, "pump", 1, 0.05))
    drawn = charts(found)
    assert set(drawn) == {"performance-speed", "performance-cpu", "performance-scaling"}
    for chart in drawn.values():
        ElementTree.fromstring(chart)


def test_bars_begin_at_zero() -> None:
    drawn = ElementTree.fromstring(bars("speed", "messages/s", {"theirs": 250.0, "ours": 1000.0}, "ours"))
    rects = drawn.findall("{http://www.w3.org/2000/svg}rect[@height='22']")
    theirs, ours = (float(rect.attrib["width"]) for rect in rects)
    assert ours / theirs == pytest.approx(4, rel=0.01)


def test_a_chart_says_which_scale_it_has() -> None:
    speed = Axis("a second", decades([45, 9000]), is_log=True)
    drawn = lines("<speed>", Axis("ms", (0, 20)), speed, {"a": [(0, 45)]}, "a")
    assert "a second (log scale) over ms (from zero)" in drawn
    assert "&lt;speed&gt;" in drawn


@pytest.mark.parametrize(("value", "top"), [(0.051, 0.1), (0.1, 0.1), (7, 10), (12, 20), (99, 100)])
def test_an_axis_ends_at_a_round_number(value: float, top: float) -> None:
    assert above(value)[0] == 0
    assert above(value)[-1] == pytest.approx(top)


@pytest.mark.parametrize(("growth", "is_flat"), [(0.0, True), (1.0, False)])
def test_growth_is_told_from_variation(growth: float, is_flat: bool) -> None:
    samples = [
        Sample(number, number * 1000, Usage(3, 500 + 5 * (number % 2) + growth * number, 40, 10), Usage(1, 80, 20, 10))
        for number in range(90)
    ]
    memory = next(trend for trend in trends(samples) if trend.what == "megabytes of the transfer")
    assert memory.is_flat is is_flat
