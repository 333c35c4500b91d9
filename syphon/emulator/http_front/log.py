"""What the HTTP port tells the log. A request that is no HTTP is the client's trouble, and its bytes may hold a key."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

log = logging.getLogger(__name__)


def _tone_down(record: logging.LogRecord) -> bool:
    """aiohttp calls a bad request an error and quotes it, its Authorization header included."""
    problem = record.exc_info[1] if record.exc_info else None
    if isinstance(problem, HttpProcessingError):
        record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        record.msg, record.args = "a request was refused because it is not HTTP: %s", (type(problem).__name__,)
        record.exc_info = record.exc_text = None
        return log.isEnabledFor(logging.INFO)
    return True


log.addFilter(_tone_down)
