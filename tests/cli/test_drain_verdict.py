"""What a drain says at its end, and its exit code: 0 only if nothing that was asked for is left (X2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from syphon.cli.drain import _exit_code, _verdict
from syphon.cli.exit_codes import ExitCode
from syphon.model import MessageFilter, PathPatterns
from syphon.spark.totals import Totals
from syphon.worker.drain import DrainOptions, DrainResult, DrainState


def result(*queues: tuple[str, DrainState], others: int = 0, moved: Totals = Totals()) -> DrainResult:  # noqa: B008
    found: list[Any] = [
        SimpleNamespace(
            pair=SimpleNamespace(name=pair), state=state, totals=moved, remaining=0, others=others, fault=None
        )
        for pair, state in queues
    ]
    return DrainResult(tuple(found), 1.0)


EMPTY, AWAY = DrainState.EMPTY, DrainState.NOT_THERE


@pytest.mark.parametrize("queues", [[("a", EMPTY)], [("a", EMPTY), ("a", AWAY)], [("a", EMPTY), ("b", EMPTY)]])
def test_empty_queues_are_an_empty_backlog(queues: list[tuple[str, DrainState]]) -> None:
    found = result(*queues)
    assert (_exit_code(found, DrainOptions()), _verdict(found)) == (ExitCode.OK, "Nothing is left: 0 forwarded.")


@pytest.mark.parametrize("queues", [[("b", AWAY)], [("b", AWAY), ("b", AWAY)], [("a", EMPTY), ("b", AWAY)]])
def test_a_pair_of_which_no_queue_is_there_may_be_the_wrong_one(queues: list[tuple[str, DrainState]]) -> None:
    found = result(*queues)
    assert _exit_code(found, DrainOptions()) is ExitCode.LEFT
    assert "None of the backlog queues of b exists: see `syphon check`" in _verdict(found)


BILLING = DrainOptions(messages=MessageFilter(PathPatterns.of(["billing/*"])))
OLD = DrainOptions(messages=MessageFilter(before=1))


@pytest.mark.parametrize(("options", "code"), [(BILLING, ExitCode.LEFT), (OLD, ExitCode.OK)])
def test_a_filter_that_matches_nothing_is_said_and_a_pattern_of_destinations_is_no_success(
    options: DrainOptions, code: ExitCode
) -> None:
    found = result(("a", EMPTY), ("a", AWAY), others=5)
    assert _exit_code(found, options) is code
    expected = (
        "Nothing in the backlog is for what was asked: 0 forwarded; 10 messages for others remain in the backlog."
    )
    assert _verdict(found) == expected


def test_a_filter_that_matched_is_a_success_and_the_others_are_counted() -> None:
    found = result(("a", EMPTY), others=1, moved=Totals(received=4, forwarded=3, left=1, outside=1))
    assert _exit_code(found, BILLING) is ExitCode.OK
    expected = "Nothing that was asked for is left: 3 forwarded; 1 message for others remains in the backlog."
    assert _verdict(found) == expected


def test_a_filter_over_an_empty_backlog_is_a_success() -> None:
    found = result(("a", EMPTY))
    assert (_exit_code(found, BILLING), _verdict(found)) == (ExitCode.OK, "Nothing is left: 0 forwarded.")
