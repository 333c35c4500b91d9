"""`asyncio.timeout` for one use of a link after another.

The standard one sets a timer for each, and takes it back: a twentieth of what a whole send costs. This one leaves its
timer where it is, and looks at it when it rings.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class Patience:
    """Of one task at a time: raises TimeoutError in it when the time is over."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_over = False
        self._cancelling = 0

    def of(self, seconds: float) -> Self:
        """For what is done within this."""
        task = asyncio.current_task()
        assert task is not None, "a link is used in a task"
        self._task, self._cancelling, self._is_over = task, task.cancelling(), False
        loop = asyncio.get_running_loop()
        self._until = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._until:
            self._set(loop)
        return self

    def end(self) -> None:
        """The time is over now, for whoever is within."""
        if self._task is not None and not self._is_over:
            self._is_over = True
            self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # Somebody else may have cancelled the task as well: then it is cancelled, and not out of time.
        if self._is_over and task is not None:
            is_ours = task.uncancel() <= self._cancelling
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._until, self._ring, loop)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Set for an earlier use, it rings too early for the present one, or for none at all."""
        self._timer = None
        if self._task is None:
            return
        if loop.time() < self._until:
            self._set(loop)
        else:
            self.end()
