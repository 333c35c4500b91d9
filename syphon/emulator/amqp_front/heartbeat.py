"""Whether the two ends of a connection still hear from each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Pulse:
    """Beats when we have said nothing for long, and gives up a peer from which nothing is heard."""

    def __init__(self, beat: Callable[[], None], give_up: Callable[[float], None]) -> None:
        self._beat = beat
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._spoke_at = self._loop.time()
        self._beating: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None
        self._stopped = False

    def heard(self) -> None:
        self._heard_at = self._loop.time()

    def spoke(self) -> None:
        self._spoke_at = self._loop.time()

    def keep_alive(self, timeout: float) -> None:
        """The peer wants to hear from us at least so often: a heartbeat goes out well before that."""
        if self._stopped:
            return
        if self._loop.time() - self._spoke_at >= timeout / 3:
            self._beat()
        self._beating = self._loop.call_later(timeout / 3, self.keep_alive, timeout)

    def watch(self, patience: float) -> None:
        """The peer may be silent for so long, and then no longer."""
        if self._stopped:
            return
        silent = self._loop.time() - self._heard_at
        if silent >= patience:
            self._give_up(silent)
        else:
            self._watching = self._loop.call_later(patience - silent, self.watch, patience)

    def stop(self) -> None:
        self._stopped = True
        for timer in (self._beating, self._watching):
            if timer is not None:
                timer.cancel()
