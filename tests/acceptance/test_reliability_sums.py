"""The sums in docs/reliability.md and in the README are those of the rows of its tables."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.results import Record, table

ROOT = Path(__file__).parents[2]
RELIABILITY = (ROOT / "docs/reliability.md").read_text()
README = " ".join((ROOT / "README.md").read_text().split())


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
    (table,) = (part for part in RELIABILITY.split("\n\n") if part.startswith(f"| | {title} | on |"))
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


def test_the_sentences_have_the_sums_of_the_table() -> None:
    sums = sums_of("fault")
    said = " ".join(RELIABILITY.split())
    assert f"{sums.scenarios} scenarios, {sums.runs} runs" in said
    assert (
        f"Of {sums.messages:,} acknowledged messages {sums.lost} were lost, and {sums.unexpected} were found that "
        "should not be there."
    ) in said
    assert f"- {sums.came_twice} came twice" in said
    assert f"- {sums.dead_letters} went to the dead letters" in said


def test_the_sentence_on_websockets_has_the_sums_of_its_table() -> None:
    sums = sums_of("fault, over WebSockets")
    said = " ".join(RELIABILITY.split())
    assert f"all {sums.runs} runs passed, and none of {sums.messages:,} messages was lost." in said
    assert (sums.lost, sums.unexpected) == (0, 0)


def test_the_readme_has_the_sums_of_both_tables() -> None:
    plain, websockets = sums_of("fault"), sums_of("fault, over WebSockets")
    assert f"[{plain.scenarios} fault scenarios](docs/reliability.md)" in README
    assert (
        f"In the {plain.runs + websockets.runs} runs that it lists, none of "
        f"{plain.messages + websockets.messages:,} messages was lost."
    ) in README


def test_the_tables_of_simulated_incidents_are_those_of_the_record() -> None:
    shown = RELIABILITY.partition("<!-- simulation -->\n")[2].partition("\n<!-- /simulation -->")[0]
    assert shown.splitlines() == list(table(Record.read(ROOT / "tests/simulation/record.json")))
