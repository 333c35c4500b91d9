"""Nothing is lost and nothing is made up, whatever goes wrong: the faults that every release survives.

A few of them run with all other tests. `make faults` runs them all.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import on_the_pump
from .scenario import Ending, Scenario, play

SEED = int(os.environ.get("SEED", "1"))


def kinds(module: object) -> list[type[Scenario]]:
    found = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Scenario)]
    return [kind for kind in found if hasattr(kind, "words") and kind.__module__ == getattr(module, "__name__", "")]


@pytest.mark.parametrize("ending", list(Ending))
@pytest.mark.parametrize("kind", kinds(on_the_pump), ids=lambda kind: kind.name())
def test_nothing_is_lost(kind: type[Scenario], ending: Ending, tmp_path: Path) -> None:
    print(play(kind, ending, SEED, tmp_path))
