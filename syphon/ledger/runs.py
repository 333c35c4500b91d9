"""The runs of commands on record: each drain that received messages, with its result.

<path>/runs/20261005T143000-1f0c….json     one run, written when it has ended
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import uuid4

from .filesystems import LedgerFiles

RUNS = "runs"


@dataclass(frozen=True)
class RunRecord:
    """One run of a command that moved messages, when it had ended."""

    command: str
    """What it was: `drain`."""
    options: str
    """The options that selected its messages, as on the command line; empty if it moved all."""
    pairs: list[str]
    started_at: datetime
    seconds: float
    host: str
    received: int
    forwarded: int
    dead_lettered: int
    possible_duplicates: int
    remaining: int | None
    """Matching messages that were left, by peek; None if a queue could not be peeked."""
    exit_code: int
    verdict: str

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {"started_at": self.started_at.isoformat()}

    @classmethod
    def read(cls, text: bytes) -> RunRecord:
        """Raises ValueError, TypeError or KeyError for what is no record. Ignores what later versions add."""
        values = json.loads(text)
        found = {name: values[name] for name in cls.__dataclass_fields__}
        return cls(**found | {"started_at": datetime.fromisoformat(values["started_at"])})


def put_run(files: LedgerFiles, run: RunRecord) -> None:
    """Puts a run on record. It is on disk when this returns."""
    files.put(f"{RUNS}/{run.started_at:%Y%m%dT%H%M%S}-{uuid4().hex}.json", json.dumps(run.as_json()).encode())


def read_runs(files: LedgerFiles) -> tuple[list[RunRecord], list[str]]:
    """All runs on record, the newest first; and the files that cannot be read."""
    found, broken = [], []
    for name in files.names(RUNS):
        try:
            found.append(RunRecord.read(files.read(f"{RUNS}/{name}")))
        except (OSError, ValueError, KeyError, TypeError):
            broken.append(f"{RUNS}/{name}")
    return sorted(found, key=lambda run: run.started_at, reverse=True), sorted(broken)
