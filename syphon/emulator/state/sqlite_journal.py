"""A journal on disk: acknowledged changes survive the process, also when it is killed.

The journal collects the changes of one turn of the event loop and writes them in one transaction; acknowledgements wait
for it. In WAL mode a committed transaction is with the operating system, so kill -9 loses nothing. A power cut may lose
the last moments: this is a development server, and waiting for the disk on every send would make it slow.

When a transaction cannot be written (for example because the disk is full), no acknowledgement that waits for it is
sent. The journal keeps its changes and retries, so that memory and disk agree as soon as there is room.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from syphon.amqp import Malformed, decode, encode

from ..broker import BrokeredMessage, StoredState
from ..clock import Millis
from .database import open_database, unusable
from .description_json import from_json, to_json

log = logging.getLogger(__name__)

_TRY_AGAIN = 1.0
_SWEEP = 1000
"""After this many new ids, the ids older than the duplicate window are deleted."""

_MESSAGE_COLUMNS = (
    "ordinal",
    "fragment",
    "bare",
    "header_fields",
    "annotations",
    "annotation_count",
    "message_id",
    "session_id",
    "partition_key",
    "ttl",
    "due",
    "size",
    "enqueued_sequence",
    "enqueued_at",
    "expires_at",
    "dead_letter_source",
    "state",
    "delivery_count",
    "lock_token",
    "locked_until",
    "hops",
    "delivery_annotations",
    "first_acquirer",
)
_PUT = (
    f"insert or replace into messages (path, {', '.join(_MESSAGE_COLUMNS)}) "  # noqa: S608
    f"values ({', '.join('?' * (len(_MESSAGE_COLUMNS) + 1))})"
)
_TOUCH = "update messages set state=?, delivery_count=?, lock_token=?, locked_until=? where path=? and ordinal=?"
_BELOW = "path = ? or (path >= ? and path < ?)"


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state that an earlier process wrote, oldest first."""

    entities: list[tuple[str, object]]
    messages: list[tuple[str, BrokeredMessage]]
    sessions: list[tuple[str, str, bytes | None, Millis]]
    seen: list[tuple[str, str, Millis]]
    numbers: dict[str, int]


class SqliteJournal:
    """Writes the changes of a namespace to one database file."""

    def __init__(self, file: Path) -> None:
        self.write_error: str | None = None
        self.on_write_error: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()
        """A context around the calls that report a failed transaction to its waiting clients."""
        self._file = file
        self._database = open_database(file)
        self._statements: list[tuple[str, tuple[object, ...]]] = []
        self._waiting: list[tuple[Callable[[], None], Callable[[str], None] | None]] = []
        self._last: dict[str, int] = {}
        self._fresh_ids: dict[str, int] = {}
        self._flushing = False
        self._closed = False
        self._places = self._database.execute("select coalesce(max(place), 0) from entities").fetchone()[0]

    # --- changes ---------------------------------------------------------------------------------------------------

    def put(self, path: str, message: BrokeredMessage) -> None:
        self._last[path] = max(self._last.get(path, 0), message.ordinal)
        values = [getattr(message, name) for name in _MESSAGE_COLUMNS]
        values[6] = encode(message.message_id)
        self._write(_PUT, path, *values)

    def touch(self, path: str, message: BrokeredMessage) -> None:
        state = int(message.state), message.delivery_count, message.lock_token, message.locked_until
        self._write(_TOUCH, *state, path, message.ordinal)

    def remove(self, path: str, ordinal: int) -> None:
        self._write("delete from messages where path=? and ordinal=?", path, ordinal)

    def session(self, path: str, session_id: str, state: bytes | None, updated_at: Millis) -> None:
        if state is None:
            self._write("delete from sessions where path=? and id=?", path, session_id)
        else:
            self._write("insert or replace into sessions values (?, ?, ?, ?)", path, session_id, state, updated_at)

    def seen(self, path: str, message_id: str, at: Millis, window: Millis) -> None:
        self._write("insert or replace into seen values (?, ?, ?)", path, message_id, at)
        self._fresh_ids[path] = self._fresh_ids.get(path, 0) + 1
        if self._fresh_ids[path] >= _SWEEP:
            self._fresh_ids[path] = 0
            self._write("delete from seen where path=? and at<=?", path, at - window)

    def describe(self, path: str, description: object) -> None:
        self._places += 1
        self._write(
            "insert into entities values (?, ?, ?) on conflict (path) do update set description = excluded.description",
            path,
            self._places,
            to_json(description),
        )

    def forget(self, path: str) -> None:
        # The sub-queues of an entity start with a dollar sign, and no entity name does. So the range from '/$' to the
        # next character does not include a queue 'a/b' when the queue 'a' is deleted.
        for table in ("entities", "messages", "sessions", "seen", "numbers"):
            self._write(f"delete from {table} where {_BELOW}", path, f"{path}/$", f"{path}/%")  # noqa: S608  bound
        for known in [known for known in self._last if known == path or known.startswith(f"{path}/$")]:
            del self._last[known]

    def when_durable(self, callback: Callable[[], None], failed: Callable[[str], None] | None = None) -> None:
        if self.write_error is not None:
            if failed is not None:
                failed(self.write_error)
        elif self._statements:
            self._waiting.append((callback, failed))
        else:
            callback()

    def _write(self, statement: str, *values: object) -> None:
        if self._closed:
            return  # the emulator has stopped, and changes by ending connections were not acknowledged
        self._statements.append((statement, values))
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        if self._flushing and not self._closed:
            self.flush()

    def write_now(self) -> None:
        """Writes all changes at the start, before there are clients."""
        try:
            self._commit()
        except sqlite3.Error as error:
            raise unusable(self._file, error) from error

    def flush(self) -> None:
        """Writes all changes, then sends the acknowledgements. If the write fails, none of them is sent."""
        self._flushing = False
        try:
            self._commit()
        except sqlite3.Error as error:
            self._fail(error)
            return
        if self.write_error is not None:
            log.warning("%s can be written again; the changes that waited in memory are on disk now.", self._file)
            self.write_error = None
        waiting, self._waiting = self._waiting, []
        for callback, _ in waiting:
            callback()

    def _commit(self) -> None:
        if not self._statements and not self._last:
            return
        execute = self._database.execute
        try:
            execute("begin immediate")
            for statement, values in self._statements:
                execute(statement, values)
            for path, last in self._last.items():
                execute("insert or replace into numbers values (?, ?)", (path, last))
            execute("commit")
        except BaseException:
            # Some errors end the transaction.
            if self._database.in_transaction:
                execute("rollback")
            raise
        self._statements.clear()
        self._last.clear()

    def _fail(self, error: sqlite3.Error) -> None:
        waiting, self._waiting = self._waiting, []
        first = self.write_error is None
        self.write_error = f"The emulator cannot write its state to {self._file}: {error}."
        if first:
            consequence = "It acknowledges nothing until the write succeeds, and retries once per second."
            log.error("%s %s", self.write_error, consequence)
        with self.on_write_error(self.write_error):
            for _, failed in waiting:
                if failed is not None:
                    failed(self.write_error)
        if not self._closed:
            self._flushing = True
            asyncio.get_running_loop().call_later(_TRY_AGAIN, self._flush_soon)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.flush()
            self._database.close()

    # --- reading ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> StateSnapshot:
        """Reads the whole state. Raises StateUnusable if the file cannot be read."""
        try:
            return self._read()
        except (sqlite3.Error, Malformed, ValueError, TypeError, KeyError, AttributeError) as error:
            raise unusable(self._file, error) from error

    def _read(self) -> StateSnapshot:
        rows = self._database.execute("select path, description from entities order by place")
        return StateSnapshot(
            entities=[(path, from_json(text)) for path, text in rows],
            messages=list(self._messages()),
            sessions=self._database.execute("select path, id, state, updated_at from sessions").fetchall(),
            seen=self._database.execute("select path, id, at from seen order by at").fetchall(),
            numbers=dict(self._database.execute("select path, last from numbers").fetchall()),
        )

    def _messages(self) -> Iterator[tuple[str, BrokeredMessage]]:
        for path, *values in self._database.execute(
            f"select path, {', '.join(_MESSAGE_COLUMNS)} from messages order by path, ordinal"  # noqa: S608
        ):
            message = BrokeredMessage()
            for name, value in zip(_MESSAGE_COLUMNS, values, strict=True):
                setattr(message, name, value)
            message.message_id = decode(values[6])[0]
            message.state = StoredState(message.state)
            yield path, message
