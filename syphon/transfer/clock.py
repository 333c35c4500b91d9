"""The wall clock, for what is put on record. Waits and deadlines use the monotonic clock that their owner is given."""

from __future__ import annotations

import time


def wall_clock() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
