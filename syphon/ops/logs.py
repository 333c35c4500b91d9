"""Log lines: on stderr, for people or for machines. They tell the operator the consequence, and never a secret."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

from syphon.config import LogFormat, LogLevel
from syphon.model import printable

NOISY = ("azure", "uamqp", "py4j", "aiohttp", "asyncio", "urllib3")
"""Loggers of libraries: they are heard from warnings on, whatever our own level is."""


class ConsoleLines(logging.Formatter):
    """A line for people. What a message brought along cannot end it, begin another one or colour the screen."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  logging calls it so
        return printable(super().formatMessage(record))


class JsonLines(logging.Formatter):
    """One object a line."""

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


def set_up_logging(level: LogLevel, style: LogFormat = LogFormat.CONSOLE) -> None:
    """Begins, or takes over another level."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines() if style is LogFormat.JSON else ConsoleLines())
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("syphon").setLevel(level.value.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
