"""The records of reliability tests agree with themselves, and their sums with the summaries that people read."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.simulation.results import Record, table

ROOT = Path(__file__).parents[2]
FAULTS = (ROOT / "tests/faults/RECORD.md").read_text()
RELIABILITY = (ROOT / "docs/reliability.md").read_text()
README = (ROOT / "README.md").read_text()


@dataclass(frozen=True)
class Sums:
    """What the rows of one table add up to. Each row stands for two runs, a clean one and an unclean one."""

    scenarios: int
    messages: int
    dead_letters: int
    came_twice: int
    lost: int
    unexpected: int

    @property
    def runs(self) -> int:
        return 2 * self.scenarios


def both_runs(cell: str) -> int:
    """The sum of the runs of a row: `5` is the number of each of them, `5, 7` are both."""
    numbers = [int(number) for number in cell.split(", ")]
    return sum(numbers) if len(numbers) == 2 else 2 * numbers[0]


def sums_of(title: str) -> Sums:
    (table,) = (part for part in FAULTS.split("\n\n") if part.startswith(f"| | {title} | on |"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    messages = [re.match(r"2 × ([\d,]+)", row[4]) for row in rows]
    return Sums(
        scenarios=len(rows),
        messages=sum(2 * int(found[1].replace(",", "")) for found in messages if found),
        dead_letters=sum(both_runs(row[5]) for row in rows),
        came_twice=sum(both_runs(row[6]) for row in rows),
        lost=sum(both_runs(row[7]) for row in rows),
        unexpected=sum(both_runs(row[8]) for row in rows),
    )


@pytest.mark.parametrize("title", ["fault", "fault, over WebSockets"])
def test_the_summary_has_the_sums_of_the_record(title: str) -> None:
    sums = sums_of(title)
    numbers = (sums.scenarios, sums.runs, sums.messages, sums.lost, sums.unexpected, sums.came_twice, sums.dead_letters)
    assert f"| {' | '.join(f'{number:,}' for number in numbers)} |" in RELIABILITY


def test_the_readme_has_the_sums_of_both_tables() -> None:
    plain, websockets = sums_of("fault"), sums_of("fault, over WebSockets")
    for number in (plain.scenarios, plain.runs + websockets.runs, plain.messages + websockets.messages):
        assert f"{number:,} " in README


def test_the_tables_of_simulated_incidents_are_those_of_the_record() -> None:
    page = (ROOT / "tests/simulation/RECORD.md").read_text()
    shown = page.partition("<!-- simulation -->\n")[2].partition("\n<!-- /simulation -->")[0]
    assert shown.splitlines() == list(table(Record.read(ROOT / "tests/simulation/record.json")))


@pytest.mark.parametrize("kind", ["ordered", "ordered-sends"])
def test_the_versions_of_ordered_incidents_are_those_of_the_record(kind: str) -> None:
    page = (ROOT / "tests/simulation/RECORD.md").read_text()
    shown = page.partition(f"<!-- {kind} -->\n")[2].partition(f"\n<!-- /{kind} -->")[0]
    recorded = list(table(Record.read(ROOT / f"tests/simulation/record-{kind}.json")))
    assert shown
    assert shown.splitlines() == recorded[-len(shown.splitlines()) :]
