"""What the operator has paused: pairs, backlog queues, destinations. Remembered in a file over a restart.

A queue that is paused is not listened to, and its slots stop. A destination that is paused is left alone, as one that
takes nothing: its messages stay in the backlog, and those for others pass.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from syphon.model import EntityPath, SyphonError

log = logging.getLogger(__name__)

BY_THE_OPERATOR = "paused by the operator"


class StateUnreadable(SyphonError):
    """The state file cannot be read."""


class Pause(BaseModel):
    """One thing that is paused: a pair, or one of its queues, or one of its destinations."""

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
    """Asked by many threads, changed by one at a time."""

    def __init__(self, file: Path | None = None) -> None:
        """Without a file nothing is remembered. One that is there and makes no sense raises `StateUnreadable`."""
        self._file = file
        self._lock = threading.Lock()
        self._held = frozenset(_read(file)) if file is not None and file.exists() else frozenset[Pause]()
        for pause in self.all():
            log.warning("%s is paused since before the start; `syphon resume` ends it", pause)

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
            self._remember()

    def end(self, pauses: Iterable[Pause]) -> None:
        with self._lock:
            for pause in set(pauses) & self._held:
                log.info("%s goes on", pause)
                self._held -= {pause}
            self._remember()

    def _remember(self) -> None:
        """Whole or not at all: a half-written file would stop the next start."""
        if self._file is None:
            return
        text = _State(paused=self.all()).model_dump_json(indent=2, exclude_none=True)
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            handle, fresh = tempfile.mkstemp(prefix=f".{self._file.name}.", dir=self._file.parent)
            try:
                with os.fdopen(handle, "w") as stream:
                    stream.write(text + "\n")
                    stream.flush()
                    os.fsync(stream.fileno())
                os.replace(fresh, self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(fresh)
                raise
        except OSError as error:
            log.error("what is paused is not remembered over a restart: %s cannot be written: %s", self._file, error)


def _read(file: Path) -> list[Pause]:
    try:
        return _State.model_validate_json(file.read_bytes()).paused
    except (OSError, ValidationError) as error:
        raise StateUnreadable(
            f"{file} says what is paused, and cannot be read ({type(error).__name__}). Correct it, or remove it: then "
            "nothing is paused."
        ) from None
