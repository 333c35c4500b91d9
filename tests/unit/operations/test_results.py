"""The results of the functions: values that do not change, with the JSON of the commands, and safe in a notebook."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from syphon.control import Account
from syphon.datasource.backlog_frames import DeadLetterPreview, DestinationSummary
from syphon.model import DestinationError, ExitCode, html_table
from syphon.operations.drain_dry_run import (
    CostForecast,
    DestinationForecast,
    DryRun,
    UncheckedPrimary,
)
from syphon.operations.drain_run import DrainInterrupted
from syphon.operations.drain_summary import DestinationResult, DrainSummary, QueueResult
from syphon.operations.inspection import BacklogAnswer, BacklogOverview, UnseenQueue
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.drain.result import DrainProgress, QueueProgress, WaitingDestination, WaitingForecast
from tests.support.reports import a_report, an_empty_report

HOSTILE = "<img src=x onerror=alert(1)>\u202e&\x1b[2J\"'"
ACCOUNT = Account(5, 2, 1, 2, 0, 0, 100, 0, 0)
SUMMARY = DrainSummary(
    verdict=f"2 messages are still in the backlog: 2 forwarded. {HOSTILE}",
    exit_code=ExitCode.LEFT,
    seconds=1.5,
    account=ACCOUNT,
    remaining=2,
    others=0,
    scheduled=0,
    queues=(QueueResult("contoso", HOSTILE, DrainState.STUCK, HOSTILE, 2, 1, 2, 0),),
    destinations=(DestinationResult("contoso", HOSTILE, 2, 1),),
    waiting=(WaitingDestination("contoso", HOSTILE, 2, HOSTILE, DestinationError.MISSING, 3.0, 1),),
    ledger="./ledger",
    ledger_error=HOSTILE,
)
OVERVIEW = BacklogOverview(
    (DestinationSummary("contoso", HOSTILE, 1234567, 10, datetime(2026, 11, 16, tzinfo=UTC), 0, 0, 1),),
    (DeadLetterPreview("contoso", None, HOSTILE, 1, HOSTILE),),
    (UnseenQueue(HOSTILE, HOSTILE),),
)
DRY_RUN = DryRun(
    exit_code=ExitCode.LEFT,
    messages=3,
    others=0,
    bytes=10,
    destinations=(DestinationForecast("contoso", HOSTILE, 3, 10, None, 0, 0, 1, waiting=2),),
    dead_letters=(DeadLetterPreview("contoso", HOSTILE, "NoDestination", 1, HOSTILE),),
    waiting=(WaitingForecast("contoso", HOSTILE, 2, HOSTILE, DestinationError.MISSING),),
    unchecked=(UncheckedPrimary("contoso", HOSTILE, HOSTILE),),
    give_up=(),
    seconds=0.0,
    per_second=1000.0,
    assumed=(HOSTILE,),
    operations=12,
    cost=CostForecast(0.0, 0.1, "USD", "2026"),
)
ANSWER = BacklogAnswer((HOSTILE,), ((HOSTILE,),), is_complete=False)
RESULTS: list[Any] = [SUMMARY, OVERVIEW, DRY_RUN, ANSWER]


class Page(HTMLParser):
    """The elements and the text of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_text_from_messages_is_text_in_a_notebook_whatever_it_says(result: Any) -> None:
    page = Page(result._repr_html_())
    assert page.tags <= {"p", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.attributes <= {"style"}
    assert "<img src=x onerror=alert(1)>" in page.text
    assert not {"\x1b", "\u202e"} & set(page.text)


def test_a_backlog_with_unseen_queues_is_not_called_empty() -> None:
    unseen = (UnseenQueue("contoso/x-servicebus-transfer/0", "unreachable"),)
    assert str(BacklogOverview(unseen=unseen)) == "No messages found; 1 queue could not be read."
    assert str(BacklogOverview()) == "The backlog is empty."
    assert str(dataclasses.replace(OVERVIEW, unseen=unseen)).endswith("; 1 queue could not be read.")


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_result_does_not_change(result: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.exit_code = ExitCode.OK


def test_a_summary_is_done_only_with_exit_code_0() -> None:
    assert not SUMMARY.is_done
    assert dataclasses.replace(SUMMARY, exit_code=ExitCode.OK).is_done


def test_the_json_of_a_summary_is_that_of_the_command() -> None:  # docs/commands.md
    found = SUMMARY.as_json()
    assert list(found) == [
        *("verdict", "exit_code", "seconds", "account", "remaining", "others", "scheduled", "queues", "waiting"),
        *("ledger", "ledger_error", "give_up", "settled_for"),
    ]
    assert found["exit_code"] == 1
    assert found["queues"][0]["state"] == "stuck"
    assert found["account"]["received"] == 5


def test_the_json_of_an_answer_is_its_rows_by_column() -> None:  # docs/commands.md
    answer = BacklogAnswer(("destination", "messages"), (("orders", 2), (None, 1)))
    assert answer.as_json() == [{"destination": "orders", "messages": 2}, {"destination": None, "messages": 1}]


def test_the_exit_code_of_a_report_is_that_of_the_command() -> None:  # docs/commands.md
    assert (an_empty_report().exit_code, a_report().exit_code) == (ExitCode.OK, ExitCode.LEFT)
    assert a_report().as_json()["complete"] is False


def test_an_interrupted_drain_says_how_far_it_came_and_a_notebook_shows_just_that() -> None:
    error = DrainInterrupted(SUMMARY)
    assert isinstance(error, KeyboardInterrupt)  # so that a notebook does not go on to the next cell
    assert error.summary is SUMMARY
    assert error._render_traceback_() == [str(error)]
    assert "stopped gracefully. 2 messages are still in the backlog" in str(error)


def test_progress_in_one_line() -> None:
    queue = QueueProgress("contoso", "q", DrainState.MOVING, "", 10, 4, 1, 0)
    assert str(DrainProgress((queue,))) == "4 messages moved, about 6 left"
    unknown = dataclasses.replace(queue, expected=None)
    assert str(DrainProgress((queue, unknown))) == "8 messages moved"


def test_a_long_table_ends() -> None:
    assert html_table(("n",), [(number,) for number in range(20)], most=5).count("<tr>") == 6
