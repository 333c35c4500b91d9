"""What systemd is told: ready, what the worker is doing, that its loop still turns, and that it is about to end.

A datagram to the socket that NOTIFY_SOCKET names. Where nobody started us this way, nothing is said.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

STATUS_EVERY = 5.0
STOPPING = "stopping: what is in hand is finished or given back"


class Notifier:
    """A line to the service manager, or none."""

    def __init__(self, environ: Mapping[str, str] = os.environ, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        # Twice as often as it must be: one that comes late does no harm.
        self._feed_every = _watchdog_seconds(environ) / 2
        self._fed_at = self._told_at = float("-inf")
        self._told = ""
        self._is_ready = False

    def turned(self, is_well: bool, doing: str) -> None:
        """The loop has turned. The watchdog is fed when all is well, and only then."""
        now, words = self._now(), []
        if not self._is_ready:
            self._is_ready = True
            words.append("READY=1")
        if is_well and self._feed_every and now - self._fed_at >= self._feed_every:
            self._fed_at = now
            words.append("WATCHDOG=1")
        if doing != self._told and now - self._told_at >= STATUS_EVERY:
            self._told, self._told_at = doing, now
            words.append(f"STATUS={doing}")
        self._say(*words)

    def stopping(self) -> None:
        self._say("STOPPING=1", f"STATUS={STOPPING}")

    def _say(self, *words: str) -> None:
        if self._address is None or not words:
            return
        text = "\n".join(word.replace("\n", " ") for word in words)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
                line.setblocking(False)
                line.connect(self._address)
                line.send(text.encode())
        except OSError as error:
            log.debug("the service manager cannot be told %s: %s", words, error)


def _address(text: str) -> str | None:
    """A path, or a name in the abstract namespace, which is written with an @."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """How often it wants to be fed; 0 if not at all, or if it is another process that it watches."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    wanted = environ.get("WATCHDOG_USEC", "")
    return int(wanted) / 1e6 if wanted.isdigit() else 0.0
