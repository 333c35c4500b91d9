"""The ledger of one afternoon: an outage, its end, and everything that can go wrong in between.

| what                                         | transfers | messages |
|----------------------------------------------|-----------|----------|
| forwarded at once                            | 60        | 60       |
| left while `orders` was full, then forwarded | 10 + 10   | 10       |
| left, and not seen again                     | 3         | 3        |
| dead-lettered: 2 too large, 1 without a path | 3         | 3        |
| forwarded twice, after a lost lock           | 4         | 2        |
| counted by a task that was killed            | 5         | –        |
"""

from __future__ import annotations

from syphon.ledger.ledger import Ledger
from syphon.model import AttemptKey
from syphon.model.outcomes import Outcome, Result
from tests.support.ledger_rows import HOUR, MINUTE, NOON, attempt, note, outcome, record

FULL = "amqp:resource-limit-exceeded: The queue 'orders' is full. TrackingId:{}"
TOO_LARGE = "MessageTooLarge: Destination 'invoices': amqp:link:message-size-exceeded: {} bytes"
NO_PATH = "NoDestination: x-ms-path is string '', expected is the path of an entity"
FIRST, SECOND, KILLED = (AttemptKey("contoso", job, 0, 0) for job in ("job-1", "job-2", "job-3"))


def put_on_record(ledger: Ledger) -> None:
    record(ledger, list(_first()), FIRST)
    record(ledger, list(_second()), SECOND)
    record(ledger, [outcome(1, destination="elsewhere")], AttemptKey("fabrikam", "job-4", 0, 0))
    note(
        ledger,
        [
            attempt(76, 60, dead_lettered=3, left=13, origin=FIRST, at=NOON + MINUTE),
            attempt(14, origin=SECOND, at=NOON + HOUR, possible_duplicates=4),
            attempt(5, 3, origin=KILLED, at=NOON + HOUR, finished=False, error="the Python worker exited"),
        ],
    )


def _first() -> list[Outcome]:
    """At noon `orders` is full for some messages, and `billing` accepts all of its own."""
    return [
        *(outcome(n, at=NOON + n * 1000, waited=n * MINUTE, destination="Orders/") for n in range(1, 41)),
        *(outcome(n, at=NOON + n * 1000, waited=30_000, destination="billing") for n in range(41, 61)),
        *(outcome(n, result=Result.LEFT, waited=n * MINUTE, reason=FULL.format(n)) for n in range(61, 74)),
        *(
            outcome(n, result=Result.DEAD_LETTERED, destination="invoices", reason=TOO_LARGE.format(n))
            for n in (74, 75)
        ),
        outcome(76, result=Result.DEAD_LETTERED, destination="", message_id="", reason=NO_PATH),
    ]


def _second() -> list[Outcome]:
    """An hour later the operator sends the rest to another queue, and two messages lose their locks."""
    later = NOON + HOUR
    return [
        *(outcome(n, at=later, waited=n * MINUTE + HOUR, renamed_to="Orders-V2") for n in range(61, 71)),
        *(
            outcome(n, at=later + again, waited=HOUR + again, reason="the lock was lost", possible_duplicate=True)
            for n in (77, 78)
            for again in (0, 90_000)
        ),
    ]
