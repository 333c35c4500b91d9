"""The database file of one namespace: its schema, its marks, and the errors of a file that cannot be used."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

_APPLICATION_ID = 0x53795068
"""The application id in the header of the SQLite file: "SyPh"."""

_VERSION = 3
"""The version of the schema. Files of earlier versions are brought to it; one of a later version is not changed."""

_CHANGES = {
    1: "alter table messages add column delivery_annotations blob not null default x''",
    2: "alter table messages add column first_acquirer blob not null default x'40'",
}
"""What brings a file of a version to the next one."""

_SCHEMA = """
create table entities (path text primary key, place integer, description text) without rowid;
create table messages (
    path text, ordinal integer, fragment integer, bare blob, header_fields blob, annotations blob,
    annotation_count integer, message_id blob, session_id text, partition_key text, ttl integer, due integer,
    size integer, enqueued_sequence integer, enqueued_at integer, expires_at integer, dead_letter_source text,
    state integer, delivery_count integer, lock_token blob, locked_until integer, hops integer,
    delivery_annotations blob not null default x'', first_acquirer blob not null default x'40',
    primary key (path, ordinal)) without rowid;
create table sessions (
    path text, id text, state blob, updated_at integer, primary key (path, id)) without rowid;
create table seen (path text, id text, at integer, primary key (path, id)) without rowid;
create table numbers (path text primary key, last integer) without rowid;
"""


class StateUnusable(Exception):
    """The state on disk cannot be used. The text says why, and what to do."""


def open_database(file: Path) -> sqlite3.Connection:
    """Opens the database or creates it. Only its owner can read it, because it holds messages."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StateUnusable(f"The state file {file} cannot be used: {error.strerror}. Check its rights.") from None
    database = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=1)
    try:
        _initialize(database, file)
    except sqlite3.DatabaseError as error:
        database.close()
        raise unusable(file, error) from error
    except BaseException:
        database.close()
        raise
    return database


def _initialize(database: sqlite3.Connection, file: Path) -> None:
    owner = database.execute("pragma application_id").fetchone()[0]
    version = database.execute("pragma user_version").fetchone()[0]
    is_new = database.execute("select count(*) from sqlite_master").fetchone()[0] == 0
    if not is_new and owner != _APPLICATION_ID:
        raise StateUnusable(f"The file {file} belongs to another program. Name another directory.")
    if not is_new and version not in (_VERSION, *_CHANGES):
        raise StateUnusable(
            f"The state file {file} was written by another version of the emulator (its format is {version}, this one "
            f"reads {_VERSION}). Use that version, or name another directory."
        )
    database.execute("pragma journal_mode=wal")
    database.execute("pragma synchronous=normal")
    if is_new:
        # One transaction: a process that is killed here leaves an empty file and not a part of the schema.
        marks = f"pragma application_id={_APPLICATION_ID}; pragma user_version={_VERSION};"
        database.executescript(f"begin immediate; {marks} {_SCHEMA} commit;")
    elif version != _VERSION:
        changes = "; ".join(_CHANGES[each] for each in range(version, _VERSION))
        database.executescript(f"begin immediate; {changes}; pragma user_version={_VERSION}; commit;")


def unusable(file: Path, error: Exception) -> StateUnusable:
    # SQLite's operational errors are about the place: rights, space, locks. All others are about the content.
    is_about_the_place = isinstance(error, sqlite3.OperationalError)
    remedy = "Check its rights and the room on its disk" if is_about_the_place else "Put a good copy in its place"
    return StateUnusable(f"The state file {file} cannot be used: {error}. {remedy}, or name another directory.")
