"""The progress of a drain: text from messages is shown as it is, without any effect on the terminal."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from syphon.status.drain_display import _Table
from syphon.transfer.pump import DestinationBackoff
from syphon.worker.drain.queue_state import DrainState
from syphon.worker.drain.result import DrainProgress, QueueProgress

HOSTILE = "[/nothing] [link=https://evil.example]see[/link] \x1b[2J\x9b31m\r\n\u202e"


def queue(index: int, state: DrainState, error: str = "", **counts: Any) -> QueueProgress:
    numbers: Any = {"expected": 5, "moved": 1, "in_flight": 0, "dead_lettered": 0} | counts
    return QueueProgress("contoso", f"contoso/x-servicebus-transfer/{index}", state, error, **numbers)


def test_hostile_text_is_shown_as_it_is_and_does_not_steer_the_terminal() -> None:
    file = io.StringIO()
    console = Console(file=file, width=300, force_terminal=True, color_system=None)
    backing_off = (DestinationBackoff("orders", 3.0, HOSTILE, 2),)
    console.print(_Table(console).rendered(DrainProgress((queue(0, DrainState.WAITING, HOSTILE),), backing_off)))
    shown = file.getvalue()
    assert "contoso/x-servicebus-transfer/0: [/nothing] [link=https://evil.example]see[/link]" in shown
    assert "orders is unavailable: [/nothing] [link=https://evil.example]see[/link]" in shown
    assert not any(steering in shown for steering in ("\x1b", "\x9b", "\r", "\u202e"))


def narrow(progress: DrainProgress, height: int = 24) -> list[str]:
    """The lines of the table on a terminal of 80 columns."""
    file = io.StringIO()
    console = Console(file=file, width=80, height=height, force_terminal=True, color_system=None)
    console.print(_Table(console).rendered(progress))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_one_cause_that_holds_up_all_queues_is_one_line() -> None:
    error = "contoso-dr.example: no connection: Connection refused"
    lines = narrow(DrainProgress(tuple(queue(at, DrainState.WAITING, error) for at in range(10))))
    assert [line for line in lines if "refused" in line] == [f"  10 queues: {error}"]


def many_queues(is_stopping: bool = False) -> DrainProgress:
    """A drain of thirty queues, of which the first ones are done."""
    states = [DrainState.EMPTY if index < 25 else DrainState.MOVING for index in range(30)]
    queues = [queue(at, state, expected=1_000_000, moved=0, in_flight=7) for at, state in enumerate(states)]
    return DrainProgress(tuple(queues), is_stopping=is_stopping)


def test_queues_can_be_told_apart_in_80_columns_and_the_total_is_on_the_screen() -> None:
    lines = narrow(many_queues())
    assert " ".join(lines[0].split()) == "queue state done waiting per second in flight dead-lettered ETA"
    assert [line.split()[0] for line in lines[1:6]] == ["…/25", "…/26", "…/27", "…/28", "…/29"]
    assert lines[-2].split()[0] == "all"
    assert lines[-1] == "  … and 16 more queues"
    assert len(lines) <= 24


def test_a_drain_that_stops_says_so_and_what_it_waits_for() -> None:
    text = " ".join(narrow(many_queues(is_stopping=True))[-2:])
    assert text.startswith("Stopping: waiting for 210 messages in flight.")
    assert "Press Ctrl-C again to exit now" in text
