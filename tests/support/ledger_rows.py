"""Builds outcomes and attempts as tasks report them, and writes ledgers from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from syphon.ledger import parquet
from syphon.ledger.ledger import Ledger
from syphon.ledger.parquet import files_by_day
from syphon.ledger.rows import Attempt
from syphon.model import AttemptKey
from syphon.model.outcomes import Counters, Outcome, Result

MINUTE = 60_000
HOUR = 60 * MINUTE
NOON = int(datetime(2026, 10, 5, 12, tzinfo=UTC).timestamp() * 1000)
"""The time of most events in these tests, in milliseconds since 1970."""
ORIGIN = AttemptKey("contoso", "job-1", 0, 0)


def outcome(
    number: int = 1,
    *,
    at: int = NOON,
    result: Result = Result.FORWARDED,
    waited: int = HOUR,
    destination: str = "orders",
    reason: str = "",
    message_id: str | None = None,
    possible_duplicate: bool = False,
    renamed_to: str | None = None,
    session: str | None = None,
    ordered: bool = False,
) -> Outcome:
    """A transfer that was settled at `at`, of a message that had been in the backlog for `waited` milliseconds."""
    forwarded = result is Result.FORWARDED
    return Outcome(
        queue="contoso/x-servicebus-transfer/0",
        sequence_number=number,
        message_id=f"message-{number}" if message_id is None else message_id,
        destination=destination,
        session_id=session,
        enqueued_at=at - waited,
        received_at=at - 500,
        forwarded_at=at if forwarded else None,
        settled_at=at,
        size=1024,
        delivery_count=0,
        result=result,
        reason=reason,
        possible_duplicate=possible_duplicate,
        renamed_to=renamed_to,
        ordered=ordered,
    )


def attempt(
    received: int, forwarded: int | None = None, *, origin: AttemptKey = ORIGIN, at: int = NOON, **more: object
) -> Attempt:
    """An attempt of a task that had received so many messages, all of them forwarded by default."""
    ending: dict[str, object] = {"finished": True, "error": None}
    ending |= {name: more.pop(name) for name in list(ending) if name in more}
    counters = Counters(received, received if forwarded is None else forwarded, **more)  # type: ignore[arg-type]
    return Attempt(
        origin.pair,
        "contoso/x-servicebus-transfer/0",
        origin.job,
        origin.slot,
        origin.attempt,
        started_at=at - MINUTE,
        ended_at=at,
        counters=counters,
        **ending,  # type: ignore[arg-type]
    )


def record(ledger: Ledger, outcomes: Sequence[Outcome], origin: AttemptKey = ORIGIN) -> None:
    """Puts transfers on record, as the writer does it."""
    for day, file in files_by_day([packed_file(outcomes, origin)] if outcomes else []):
        ledger.put_transfers(f"{day}", uuid4().hex, file)


def note(ledger: Ledger, attempts: Sequence[Attempt]) -> None:
    """Puts attempts on record, as the writer does it."""
    ledger.put_attempts(uuid4().hex, attempts)


def packed_file(outcomes: Sequence[Outcome], origin: AttemptKey = ORIGIN) -> bytes:
    """Transfers as a task packs them."""
    return parquet.packed_file(outcomes, origin)


def moment(millis: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
