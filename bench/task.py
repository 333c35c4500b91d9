"""The task of a loop: two namespaces, filled queues, and how many messages to move."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Task:
    """It is passed to the loop's process in the environment, because it contains keys."""

    primary: str
    """A connection string, like `secondary`."""
    secondary: str
    secondary_http: str
    """The address of the emulator's counters."""
    queues: list[str]
    count: int
    """Messages in all queues together."""
    arriving: int
    """How many of them can arrive."""
    ca_file: str | None = None
    """The authority to trust, if the loop uses TLS."""

    @property
    def queue(self) -> str:
        """The only queue, for loops that serve one."""
        (queue,) = self.queues
        return queue

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TASK": json.dumps(asdict(self))}

    @classmethod
    def given(cls) -> Task:
        return cls(**json.loads(os.environ["TASK"]))

    def counter(self, operation: str) -> int:
        """How many operations of this kind the secondary namespace has counted."""
        return int(asked(self.secondary_http, "counters")["totals"][operation])


def asked(http: str, what: str, body: dict[str, str] | None = None) -> dict[str, dict[str, int]]:
    """The answer of one of the emulator's control routes; a body makes it a change."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{http}/$emulator/{what}", data, timeout=10) as answer:  # noqa: S310
        found: dict[str, dict[str, int]] = json.load(answer)
        return found
