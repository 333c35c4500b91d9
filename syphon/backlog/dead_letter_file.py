"""Dead letters in a file: JSON Lines, one dead letter per line.

A line describes it for people and programs, and has the whole message in `message` (base64). An import reads only that.
`sha256` is its checksum: a line that was damaged or edited by hand is noticed, and never sent.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from syphon.model import SyphonError
from syphon.servicebus import MessageState, Peeked

from .dead_letters import DeadLetter, NotPutBack, put_back, read

FORMAT = "syphon-dead-letter/1"
"""What each line is: a later form gets another name."""


class BadLine(SyphonError):
    """A line that cannot be read as a dead letter."""


class FiledLetter(NamedTuple):
    """A dead letter that was read from a file, and the pair it belongs to."""

    pair: str
    letter: DeadLetter


def letter_line(pair: str, letter: DeadLetter, more: Mapping[str, Any] | None = None) -> str:
    """A dead letter as a line of a file, with `more` keys that nothing reads again."""
    enqueued_at = letter.enqueued_at
    record = {
        "format": FORMAT,
        "pair": pair,
        "queue": letter.queue,
        "sequence_number": letter.sequence_number,
        "reason": letter.reason,
        "description": letter.description,
        "destination": letter.destination,
        "message_id": letter.message_id,
        "enqueued_at": None if enqueued_at is None else _iso(enqueued_at),
        "bytes": letter.size,
        **(more or {}),
        "sha256": hashlib.sha256(letter.payload).hexdigest(),
        "message": base64.b64encode(letter.payload).decode(),
    }
    return json.dumps(record)


def read_line(text: str) -> FiledLetter:
    """The dead letter of a line, byte for byte. Raises BadLine."""
    try:
        record = json.loads(text)
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            raise BadLine(f"it has no format {FORMAT!r}.")
        pair, queue, number = record["pair"], record["queue"], record["sequence_number"]
        payload = base64.b64decode(record["message"], validate=True)
        checksum = record["sha256"]
    except KeyError as error:
        raise BadLine(f"{error.args[0]} is missing.") from None
    except (ValueError, TypeError) as error:
        raise BadLine(f"it is damaged: {error}.") from None
    if not (isinstance(pair, str) and isinstance(queue, str) and type(number) is int):
        raise BadLine("pair and queue must be texts, and sequence_number a number.")
    if hashlib.sha256(payload).hexdigest() != checksum:
        raise BadLine("message does not match sha256: it was damaged, or edited by hand.")
    return FiledLetter(pair, read(queue, Peeked(payload, number, MessageState.ACTIVE)))


def fingerprint(payload: bytes) -> bytes | None:
    """What identifies a dead letter wherever it is met: a hash of the message without what the broker adds to it.

    None if the bytes are not a message: two such dead letters cannot be compared.
    """
    try:
        return hashlib.sha256(put_back(payload)).digest()
    except NotPutBack:
        return None


def _iso(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")
