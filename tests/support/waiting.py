"""Waiting for what must come, and for no longer than it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 30.0
"""Seconds after which nothing comes any more: not a measure of speed, so a machine may be as busy as it likes."""


async def until(holds: Callable[[], object], what: str) -> None:
    """Returns as soon as the condition holds. `what` says, if it never does, what was waited for."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"within {PATIENCE:.0f} seconds not so: {what}") from None
