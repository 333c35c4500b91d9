"""When a message of each pair was last forwarded. A file beside the pauses keeps it over a restart.

It is a hint for people and alerts: a file that cannot be read or written is reported once, and nothing else depends on
it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from syphon.durable_files import write_state

log = logging.getLogger(__name__)

WRITE_EVERY = 30.0
"""Seconds between two writes, at least: so much may be forgotten when a worker is killed."""
_TIMES = TypeAdapter(dict[str, float])


class LastSuccess:
    """Remembers the last success of each pair, in seconds since 1970."""

    def __init__(self, state_file: Path | None = None, now: Callable[[], float] = time.monotonic) -> None:
        """Without the file that keeps the pauses, a restart forgets it."""
        self._file = None if state_file is None else state_file.with_name(f"{state_file.stem}-last-success.json")
        self._now = now
        self._times = self._read()
        self._written_at = now()
        self._is_written = True
        self._has_failed = False

    def of(self, pair: str) -> float | None:
        return self._times.get(pair)

    def note(self, pair: str, wall: float) -> None:
        """A message of the pair was forwarded."""
        self._times[pair], self._is_written = wall, False
        if self._now() - self._written_at >= WRITE_EVERY:
            self.write()

    def write(self) -> None:
        """Writes what is new."""
        if self._file is None or self._is_written:
            return
        self._written_at, self._is_written = self._now(), True
        try:
            write_state(self._file, _TIMES.dump_json(self._times, indent=2).decode())
        except OSError as error:
            if not self._has_failed:
                log.warning(
                    "the time of the last success will not survive a restart: cannot write %s: %s", self._file, error
                )
            self._has_failed = True

    def _read(self) -> dict[str, float]:
        if self._file is None or not self._file.exists():
            return {}
        try:
            return _TIMES.validate_json(self._file.read_bytes())
        except (OSError, ValidationError) as error:
            log.warning(
                "the time of the last success is unknown: cannot read %s (%s)", self._file, type(error).__name__
            )
            return {}
