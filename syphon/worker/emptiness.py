"""The driver's lookout: it peeks into backlog queues, to prove that nothing is left (D4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

from syphon.bus import Connection, MessageState, Peeked, connected, peek
from syphon.config import NamespaceSettings


class EmptinessCheck:
    """The driver's own connection to a secondary, to peek with. Threads take turns."""

    def __init__(self, settings: NamespaceSettings) -> None:
        self._settings = settings
        self._connection: Connection | None = None
        self._held = ExitStack()
        self._lock = threading.Lock()

    def count(self, queue: str, wanted: Callable[[Peeked], bool], at_most: int) -> int:
        """How many active messages that are wanted lie in a queue, locked ones too; no more than `at_most`."""
        with self._lock:
            if self._connection is None or self._connection.wire.failure is not None:
                self._held.close()
                self._connection = self._held.enter_context(connected(self._settings, queue))
            found = 0
            for message in peek(self._connection, queue):
                found += message.state is MessageState.ACTIVE and wanted(message)
                if found >= at_most:
                    break
            return found

    def close(self) -> None:
        with self._lock:
            self._held.close()
            self._connection = None
