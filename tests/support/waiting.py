"""Waiting for a condition: the one place where a test polls.

A test never sleeps for a fixed time. It names the condition and goes on as soon as the condition holds:

    eventually(lambda: queue.message_count == 3, what="three messages are in the queue")
    await async_eventually(lambda: connection.closed, what="the connection is closed")
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

What = str | Callable[[], object]

TIMEOUT = 180.0
"""Seconds after which a test gives up. It does not measure speed: it only ends a test that would otherwise hang, so it
is long enough for a start of Spark on the busiest machine."""
_SHORTEST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5
"""Seconds between two checks of the condition."""


def eventually(
    condition: Callable[[], T | None], what: What = "", within: float = TIMEOUT, longest_pause: float = _LONGEST_PAUSE
) -> T:
    """Polls the condition until it is true, and returns its value. Fails the test after `within` seconds.

    `what` says what should have happened. A function is called only when the test fails: use it to show the state at
    that moment, such as the output of a process. `longest_pause` is for a test that must act as soon as it is so.
    """
    began = looked = time.monotonic()
    while not (value := condition()):
        if time.monotonic() > began + within:
            raise AssertionError(_failure(condition, what, within))
        time.sleep(min(_pause(began, looked), longest_pause))
        looked = time.monotonic()
    return value


async def async_eventually(condition: Callable[[], T | None], what: What = "", within: float = TIMEOUT) -> T:
    """The same for a test in an event loop: the loop runs between two checks of the condition."""
    began = looked = time.monotonic()
    while not (value := condition()):
        if time.monotonic() > began + within:
            raise AssertionError(_failure(condition, what, within))
        await asyncio.sleep(_pause(began, looked))
        looked = time.monotonic()
    return value


def _pause(began: float, looked: float) -> float:
    """Seconds until the next look, after one that began at `looked`.

    The pause grows with the time waited and with the time that a look takes. A look that peeks into queues or reads
    `/proc` uses the processor, and so does what the test waits for.
    """
    now = time.monotonic()
    return min(max(_SHORTEST_PAUSE, (now - began) / 20, 3 * (now - looked)), _LONGEST_PAUSE)


def _failure(condition: Callable[[], object], what: What, within: float) -> str:
    text = what if isinstance(what, str) else f"{what()}"
    if not text:
        code = getattr(condition, "__code__", None)
        text = f"the condition at {code.co_filename}:{code.co_firstlineno}" if code else repr(condition)
    return f"did not happen within {within:.0f} s: {text}"
