"""Reaching a namespace: a connection that is opened in the background and opened again when it breaks.

Opening takes half a second on a good day and half a minute on a bad one. The pump never waits for it: it asks for the
connection each time round, and gets none until there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..bus.connection import Connection
from ..errors import Faulted, SyphonError

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0


class Reach:
    """One namespace's connection, if it can be had."""

    def __init__(self, name: str, connect: Callable[[], Connection], now: Callable[[], float]) -> None:
        self.name = name
        self.error: SyphonError | None = None
        """Why none could be opened, until one is."""
        self._connect = connect
        self._now = now
        self._connection: Connection | None = None
        self._opened: Connection | SyphonError | None = None
        self._opener: threading.Thread | None = None
        self._pause = FIRST_PAUSE
        self._next_try = 0.0

    def connection(self) -> Connection | None:
        """The open connection; or none, and one is on its way. Raises `Faulted` when there will never be one."""
        self._notice_break()
        if self._connection is None:
            self._take_opened()
            self._start_opening()
        return self._connection

    def _start_opening(self) -> None:
        if self._connection is None and self._opener is None and self._now() >= self._next_try:
            self._opener = threading.Thread(target=self._open, name=f"open {self.name}", daemon=True)
            self._opener.start()

    def _notice_break(self) -> None:
        if self._connection is not None and self._connection.wire.failure is not None:
            # Connections break; only one that cannot be opened again is an error.
            self._connection.close()
            self._connection = None
            self._pause = FIRST_PAUSE
            self._next_try = self._now()

    def _take_opened(self) -> None:
        if self._opener is None or self._opener.is_alive():
            return
        self._opener = None
        opened, self._opened = self._opened, None
        if isinstance(opened, Connection):
            self._connection, self.error, self._pause = opened, None, FIRST_PAUSE
            return
        self.error = opened
        self._next_try = self._now() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if isinstance(opened, Faulted):
            raise opened

    def _open(self) -> None:
        try:
            self._opened = self._connect()
        except SyphonError as error:
            self._opened = error

    def close(self) -> None:
        if self._opener is not None:
            self._opener.join()
            if isinstance(self._opened, Connection):
                self._opened.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
