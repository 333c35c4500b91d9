"""Tables fit into the width of a terminal, and break no words and no numbers."""

from __future__ import annotations

import pytest

from syphon.cli.table_layout import table_lines
from syphon.cli.tables import show_table
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


def test_a_long_name_gets_a_line_of_its_own_and_the_columns_stay_a_table() -> None:
    titles = ("destination", "messages", "bytes", "oldest (UTC)", "would be dead-lettered", "would wait")
    long = "orders/a-very-long-name-of-a-queue/with-several-segments-in-it/2026"
    rows = [
        ("orders", "300", "168.7 KB", "2026-11-17 10:37:10", "0", "0"),
        (long, "12", "8.2 KB", "2026-11-17 10:37:54", "0", "12"),
    ]
    assert [line for line, _ in table_lines(titles, rows, (False, True, False, False, True, True), 80)] == [
        "destination",
        "  messages  bytes     oldest (UTC)         would be dead-lettered  would wait",
        "orders",
        "       300  168.7 KB  2026-11-17 10:37:10                       0           0",
        long,
        "        12  8.2 KB    2026-11-17 10:37:54                       0          12",
    ]


def test_a_text_that_would_be_many_lines_high_stands_below_its_row() -> None:
    titles = ("reason", "destination", "messages", "first enqueued", "description")
    text = "Destination 'billing/invoices': amqp:not-allowed: a rule of the entity does not allow this message."
    rows = [("NotAllowedByEntity", "billing/invoices", "64", "2026-11-17 10:47:45Z", text)]
    assert [line for line, _ in table_lines(titles, rows, (False, False, True, False, False), 80)] == [
        "reason              destination       messages  first enqueued",
        "  description",
        "NotAllowedByEntity  billing/invoices        64  2026-11-17 10:47:45Z",
        "  Destination 'billing/invoices': amqp:not-allowed: a rule of the entity does",
        "  not allow this message.",
    ]


def test_where_no_cell_is_long_the_name_of_the_row_gets_its_own_line() -> None:
    titles = ("pair", "destination", "messages", "size", "oldest (UTC)", "scheduled", "expired", "dead-lettered")
    rows = [("contoso", "orders", "300", "168.7 KB", "2026-11-17 10:37:10", "0", "0", "0")]
    right = (False, False, True, False, False, True, True, True)
    assert [line for line, _ in table_lines(titles, rows, right, 80, name=1)][:3] == [
        "destination",
        "  pair     messages  size      oldest (UTC)    scheduled  expired  dead-lettered",
        "orders",
    ]


def test_on_a_narrow_terminal_columns_that_say_the_same_give_way_to_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = ("pair", "destination", "messages", "size", "oldest (UTC)", "scheduled", "expired", "dead-lettered")
    rows = [
        ("contoso", "orders", 300, "168.7 KB", "2026-11-17 10:37:10", 0, 0, 0),
        ("contoso", "invoices", 12, "8.2 KB", "2026-11-17 10:37:54", 0, 1, 0),
    ]
    for width, given_way in ((80, "In every row: pair contoso, scheduled 0.\n"), (120, ""), (None, "")):
        monkeypatch.setattr("syphon.cli.tables.terminal_width", lambda width=width: width)
        show_table(titles, rows, name=1, may_give_way=("pair", "scheduled", "expired", "messages"))
        said = capsys.readouterr().out
        assert said.count("\n") == (4 if given_way else 3), said
        assert said.endswith(given_way)
        assert ("contoso  orders" in said) is not bool(given_way)
        assert "expired" in said


def test_what_does_not_fit_at_all_becomes_blocks_of_lines() -> None:
    assert lines(34)[:2] == ["destination             billing/in", "                        voices"]


def test_queues_that_begin_alike_are_told_apart_by_their_ends() -> None:
    queues = [f"contoso/x-servicebus-transfer/{index}" for index in (0, 11)]
    assert short_queue_names(queues) == ["…/0", "…/11"]
    assert short_queue_names([queues[0], "fabrikam/x-servicebus-transfer/0"]) == ["contoso/…/0", "fabrikam/…/0"]
    assert short_queue_names(queues[:1]) == ["contoso/…/0"]
