"""What a drain says in the end, and its exit code: 0 only if nothing is left (X2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syphon.cli.drain import _exit_code, _verdict
from syphon.cli.exit_codes import ExitCode
from syphon.spark.totals import Totals
from syphon.worker.drain import DrainResult, QueueState


def result(*queues: tuple[str, QueueState]) -> DrainResult:
    found: list[Any] = [
        SimpleNamespace(pair=SimpleNamespace(name=pair), state=state, account=Totals(), remaining=0, fault=None)
        for pair, state in queues
    ]
    return DrainResult(tuple(found), 1.0)


EMPTY, AWAY = QueueState.EMPTY, QueueState.NOT_THERE


@pytest.mark.parametrize("queues", [[("a", EMPTY)], [("a", EMPTY), ("a", AWAY)], [("a", EMPTY), ("b", EMPTY)]])
def test_empty_queues_are_an_empty_backlog(queues: list[tuple[str, QueueState]]) -> None:
    found = result(*queues)
    assert (_exit_code(found), _verdict(found)) == (ExitCode.OK, "Nothing is left: 0 forwarded.")


@pytest.mark.parametrize("queues", [[("b", AWAY)], [("b", AWAY), ("b", AWAY)], [("a", EMPTY), ("b", AWAY)]])
def test_a_pair_of_which_no_queue_is_there_may_be_the_wrong_one(queues: list[tuple[str, QueueState]]) -> None:
    found = result(*queues)
    assert _exit_code(found) is ExitCode.LEFT
    assert "None of the backlog queues of b is there: see `syphon check`" in _verdict(found)
