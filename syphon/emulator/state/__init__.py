"""State on disk (`--state DIR`): acknowledged messages and entities survive the process."""

from .database import StateUnusable
from .directory import StateDirectory
from .sqlite_journal import SqliteJournal, StateSnapshot

__all__ = ["SqliteJournal", "StateDirectory", "StateSnapshot", "StateUnusable"]
