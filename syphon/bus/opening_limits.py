"""Time limits for the opening of a connection: the SDK waits for ever for a peer that accepts it and is silent."""

from __future__ import annotations

import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Self


class HandshakeInTime(ssl.SSLContext):
    """Trusts the authorities that the SDK would trust. The SDK would wait for the peer's handshake for ever; this one
    has a time limit."""

    within: float
    wrapped: Callable[[], ssl.SSLSocket | None]
    """The last socket that it made, while that is in use."""

    def __new__(cls, ca_file: str, within: float) -> Self:
        context = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(ca_file)
        context.within = within
        return context

    def wrap_socket(self, sock: socket.socket, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        sock.settimeout(self.within)
        made = super().wrap_socket(sock, *arguments, **options)
        self.wrapped = weakref.ref(made)
        return made


class Watchdog(threading.Thread):
    """Ends an opening that takes too long: the SDK waits for ever for a peer that accepts the connection and is silent.

    A load balancer whose service is down is such a peer. Without the watchdog the opening would never be tried again.
    """

    LOOK = 0.25
    """Seconds between two looks at the handshake."""

    def __init__(
        self, timeout: float, cut_off: Callable[[], None], handshake: float, is_in_handshake: Callable[[], bool]
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.is_handshake_late = False
        self._timeout = timeout
        self._cut_off = cut_off
        self._handshake = handshake
        self._is_in_handshake = is_in_handshake
        self._over = threading.Event()

    def run(self) -> None:
        if self._handshake < self._timeout:
            self._watch_handshake()
        else:
            self._over.wait(self._timeout)
        while not self._over.is_set():
            self._cut_off()
            self._over.wait(1.0)

    def _watch_handshake(self) -> None:
        """Returns when one of the two limits is over."""
        now = began = time.monotonic()
        since: float | None = None
        while now < began + self._timeout and not self._over.wait(self.LOOK):
            now = time.monotonic()
            if not self._is_in_handshake():
                since = None
            elif since is None:
                since = now
            elif now - since >= self._handshake:
                self.is_handshake_late = True
                return

    def stop(self) -> None:
        self._over.set()
