"""The last things the worker has said, for the status page: log lines tell the operator the consequence already."""

from __future__ import annotations

import logging
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Literal

from .status import Event

MOST = 100
LONGEST = 500


class RecentEvents(logging.Handler):
    """Hears what goes to the log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._events: deque[Event] = deque(maxlen=MOST)
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()[:LONGEST]
        except Exception:  # as all handlers do: a bad log line is no reason to end what was going on
            self.handleError(record)
            return
        at = datetime.fromtimestamp(record.created, UTC)
        with self._guard:
            times = 1
            if self._events and self._events[-1].text == text:
                times += self._events.pop().times
            self._events.append(Event(at=at, level=_level(record.levelno), text=text, times=times))

    def newest_first(self) -> list[Event]:
        with self._guard:
            return list(reversed(self._events))


def _level(number: int) -> Literal["info", "warning", "error"]:
    if number >= logging.ERROR:
        return "error"
    return "warning" if number >= logging.WARNING else "info"
