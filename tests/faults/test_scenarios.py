"""No message is lost or invented in any fault scenario: every release passes all of them (S2, C2, X1).

A few run with all other tests. `make faults` runs them all; with `SEED=7 make faults` they happen at other moments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scenario import Ending, Scenario, run_scenario
from tests.faults.table import ALL, WITH_EVERY_CHANGE

SEED = int(os.environ.get("SEED") or 1)


def scenarios() -> Iterator[Any]:
    for kind in ALL:
        for ending in Ending:
            marks = [] if (kind, ending) in WITH_EVERY_CHANGE else [pytest.mark.faults]
            yield pytest.param(kind, ending, marks=marks, id=f"{kind.name()}, {ending}")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "ending"), list(scenarios()))
def test_every_message_is_accounted_for(
    kind: type[Scenario], ending: Ending, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("verdict", f"{kind.name()}, {ending}: {run_scenario(kind, ending, SEED, tmp_path)}")


def test_the_table_has_every_number_once_or_more() -> None:
    assert {kind.number for kind in ALL} == set(range(1, 34))


def test_scenarios_that_run_with_every_change_are_in_the_table() -> None:
    assert {kind for kind, _ in WITH_EVERY_CHANGE} <= set(ALL)
