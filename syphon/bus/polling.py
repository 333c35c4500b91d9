"""Waiting for sockets: until there is something to read, or room for what has to be written."""

from __future__ import annotations

import selectors
from collections.abc import Iterable

from .wire import Wire

# Not select(): in an application with a thousand open files it can name no more sockets.
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


def wait_for_traffic(wires: Iterable[Wire], seconds: float) -> None:
    """Writes what there is to write, then waits: not so long if something can be read already, or a wire is dead."""
    wires = list(wires)
    for wire in wires:
        wire.flush()
    with _Selector() as waiting:
        for wire in wires:
            if wire.failure is not None or wire.has_unread():
                return
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.wants_to_write() else 0)
            waiting.register(wire, events)
        waiting.select(seconds)
