"""What a loop is given: two namespaces, a filled queue, and how far it has to get."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Task:
    """Passed on to the loop's process in the environment, for there are keys in it."""

    primary: str
    """A connection string, as the next."""
    secondary: str
    secondary_http: str
    """Where the emulator tells what was asked of it."""
    queue: str
    count: int
    """Messages in the queue."""
    arriving: int
    """Those of them that can arrive."""
    ca_file: str | None = None
    """Whom to trust, if it is to be done over TLS."""

    def environment(self) -> dict[str, str]:
        return {**os.environ, "TASK": json.dumps(asdict(self))}

    @classmethod
    def given(cls) -> Task:
        return cls(**json.loads(os.environ["TASK"]))

    def counter(self, operation: str) -> int:
        """How often that was done in the secondary namespace."""
        return int(asked(self.secondary_http, "counters")["totals"][operation])


def asked(http: str, what: str, body: dict[str, str] | None = None) -> dict[str, dict[str, int]]:
    """The answer of an emulator's own routes; with a body, something is changed."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"{http}/$emulator/{what}", data, timeout=10) as answer:  # noqa: S310
        found: dict[str, dict[str, int]] = json.load(answer)
        return found
