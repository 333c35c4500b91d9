"""What a report says: plain values, and the verdict on them. `report_query` makes them from the ledger.

The report counts two things. A **transfer** is one receipt of a message and its outcome. A **message** may take several
transfers: left while its destination was down, forwarded an hour later. The best of these outcomes counts for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from syphon.model import Counters, ExitCode, html_line, html_table, plural

from .rows import Period


@dataclass(slots=True)
class Transfers(Counters):
    """The counters of all transfers. They balance: received = forwarded + dead_lettered + left + unaccounted."""

    bytes: int = 0

    @property
    def unaccounted(self) -> int:
        """Transfers that a task had counted, and that are not on record because the task or its driver was lost."""
        return self.without_outcome


@dataclass(frozen=True)
class Messages:
    """total = forwarded + dead_lettered + left."""

    forwarded: int
    dead_lettered: int
    left: int
    repeated: int
    """Messages that were forwarded more than once."""
    copies: int
    """Forwarded copies beyond the first, of all messages together."""
    arrived_otherwise: int
    """Dead letters whose message id has arrived from the same backlog queue: they were replayed, or sent twice."""

    @property
    def total(self) -> int:
        return self.forwarded + self.dead_lettered + self.left


@dataclass(frozen=True)
class Spread:
    """The distribution of durations, in seconds."""

    p50: float
    p95: float
    longest: float


@dataclass(frozen=True)
class Band:
    """How many messages waited less than `below` seconds, and at least as long as the band before."""

    below: int | None
    messages: int


@dataclass(frozen=True)
class DestinationReport:
    """What happened to the messages for one destination."""

    name: str
    messages: int
    forwarded: int
    dead_lettered: int
    left: int
    possible_duplicates: int
    repeated: int
    bytes: int
    in_backlog: Spread | None
    in_flight: Spread | None
    """From received to accepted by the destination: how fast the destination is."""


@dataclass(frozen=True)
class Renamed:
    """Messages that named one destination, and that the operator has sent to another one."""

    destination: str
    renamed_to: str
    messages: int
    forwarded: int


@dataclass(frozen=True)
class TimelineStep:
    """How many transfers ended in one step of the timeline."""

    start: datetime
    forwarded: int
    dead_lettered: int
    left: int


@dataclass(frozen=True)
class Timeline:
    """Transfers over time."""

    seconds: int
    """How long each step is."""
    steps: list[TimelineStep]
    """Without gaps: a time without transfers has a step of zeros."""


@dataclass(frozen=True)
class Hour:
    """How many transfers for one destination ended within an hour."""

    start: datetime
    destination: str
    forwarded: int
    dead_lettered: int
    left: int


@dataclass(frozen=True)
class ReasonCount:
    """Why messages for a destination went to the dead letters, or are left."""

    reason: str
    destination: str
    messages: int
    oldest: datetime | None
    """When the oldest of them came into the backlog."""
    last_attempt: datetime
    example: str


@dataclass(frozen=True)
class Repeat:
    """A message that was forwarded more than once."""

    pair: str
    queue: str
    sequence_number: int
    message_id: str
    destination: str
    times: int


@dataclass(frozen=True)
class Sessions:
    """The sessions of pairs that keep the order of sessions. They are told apart by destination."""

    total: int
    violated: int
    """Sessions of which a message arrived after a later one."""


@dataclass(frozen=True)
class OrderViolation:
    """A session whose order was not kept."""

    pair: str
    destination: str
    session_id: str
    messages: int
    late: int
    """How many of its messages arrived after a later one."""


@dataclass(frozen=True)
class Shortfall:
    """An attempt of a task that had counted more transfers than it has rows."""

    pair: str
    queue: str
    job: str
    slot: int
    attempt: int
    ended_at: datetime
    received: int
    unaccounted: int
    forwarded: int
    """How many of the unaccounted transfers it had counted as forwarded."""
    error: str | None


@dataclass(frozen=True)
class OpenJobReport:
    """A job that was opened and is not closed: none of its rows is on record."""

    pair: str
    job: str
    slots: int
    opened_at: datetime
    heard_at: datetime
    """When its driver last recorded the job's progress, or opened it."""
    host: str
    pid: int
    """The process of its driver, on that host."""
    queues: dict[str, Counters]
    """What the last report had counted, by queue. A queue of which nothing was reported has zeros."""
    may_be_running: bool = False
    """It reported within the last minute."""

    @property
    def received(self) -> int:
        return sum(each.received for each in self.queues.values())


@dataclass(frozen=True)
class Report:
    """Everything that a report says."""

    ledger: str
    period: Period
    pair: str | None
    pairs: list[str]
    """All pairs in the ledger."""
    first: datetime | None
    last: datetime | None
    first_enqueued: datetime | None
    """When the first of these messages came into the backlog: about the start of the outage."""
    last_enqueued: datetime | None
    transfers: Transfers
    messages: Messages
    in_backlog: Spread | None
    waits: list[Band]
    timeline: Timeline
    destinations: list[DestinationReport]
    renames: list[Renamed]
    hours: list[Hour]
    dead_letters: list[ReasonCount]
    left: list[ReasonCount]
    repeats: list[Repeat]
    sessions: Sessions
    order_violations: list[OrderViolation]
    shortfalls: list[Shortfall]
    open_jobs: list[OpenJobReport]
    unreadable_files: list[str]

    @property
    def empty(self) -> bool:
        return not (self.transfers.received or self.open_jobs or self.unreadable_files)

    @property
    def proven(self) -> bool:
        """Every delivery is recorded."""
        return not (self.transfers.unaccounted or self.open_jobs or self.unreadable_files)

    @property
    def complete(self) -> bool:
        """Every recorded message has arrived, and every delivery is recorded."""
        return self.proven and not (self.messages.dead_lettered or self.messages.left)

    @property
    def exit_code(self) -> ExitCode:
        """That of `syphon report`: 0 only if the report is complete."""
        return ExitCode.OK if self.complete else ExitCode.LEFT

    @property
    def lost_jobs(self) -> list[OpenJobReport]:
        """Open jobs whose driver has not been heard of for a while."""
        return [job for job in self.open_jobs if not job.may_be_running]

    @property
    def running_jobs(self) -> list[OpenJobReport]:
        """Open jobs that may still be running."""
        return [job for job in self.open_jobs if job.may_be_running]

    @property
    def slowest(self) -> list[DestinationReport]:
        measured = [each for each in self.destinations if each.in_flight is not None]
        return sorted(measured, key=lambda each: each.in_flight.p95 if each.in_flight else 0, reverse=True)

    @property
    def verdict(self) -> str:
        """The verdict in one line."""
        return " ".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The sentences of the verdict, the most important first."""
        return list(self._sentences())

    def as_json(self) -> dict[str, Any]:
        """The report in its documented form for programs: times in ISO-8601, durations in seconds (docs/report.md)."""
        head = {"verdict": self.verdict, "complete": self.complete}
        values = asdict(self)
        values["transfers"] = {name: getattr(self.transfers, name) for name in TRANSFER_KEYS}
        for values_of_job, job in zip(values["open_jobs"], self.open_jobs, strict=True):
            values_of_job["queues"] = [
                {"queue": name, **{key: getattr(each, key) for key in QUEUE_KEYS}} for name, each in job.queues.items()
            ]
        values["messages"] = {"total": self.messages.total, **values["messages"]}
        return head | {key: _plain(value) for key, value in values.items()}

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, and the destinations. `html_page` has everything."""
        transfers = self.transfers
        balance = (
            f"{transfers.received:,} received = {transfers.forwarded:,} forwarded + {transfers.dead_lettered:,} "
            f"dead-lettered + {transfers.left:,} left in the backlog + {transfers.unaccounted:,} unaccounted"
        )
        parts = [html_line(self.verdict, strong=True), html_line(balance)]
        rows = [(each.name or "(none)", each.messages, *_outcomes(each)) for each in self.destinations]
        if rows:
            parts.append(html_table(("destination", "messages", "forwarded", "dead-lettered", "left"), rows))
        reasons = [(each.reason, each.destination, each.messages, each.example) for each in self.dead_letters]
        if reasons:
            parts.append(html_table(("dead letters", "destination", "messages", "example"), reasons))
        return "".join(parts)

    def _sentences(self) -> Iterator[str]:
        messages, transfers = self.messages, self.transfers
        if self.empty:
            yield "Nothing is recorded."
            return
        # Where something is missing, the messages on record need not be all that there were.
        noun = "message" if self.proven else "message on record"
        many = "messages" if self.proven else "messages on record"
        if messages.total and messages.forwarded == messages.total:
            yield f"The {noun} arrived." if messages.total == 1 else f"All {messages.total:,} {many} arrived."
        elif messages.total:
            yield f"{messages.forwarded:,} of {messages.total:,} {noun if messages.total == 1 else many} arrived."
        if messages.dead_lettered:
            yield f"{messages.dead_lettered:,} dead-lettered{self._of_these(messages)}."
        if messages.left:
            yield f"{messages.left:,} left in the backlog."
        if messages.repeated:
            yield f"{messages.repeated:,} arrived more than once."
        yield from self._order_sentences()
        if transfers.unaccounted:
            yield f"{plural(transfers.unaccounted, 'receipt')} cannot be accounted for."
        yield from self._open_sentences()
        if self.unreadable_files:
            files, them = (
                plural(len(self.unreadable_files), "file"),
                "it" if len(self.unreadable_files) == 1 else "them",
            )
            yield f"{files} of the ledger cannot be read: what is in {them} is missing here."
        if self.proven:
            yield "Every delivery is accounted for."

    def _order_sentences(self) -> Iterator[str]:
        sessions = self.sessions
        if sessions.violated:
            yield f"Order not kept in {sessions.violated:,} of {plural(sessions.total, 'session')}."
        elif sessions.total:
            yield f"Order kept in {'the session' if sessions.total == 1 else f'all {sessions.total:,} sessions'}."

    @staticmethod
    def _of_these(messages: Messages) -> str:
        since = messages.arrived_otherwise
        if not since:
            return ""
        if since == messages.dead_lettered:
            return ", and arrived under the same message id"
        return f"; {since:,} of these arrived under the same message id"

    def _open_sentences(self) -> Iterator[str]:
        if lost := len(self.lost_jobs):
            was, it = ("was", "it") if lost == 1 else ("were", "they")
            yield (
                f"{plural(lost, 'job')} {was} opened and never closed: "
                f"what {it} did after the last report is not known."
            )
        if running := self.running_jobs:
            has = "it has" if len(running) == 1 else "they have"
            received = sum(job.received for job in running)
            known = f" ({plural(received, 'message')} at the last report)" if received else ""
            jobs = plural(len(running), "job")
            yield f"{jobs} may still be running: what {has} received{known} is not on record yet."


def _outcomes(line: DestinationReport) -> tuple[int, int, int]:
    return line.forwarded, line.dead_lettered, line.left


QUEUE_KEYS = ("received", "forwarded", "dead_lettered", "left")
TRANSFER_KEYS = (
    "received",
    "forwarded",
    "dead_lettered",
    "left",
    "unaccounted",
    "possible_duplicates",
    "bytes",
)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
