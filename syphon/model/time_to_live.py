"""What happens to the time to live of a message when it is restored (M5)."""

from __future__ import annotations

from enum import StrEnum


class TimeToLive(StrEnum):
    """The time to live of a restored message: as the sender wrote it, or what remains of it (M5)."""

    RESTORE = "restore"
    """As it was; its clock starts again at the primary. This is the documented behaviour."""
    REMAINING = "remaining"
    """Without the time spent in the backlog; an expired message is not forwarded."""
