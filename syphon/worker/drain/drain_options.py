"""The options of a drain, which are those of its dry run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from syphon.model import InvalidOption, MessageFilter, PathPatterns, TimeToLive, millis_of
from syphon.option_declarations import (
    COUNT,
    DURATION,
    FLAG,
    NAMES,
    RATE,
    TIME,
    WHERE,
    Moment,
    Names,
    Option,
    QueueSelection,
    Span,
    one_of,
    options_of,
    words,
)
from syphon.sql import Where

GIVE_UP = {"missing": "entity-not-found", "disabled": "entity-disabled"}
"""The words of --give-up, and the permanent error in the settings for each."""


@dataclass(kw_only=True)
class DrainOptions(QueueSelection):
    """Which messages a drain forwards, and its limits. Commands, functions and their reference are made from this."""

    destinations: Option[Names, tuple[str, ...]] = Option(
        "--destination",
        NAMES,
        "Only messages for matching destinations.",
        metavar="PATTERN",
        default=(),
        details="Messages that do not match are received and stay locked for up to a minute",
    )
    before: Option[Moment | None, datetime | None] = Option(
        "--before", TIME, "Only messages enqueued in the backlog before this time, or 2h ago."
    )
    after: Option[Moment | None, datetime | None] = Option(
        "--after", TIME, "Only messages enqueued in the backlog at or after this time, or 2h ago."
    )
    where: Option[str | Where | None, Where | None] = Option(
        "--where",
        WHERE,
        "Only messages for which this SQL filter is true, as in \"priority > 5 AND sys.Label = 'new'\".",
        details="The grammar of subscription rules ([filters](filters.md)), over the message as it lies in the backlog",
    )
    limit: Option[int | None, int | None] = Option("--limit", COUNT, "Forward at most N messages.")
    rate: Option[str | float | None, float | None] = Option(
        "--rate",
        RATE,
        "Receive at most this many messages per second per pair.",
        details="Without it a drain finds what a throttled service accepts, uses 80 % of it (`rate_share`), and shows "
        "the queues as *throttled*",
    )
    slots: Option[int | None, int | None] = Option(
        "--slots",
        COUNT,
        "Use at most N slots (tasks of Spark) at once per pair.",
        details="Without it a drain takes every place that its executors have, and other jobs wait for it",
    )
    timeout: Option[Span | None, float | None] = Option(
        "--timeout", DURATION, "Stop after this time; finish or abandon messages in flight."
    )
    patience: Option[Span, float] = Option(
        "--patience",
        DURATION,
        "Stop draining a queue after this time without progress.",
        default="2m",
        details="A throttled queue is given up only if its destination has also answered busy three times",
    )
    give_up: Option[Names, frozenset[str]] = Option(
        "--give-up",
        words(*GIVE_UP),
        "Dead-letter messages for destinations that are missing, disabled or both (missing,disabled).",
        default=(),
        details="`entity-not-found` and `entity-disabled` in `destinations.permanent_errors` do it always",
    )
    settle: Option[Span, float] = Option(
        "--settle",
        DURATION,
        "Consider a queue empty only after it stayed empty for this time; 15m covers late messages.",
        default=0.0,
        details="Service Bus may show a message up to 15 minutes late (S11)",
    )
    all_found: Option[bool, bool] = Option(
        "--all-found", FLAG, "Include backlog queues beyond backlog_queue_count (needs Manage).", default=False
    )
    ttl: Option[str | None, TimeToLive | None] = Option(
        "--ttl",
        one_of(TimeToLive),
        "restore: restart the time to live; remaining: subtract the time spent in the backlog.",
    )

    messages: MessageFilter = field(init=False, repr=False)

    @property
    def is_filtered(self) -> bool:
        """Whether some messages may not match, so that the counts of the namespace do not say how many do."""
        return bool(self.destinations) or self.before is not None or self.after is not None or self.where is not None

    def written(self) -> str:
        """The options that differ from their defaults, as on the command line."""
        defaults = DrainOptions()
        given = ((each, getattr(self, each.name)) for each in options_of(DrainOptions))
        return " ".join(
            each.flag if each.kind.is_flag else f"{each.flag} {_text(value)}"
            for each, value in given
            if value != getattr(defaults, each.name)
        )

    def __post_init__(self) -> None:
        if self.before is not None and self.after is not None and self.before <= self.after:
            raise InvalidOption(
                f"--before {self.before.isoformat()} is not later than --after {self.after.isoformat()}."
            )
        patterns = PathPatterns.of(self.destinations or ["*"])
        self.messages = MessageFilter(patterns, millis_of(self.before), millis_of(self.after), self.where)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, tuple | frozenset):
        return ",".join(map(str, sorted(value)))
    if isinstance(value, Where):
        return repr(value.expression)
    return f"{value:.10g}" if isinstance(value, float) else str(value)
