"""Jobs on record before their first receive: a job whose driver ended with it stays visible (D17, X7).

    <path>/open/<job>.json           while the job is open: its pair, queues and slots, the driver's host and process
    <path>/open/<job>.progress       what its last report had counted, by queue, and when that was

The first is written before Spark runs the job, and deleted as the last step of closing it: after its attempts, and
after its transfers. If the driver dies at any point, the file stays.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta

from syphon.model import Counters

from .files import LedgerFiles
from .rows import EPOCH, OpenJob

FOLDER = "open"
_JOB, _PROGRESS = ".json", ".progress"


@dataclass(frozen=True)
class OpenRecord:
    """What the ledger knows of a job that is not closed."""

    job: str
    pair: str
    slots: int
    opened_at: datetime
    host: str
    pid: int
    heard_at: datetime
    """When the driver last recorded the job's progress, or opened it."""
    queues: dict[str, Counters] = field(default_factory=dict)
    """What the last report had counted. A queue of which nothing was reported has zeros."""


def put_open(files: LedgerFiles, job: OpenJob) -> None:
    """Puts a job on record. It is on disk when this returns."""
    values = job._asdict() | {"host": socket.gethostname(), "pid": os.getpid()}
    files.put(f"{FOLDER}/{job.job}{_JOB}", _encoded(values))


def put_progress(files: LedgerFiles, job: str, heard_at: int, queues: Mapping[str, Counters]) -> None:
    """Replaces the progress of an open job. It need not survive a power cut."""
    values = {"heard_at": heard_at, "queues": {name: asdict(counters) for name, counters in queues.items()}}
    files.put(f"{FOLDER}/{job}{_PROGRESS}", _encoded(values), durable=False)


def delete_open(files: LedgerFiles, job: str) -> None:
    """Closes a job: everything about it is on record."""
    files.delete(FOLDER, [f"{job}{_PROGRESS}", f"{job}{_JOB}"])


def read_open(files: LedgerFiles) -> tuple[list[OpenRecord], list[str]]:
    """The jobs that are not closed, the oldest first; and the files among them that cannot be read."""
    names = set(files.names(FOLDER))
    found, broken = [], []
    for name in sorted(names):
        if not name.endswith(_JOB):
            continue
        job = name.removesuffix(_JOB)
        try:
            opened = json.loads(files.read(f"{FOLDER}/{name}"))
            found.append(_record(opened, _progress(files, job) if f"{job}{_PROGRESS}" in names else {}))
        except FileNotFoundError:
            continue  # it has just been closed
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            if name in files.names(FOLDER):  # Hadoop's error does not say that the file is gone
                broken.append(f"{FOLDER}/{name}")
    return sorted(found, key=lambda each: (each.opened_at, each.job)), broken


def _progress(files: LedgerFiles, job: str) -> dict[str, object]:
    """The last progress; nothing if it cannot be read: the job is known all the same."""
    try:
        values = json.loads(files.read(f"{FOLDER}/{job}{_PROGRESS}"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def _record(opened: dict[str, object], progress: dict[str, object]) -> OpenRecord:
    queues = {str(name): Counters() for name in opened["queues"]}  # type: ignore[attr-defined]
    counted = progress.get("queues") or {}
    for name, counters in counted.items():  # type: ignore[attr-defined]
        queues[name] = Counters(**{key: int(value) for key, value in counters.items()})
    return OpenRecord(
        job=str(opened["job"]),
        pair=str(opened["pair"]),
        slots=int(str(opened["slots"])),
        opened_at=_moment(opened["opened_at"]),
        host=str(opened["host"]),
        pid=int(str(opened["pid"])),
        heard_at=_moment(progress.get("heard_at", opened["opened_at"])),
        queues=queues,
    )


def _moment(millis: object) -> datetime:
    return EPOCH + timedelta(milliseconds=int(str(millis)))


def _encoded(values: dict[str, object]) -> bytes:
    return json.dumps(values).encode()
