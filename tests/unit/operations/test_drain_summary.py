"""What a drain says at its end, and its exit code: 0 only if no matching message is left (X2)."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from syphon.control.totals import Totals
from syphon.model import DestinationError, ExitCode, Stats
from syphon.operations.drain_summary import exit_code_of, summarized, verdict_of
from syphon.worker.drain.drain_options import DrainOptions
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.drain.result import DrainResult, WaitingDestination


def result(
    *queues: tuple[str, DrainState],
    others: int = 0,
    scheduled: int = 0,
    moved: Totals = Totals(),  # noqa: B008
) -> DrainResult:
    found: list[Any] = [
        SimpleNamespace(
            pair=SimpleNamespace(name=pair),
            queue=f"{pair}/x-servicebus-transfer/{number}",
            state=state,
            error="",
            primary_error="",
            killed=set(),
            totals=moved,
            stats=Stats(),
            remaining=0,
            empty_since=1.0,
            others=others,
            scheduled=scheduled,
            fault=None,
        )
        for number, (pair, state) in enumerate(queues)
    ]
    return DrainResult(tuple(found), 1.0)


EMPTY, AWAY = DrainState.EMPTY, DrainState.MISSING


@pytest.mark.parametrize("queues", [[("a", EMPTY)], [("a", EMPTY), ("a", AWAY)], [("a", EMPTY), ("b", EMPTY)]])
def test_empty_queues_are_an_empty_backlog(queues: list[tuple[str, DrainState]]) -> None:
    found = result(*queues)
    assert (exit_code_of(found, DrainOptions()), verdict_of(found)) == (
        ExitCode.OK,
        "The backlog was already empty.",
    )


@pytest.mark.parametrize("queues", [[("b", AWAY)], [("b", AWAY), ("b", AWAY)], [("a", EMPTY), ("b", AWAY)]])
def test_a_pair_of_which_no_queue_exists_may_be_the_wrong_one(queues: list[tuple[str, DrainState]]) -> None:  # X7
    found = result(*queues)
    assert exit_code_of(found, DrainOptions()) is ExitCode.LEFT
    assert "None of the backlog queues of b exists: see `syphon check`" in verdict_of(found)


BILLING = DrainOptions(destinations=["billing/*"])
OLD = DrainOptions(before=datetime(1970, 1, 2))


@pytest.mark.parametrize(("options", "code"), [(BILLING, ExitCode.LEFT), (OLD, ExitCode.OK)])
def test_a_filter_that_matches_nothing_is_said_and_a_pattern_of_destinations_is_no_success(
    options: DrainOptions, code: ExitCode
) -> None:
    found = result(("a", EMPTY), ("a", AWAY), others=5)
    assert exit_code_of(found, options) is code
    expected = (
        "No message in the backlog matches the filter: 0 forwarded; 10 messages in the backlog do not match the filter."
    )
    assert verdict_of(found) == expected


def test_a_filter_that_matched_is_a_success_and_the_others_are_counted() -> None:
    found = result(("a", EMPTY), others=1, moved=Totals(received=4, forwarded=3, left=1, outside=1))
    assert exit_code_of(found, BILLING) is ExitCode.OK
    expected = (
        "No matching message is left in the backlog: 3 forwarded; 1 message in the backlog does not match the filter."
    )
    assert verdict_of(found) == expected


def test_a_filter_over_an_empty_backlog_is_a_success() -> None:
    found = result(("a", EMPTY))
    assert (exit_code_of(found, BILLING), verdict_of(found)) == (ExitCode.OK, "The backlog was already empty.")


@pytest.mark.parametrize(
    ("count", "words"),
    [(1, "1 scheduled message stays until its time."), (2000, "2,000 scheduled messages stay until their time.")],
)
def test_a_backlog_that_holds_scheduled_messages_is_not_called_empty(count: int, words: str) -> None:
    found = result(("a", EMPTY), scheduled=count, moved=Totals(received=3, forwarded=3))
    assert exit_code_of(found, DrainOptions()) is ExitCode.LEFT
    assert verdict_of(found) == f"Only scheduled messages match in the backlog: 3 forwarded; {words}"


def waits(path: str, left: int, error: DestinationError) -> WaitingDestination:
    return WaitingDestination("a", path, left, "amqp:not-found: no", error, 30.0, 1)


def stuck(remaining: int) -> DrainResult:
    found = result(("a", DrainState.STUCK), moved=Totals(received=9, forwarded=2, left=7))
    for queue in found.queues:
        queue.remaining = remaining
    return found


def test_messages_for_missing_or_disabled_destinations_are_named_with_the_way_to_give_them_up() -> None:  # S4
    found = stuck(7)
    waiting = [waits("gone", 4, DestinationError.MISSING), waits("full", 2, DestinationError.FULL)]
    assert exit_code_of(found, DrainOptions()) is ExitCode.LEFT
    assert verdict_of(found, waiting) == (
        "7 messages are still in the backlog: 2 forwarded. 4 messages are waiting for gone (missing): create or enable "
        "the entity and drain again, or dead-letter them with --give-up missing --destination gone."
    )
    waiting.append(waits("closed", 1, DestinationError.DISABLED))
    assert "5 messages are waiting for gone (missing), closed (disabled): " in verdict_of(found, waiting)
    assert "--give-up missing,disabled --destination NAME." in verdict_of(found, waiting)


def test_a_verdict_names_few_destinations_however_many_there_are() -> None:
    many = [waits(f"gone-{number}", 1, DestinationError.MISSING) for number in range(100)]
    assert " and 95 more: create" in verdict_of(stuck(100), many)


def test_messages_that_wait_for_a_full_destination_cannot_be_given_up() -> None:
    assert "--give-up" not in verdict_of(stuck(2), [waits("full", 2, DestinationError.FULL)])


def test_a_drain_that_was_stopped_while_it_settled_claims_neither_emptiness_nor_the_time() -> None:  # X2, S11
    options = DrainOptions(settle=900)
    found = result(("a", EMPTY), ("a", DrainState.STOPPED))
    assert exit_code_of(found, options) is ExitCode.LEFT
    expected = (
        "The drain ended before it could verify that the backlog is empty. The last peek found none: 0 forwarded."
    )
    assert verdict_of(found) == expected
    assert summarized(found, options, (), "ledger").settled_for == 0
    assert summarized(result(("a", EMPTY)), options, (), "ledger").settled_for == 900
