"""What the ledger writer knows of a job that runs, and of one that has ended and waits to be written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from syphon.model import Counters

from .schema import Attempt, OpenJob


@dataclass
class RunningJob:
    """An open job: its record, what is not on record of its progress, and when it was last written."""

    job: OpenJob
    written_at: float
    opened: threading.Event = field(default_factory=threading.Event)
    """Set when the first try to write its record is over."""
    on_record: bool = False
    heard_at: int = 0
    queues: dict[str, Counters] = field(default_factory=dict)
    changed: bool = False


@dataclass
class ClosingJob:
    """A job that has ended, and what of it is not on record yet."""

    job: str
    files: list[bytes]
    attempts: Sequence[Attempt]
    heard_at: float
    """When the ledger last heard that it waits."""
    opened: threading.Event | None
    """Set when no write of its record is under way; None if none ever was."""
    by_day: deque[tuple[str, str, bytes]] | None = None
    """The rows as they are written: day, name, file."""
    failed: bool = False
    """The last try to write it failed."""
    given_up: bool = False
    """Its rows were dropped."""
    counted: dict[str, Counters] = field(init=False)
    """What its attempts had counted, by queue."""

    def __post_init__(self) -> None:
        self.counted = {}
        for attempt in self.attempts:
            known = self.counted.get(attempt.queue, Counters())
            self.counted[attempt.queue] = known + attempt.counters.counters()

    @property
    def size(self) -> int:
        return sum(map(len, self.files)) + sum(len(file) for _, _, file in self.by_day or ())

    @property
    def is_being_opened(self) -> bool:
        """Whether its record is still being written: deleted now, it would be there again afterwards."""
        return self.opened is not None and not self.opened.is_set()
