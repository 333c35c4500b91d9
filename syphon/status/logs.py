"""Log lines: on stderr for people or for machines, and the latest ones for the status page.

A log line tells the operator the consequence, and never contains a secret.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Literal, TextIO

from syphon.config import LogFormat, LogLevel
from syphon.model import printable

from .snapshot import Event

NOISY = ("azure", "uamqp", "py4j", "aiohttp", "asyncio", "urllib3")
"""Loggers of libraries: only their warnings and errors are logged, whatever our own level is."""
MOST_EVENTS = 100
LONGEST_EVENT = 500


class ConsoleLines(logging.Formatter):
    """Writes a line for people. Text from a message cannot end the line, begin another one or colour the screen."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging calls it so
        return printable(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """Writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class StderrLines(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is at the moment: a live table replaces it, and puts the lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def set_up_logging(level: LogLevel, style: LogFormat = LogFormat.CONSOLE) -> None:
    """Set up logging; a second call only changes the level."""
    root = logging.getLogger()
    if not root.handlers:
        handler = StderrLines()
        handler.setFormatter(JsonLines() if style is LogFormat.JSON else ConsoleLines())
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("syphon").setLevel(level.value.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)


class RecentEvents(logging.Handler):
    """Keeps the latest log lines for the status page: they already tell the operator the consequence."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._lock = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()[:LONGEST_EVENT]
        except Exception:  # as every handler does: a bad log line must not end the work that wrote it
            self.handleError(record)
            return
        at = datetime.fromtimestamp(record.created, UTC)
        with self._lock:
            times = 1
            if self._events and self._events[-1].text == text:
                times += self._events.pop().times
            self._events.append(Event(at=at, level=_level(record.levelno), text=text, times=times))

    def newest_first(self) -> list[Event]:
        with self._lock:
            return list(reversed(self._events))


def _level(number: int) -> Literal["info", "warning", "error"]:
    if number >= logging.ERROR:
        return "error"
    return "warning" if number >= logging.WARNING else "info"
