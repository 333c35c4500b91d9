"""The progress of a drain: text from messages is shown as it is, without any effect on the terminal."""

from __future__ import annotations

import io
from typing import Any, cast

from rich.console import Console

from syphon.ops.progress import _Table
from syphon.spark.totals import Totals
from syphon.transfer.pump import DestinationBackoff
from syphon.worker.drain import Drain, DrainState

HOSTILE = "[/nothing] [link=https://evil.example]see[/link] \x1b[2J\x9b31m\r\n\u202e"


class Draining:
    """A drain in which one queue has an error."""

    is_stopping = False

    class Queue:
        queue, state, error, expected = "contoso/x-servicebus-transfer/0", DrainState.WAITING, HOSTILE, 5

    queues = (Queue(),)

    def live(self, queue: Queue) -> Totals:
        return Totals(forwarded=1)

    def backing_off(self) -> list[DestinationBackoff]:
        return [DestinationBackoff("orders", 3.0, HOSTILE, 2)]


def test_hostile_text_is_shown_as_it_is_and_does_not_steer_the_terminal() -> None:
    file = io.StringIO()
    console = Console(file=file, width=300, force_terminal=True, color_system=None)
    drain: Any = Draining()
    console.print(_Table(cast(Drain, drain), None).rendered())
    shown = file.getvalue()
    assert "waiting: [/nothing] [link=https://evil.example]see[/link]" in shown
    assert "orders backs off for 3 s: [/nothing] [link=https://evil.example]see[/link]" in shown
    assert not any(steering in shown for steering in ("\x1b", "\x9b", "\r", "\u202e"))
