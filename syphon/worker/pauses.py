"""What the operator has paused: pairs, backlog queues, destinations. A file keeps the pauses across restarts.

The worker does not listen to a paused queue, and stops its slots. Messages for a paused destination are left in the
backlog, and messages for other destinations overtake them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from syphon.durable_files import write_state
from syphon.model import EntityPath, SyphonError

log = logging.getLogger(__name__)

BY_THE_OPERATOR = "paused by the operator"


class StateUnreadable(SyphonError):
    """The file that keeps the pauses cannot be read."""


class Pause(BaseModel):
    """One pause: of a pair, of one of its queues, or of one of its destinations."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    queue: str | None = None
    destination: str | None = None

    def __str__(self) -> str:
        if self.queue is not None:
            return f"queue {self.queue} of {self.pair}"
        return f"pair {self.pair}" if self.destination is None else f"destination {self.destination} of {self.pair}"


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid")

    paused: list[Pause] = []


class Pauses:
    """All pauses of a worker. Thread-safe."""

    def __init__(self, file: Path | None = None) -> None:
        """Without a file, pauses end with the process. An invalid file raises `StateUnreadable`."""
        self._file = file
        self._lock = threading.Lock()
        self._held = frozenset(_read(file)) if file is not None and file.exists() else frozenset[Pause]()
        for pause in self.all():
            log.warning("%s has been paused since before the start; `syphon resume` ends the pause", pause)

    def all(self) -> list[Pause]:
        return sorted(self._held, key=str)

    def holds_pair(self, pair: str) -> bool:
        return Pause(pair=pair) in self._held

    def holds_queue(self, pair: str, queue: str) -> bool:
        return bool(self._held) and (self.holds_pair(pair) or Pause(pair=pair, queue=queue) in self._held)

    def destinations(self, pair: str) -> tuple[str, ...]:
        return tuple(pause.destination for pause in self.all() if pause.pair == pair and pause.destination is not None)

    def holds_destination(self, pair: str, path: str) -> bool:
        held = map(EntityPath.of, self.destinations(pair))
        return bool(self._held) and EntityPath.of(path) in held

    def add(self, pauses: Iterable[Pause]) -> None:
        with self._lock:
            for pause in set(pauses) - self._held:
                log.warning("%s is paused by the operator", pause)
                self._held |= {pause}
            self._save()

    def end(self, pauses: Iterable[Pause]) -> None:
        with self._lock:
            for pause in set(pauses) & self._held:
                log.info("%s is resumed", pause)
                self._held -= {pause}
            self._save()

    def _save(self) -> None:
        if self._file is None:
            return
        try:
            write_state(self._file, _State(paused=self.all()).model_dump_json(indent=2, exclude_none=True))
        except OSError as error:
            log.error("pauses will not survive a restart: %s cannot be written: %s", self._file, error)


def _read(file: Path) -> list[Pause]:
    try:
        return _State.model_validate_json(file.read_bytes()).paused
    except (OSError, ValidationError) as error:
        raise StateUnreadable(
            f"{file}, which keeps the pauses, cannot be read ({type(error).__name__}). Correct the file, "
            "or remove it to start without pauses."
        ) from None
