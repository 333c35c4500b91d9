"""The time budget holds together, and stands in one place (D25)."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

import pytest

from syphon import time_budget
from tests.support.time_relations import RELATIONS, Relation
from tests.support.tools import ROOT

OF_THEIR_OWN = ("control/shutdown_budget.py", "transfer/congestion.py", "spark/jvm_archive.py")
"""Modules that are a time budget themselves, or tune a control loop."""
A_WAIT = re.compile(r"(WITHIN|EVERY|AFTER|TIMEOUT|PATIENCE|INTERVAL|GRACE|DELAY|TURN|TICK|SILENCE|QUIET)$")


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: " < ".join(relation.chain))
def test_what_must_be_shorter_is_shorter(relation: Relation) -> None:
    assert all(shorter <= longer for shorter, longer in pairwise(relation.values())), f"{relation}: {relation.why}"


def test_constants_of_time_stand_in_the_budget() -> None:
    elsewhere = []
    for path in sorted((ROOT / "syphon").rglob("*.py")):
        name = path.relative_to(ROOT / "syphon").as_posix()
        if name in OF_THEIR_OWN or name.startswith("emulator/") or name in ("cli/emulator.py", "cli/demo.py"):
            continue
        for node in ast.parse(path.read_text()).body:
            if name != "time_budget.py" and isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                target = ast.unparse(node.targets[0])
                if type(node.value.value) is float and A_WAIT.search(target):
                    elsewhere.append(f"{name}: {target}")
    assert elsewhere == []


def test_each_duration_has_one_name() -> None:
    text = (ROOT / "syphon" / "time_budget.py").read_text()
    names = [node.targets[0].id for node in ast.parse(text).body if isinstance(node, ast.Assign)]  # type: ignore[attr-defined]
    assert len(names) == len(set(names))
    assert all(getattr(time_budget, name) > 0 for name in names)
