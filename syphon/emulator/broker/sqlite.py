"""A journal on disk: what was acknowledged survives the process, even one that is killed.

Changes are collected and written in one transaction per turn of the event loop; acknowledgements wait for it. SQLite in
WAL mode has a committed transaction in the operating system's hands, so kill -9 loses nothing. A power cut may lose the
last moments: this is a development server, and waiting for the disk on every send would make it a slow one.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from syphon.amqp import decode, encode

from ..clock import Millis
from .message import BrokeredMessage, State
from .records import from_json, to_json

_SCHEMA = """
create table if not exists entities (path text primary key, place integer, description text) without rowid;
create table if not exists messages (
    path text, ordinal integer, fragment integer, bare blob, header_fields blob, annotations blob,
    annotation_count integer, message_id blob, session_id text, partition_key text, ttl integer, due integer,
    size integer, enqueued_sequence integer, enqueued_at integer, expires_at integer, dead_letter_source text,
    state integer, delivery_count integer, lock_token blob, locked_until integer,
    primary key (path, ordinal)) without rowid;
create table if not exists sessions (
    path text, id text, state blob, updated_at integer, primary key (path, id)) without rowid;
create table if not exists seen (path text, id text, at integer, primary key (path, id)) without rowid;
create table if not exists numbers (path text primary key, last integer) without rowid;
"""
_KEPT = (
    "ordinal", "fragment", "bare", "header_fields", "annotations", "annotation_count", "message_id", "session_id",
    "partition_key", "ttl", "due", "size", "enqueued_sequence", "enqueued_at", "expires_at", "dead_letter_source",
    "state", "delivery_count", "lock_token", "locked_until",
)  # fmt: skip
_PUT = f"insert or replace into messages (path, {', '.join(_KEPT)}) values ({', '.join('?' * (len(_KEPT) + 1))})"  # noqa: S608
_TOUCH = "update messages set state=?, delivery_count=?, lock_token=?, locked_until=? where path=? and ordinal=?"
_BELOW = "path = ? or path like ? escape '\\'"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What an earlier process left behind, oldest first."""

    entities: list[tuple[str, object]]
    messages: list[tuple[str, BrokeredMessage]]
    sessions: list[tuple[str, str, bytes | None, Millis]]
    seen: list[tuple[str, str, Millis]]
    numbers: dict[str, int]


class SqliteJournal:
    """Writes a namespace's changes into one database file."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._database.executescript("pragma journal_mode=wal; pragma synchronous=normal;" + _SCHEMA)
        self._statements: list[tuple[str, tuple[object, ...]]] = []
        self._callbacks: list[Callable[[], None]] = []
        self._last: dict[str, int] = {}
        self._flushing = False
        self._places = self._database.execute("select coalesce(max(place), 0) from entities").fetchone()[0]

    # --- hearing -------------------------------------------------------------------------------------------------

    def put(self, path: str, message: BrokeredMessage) -> None:
        self._last[path] = max(self._last.get(path, 0), message.ordinal)
        values = [getattr(message, name) for name in _KEPT]
        values[6] = encode(message.message_id)
        self._write(_PUT, path, *values)

    def touch(self, path: str, message: BrokeredMessage) -> None:
        state = int(message.state), message.delivery_count, message.lock_token, message.locked_until
        self._write(_TOUCH, *state, path, message.ordinal)

    def remove(self, path: str, ordinal: int) -> None:
        self._write("delete from messages where path=? and ordinal=?", path, ordinal)

    def session(self, path: str, session_id: str, state: bytes | None, updated_at: Millis) -> None:
        self._write("insert or replace into sessions values (?, ?, ?, ?)", path, session_id, state, updated_at)

    def seen(self, path: str, message_id: str, at: Millis) -> None:
        self._write("insert or replace into seen values (?, ?, ?)", path, message_id, at)

    def describe(self, path: str, description: object) -> None:
        self._places += 1
        self._write(
            "insert into entities values (?, ?, ?) on conflict (path) do update set description = excluded.description",
            path, self._places, to_json(description),
        )  # fmt: skip

    def forget(self, path: str) -> None:
        below = path.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "/%"
        for table in ("entities", "messages", "sessions", "seen", "numbers"):
            self._write(f"delete from {table} where {_BELOW}", path, below)  # noqa: S608  tables of ours, values bound

    def when_durable(self, callback: Callable[[], None]) -> None:
        if not self._statements:
            callback()
            return
        self._callbacks.append(callback)

    def _write(self, statement: str, *values: object) -> None:
        self._statements.append((statement, values))
        if not self._flushing:
            self._flushing = True
            try:
                asyncio.get_running_loop().call_soon(self.flush)
            except RuntimeError:  # while starting, before there is a loop: whoever starts us flushes
                self._flushing = False

    def flush(self) -> None:
        """Writes all that was heard, then lets the acknowledgements go."""
        self._flushing = False
        statements, self._statements = self._statements, []
        execute = self._database.execute
        execute("begin")
        try:
            for statement, values in statements:
                execute(statement, values)
            for path, last in self._last.items():
                execute("insert or replace into numbers values (?, ?)", (path, last))
            execute("commit")
        except BaseException:
            execute("rollback")
            raise
        self._last.clear()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def close(self) -> None:
        self.flush()
        self._database.close()

    # --- remembering ---------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        rows = self._database.execute("select path, description from entities order by place")
        return Snapshot(
            entities=[(path, from_json(text)) for path, text in rows],
            messages=list(self._messages()),
            sessions=self._database.execute("select path, id, state, updated_at from sessions").fetchall(),
            seen=self._database.execute("select path, id, at from seen order by at").fetchall(),
            numbers=dict(self._database.execute("select path, last from numbers").fetchall()),
        )

    def _messages(self) -> Iterator[tuple[str, BrokeredMessage]]:
        for path, *values in self._database.execute(
            f"select path, {', '.join(_KEPT)} from messages order by path, ordinal"  # noqa: S608
        ):
            message = BrokeredMessage()
            for name, value in zip(_KEPT, values, strict=True):
                setattr(message, name, value)
            message.message_id = decode(values[6])[0]
            message.state = State(message.state)
            yield path, message
