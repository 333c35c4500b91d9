"""Time as a pair sees it: its clocks, the deadline of a call, and a timeout for asyncio that can be used again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

CLOSE_WITHIN = 5.0
"""Seconds that a send under way gets to finish when its sender is closed, and seconds that closing a link may take."""


class SyncClock:
    """The real clock of the sync API. Tests use another one."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> None:
        """Waits for an event, but not longer than `seconds`."""
        event.wait(seconds)


class AioClock:
    """The real clock of the asyncio API. Tests use another one."""

    def now(self) -> float:
        return time.monotonic()

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Waits for an event, but not longer than `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()


class Deadline:
    """How long a call may take.

    A caller's timeout is for the whole call. Without one, the primary gets one operation timeout, and then each backlog
    queue gets one.
    """

    def __init__(self, now: Callable[[], float], operation_timeout: float, timeout: float | None) -> None:
        self._now = now
        self._operation_timeout = operation_timeout
        self._is_callers = timeout is not None
        self.whole = operation_timeout if timeout is None else timeout
        self._at = now() + self.whole

    def left(self) -> float:
        return self._at - self._now()

    def left_for_backlog(self) -> float:
        return self.left() if self._is_callers else self._operation_timeout


class ReusableTimeout:
    """`asyncio.timeout` for one use of a link after another: raises TimeoutError in the task when the time is over.

    `asyncio.timeout` sets a timer for each use and cancels it: that is a twentieth of what a whole send costs. This one
    leaves its timer in place, and decides when the timer fires. One task at a time may use it.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_expired = False
        self._cancelling = 0

    def limit(self, seconds: float) -> Self:
        """Sets the limit for the `with` block that follows."""
        task = asyncio.current_task()
        assert task is not None, "a link is used in a task"
        self._task, self._cancelling, self._has_expired = task, task.cancelling(), False
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._set_timer(loop)
        return self

    def expire(self) -> None:
        """Ends the time now, for the task that is inside the `with` block."""
        if self._task is not None and not self._has_expired:
            self._has_expired = True
            self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # Other code may have cancelled the task as well: then the task is cancelled, and not out of time.
        if self._has_expired and task is not None:
            is_ours = task.uncancel() <= self._cancelling
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._on_timer, loop)

    def _on_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """A timer that was set for an earlier use may fire too early for the present use, or while there is none."""
        self._timer = None
        if self._task is None:
            return
        if loop.time() < self._until:
            self._set_timer(loop)
        else:
            self.expire()
