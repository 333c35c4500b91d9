"""Tables fit into the width of a terminal, and break no words and no numbers."""

from __future__ import annotations

import pytest

from syphon.cli.table_layout import table_lines
from syphon.model import short_queue_names

TITLES = ("destination", "messages", "would be dead-lettered", "what the service says")
ROWS = [("billing/invoices", "1,234,567", "0", "The messaging entity could not be found."), ("orders", "5", "12", "")]
RIGHT = (False, True, True, False)


def lines(width: int | None) -> list[str]:
    return [line for line, _ in table_lines(TITLES, ROWS, RIGHT, width)]


def test_without_a_width_every_row_is_one_line() -> None:
    assert lines(None)[1:] == [
        "billing/invoices  1,234,567                       0  The messaging entity could not be found.",
        "orders                    5                      12",
    ]


@pytest.mark.parametrize("width", [100, 80, 70, 60, 50, 40])
def test_no_line_is_too_long_and_no_word_is_broken(width: int) -> None:
    found = lines(width)
    assert max(map(len, found)) <= width
    words = {word for text in (*TITLES, *(cell for row in ROWS for cell in row)) for word in text.split()}
    assert {word for line in found for word in line.split()} == words


def test_titles_wrap_before_texts_do_and_stand_right_above_their_columns() -> None:
    assert lines(86)[:2] == [
        "                                  would be",
        "destination        messages  dead-lettered  what the service says",
    ]


def test_what_does_not_fit_at_all_becomes_blocks_of_lines() -> None:
    assert lines(40)[:2] == ["destination             billing/invoices", "messages                1,234,567"]


def test_queues_that_begin_alike_are_told_apart_by_their_ends() -> None:
    queues = [f"contoso/x-servicebus-transfer/{index}" for index in (0, 11)]
    assert short_queue_names(queues) == ["…/0", "…/11"]
    assert short_queue_names([queues[0], "fabrikam/x-servicebus-transfer/0"]) == ["contoso/…/0", "fabrikam/…/0"]
    assert short_queue_names(queues[:1]) == ["contoso/…/0"]
