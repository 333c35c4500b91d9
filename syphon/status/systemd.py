"""Notifications for systemd: ready, a status line, that the worker's loop still turns, and that the worker stops.

Each is a datagram to the socket that NOTIFY_SOCKET names. Without that variable, the worker sends none.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

from syphon.time_budget import STATUS_LINE_EVERY

log = logging.getLogger(__name__)

STOPPING = "stopping: the worker finishes or releases the messages it has received"


class Notifier:
    """Sends notifications to the service manager, if there is one."""

    def __init__(self, environ: Mapping[str, str] = os.environ, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        # Twice as often as required: one late notification does no harm.
        self._watchdog_every = _watchdog_seconds(environ) / 2
        self._watchdog_at = self._status_at = float("-inf")
        self._status = ""
        self._is_ready = False

    def loop_turned(self, is_healthy: bool, status: str) -> None:
        """Reports a turn of the worker's loop. The watchdog is notified only while the worker is healthy."""
        now, lines = self._now(), []
        if not self._is_ready:
            self._is_ready = True
            lines.append("READY=1")
        if is_healthy and self._watchdog_every and now - self._watchdog_at >= self._watchdog_every:
            self._watchdog_at = now
            lines.append("WATCHDOG=1")
        if status != self._status and now - self._status_at >= STATUS_LINE_EVERY:
            self._status, self._status_at = status, now
            lines.append(f"STATUS={status}")
        self._send(*lines)

    def stopping(self) -> None:
        self._send("STOPPING=1", f"STATUS={STOPPING}")

    def _send(self, *lines: str) -> None:
        if self._address is None or not lines:
            return
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
                notify.setblocking(False)
                notify.connect(self._address)
                notify.send(text.encode())
        except OSError as error:
            log.debug("cannot notify the service manager of %s: %s", lines, error)


def _address(text: str) -> str | None:
    """The address of the socket: a path, or a name in the abstract namespace, which is written with an @."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _watchdog_seconds(environ: Mapping[str, str]) -> float:
    """The watchdog's interval; 0 if there is no watchdog, or if it watches another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    wanted = environ.get("WATCHDOG_USEC", "")
    return int(wanted) / 1e6 if wanted.isdigit() else 0.0
