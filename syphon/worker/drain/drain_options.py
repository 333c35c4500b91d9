"""The options of a drain, which are those of its dry run."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

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
class TransferOptions:
    """Which messages of its queues a transfer moves, and its limits: what a drain and a move share."""

    before: Option[Moment | None, datetime | None] = Option(
        "--before", TIME, "Only messages enqueued before this time, or 2h ago."
    )
    after: Option[Moment | None, datetime | None] = Option(
        "--after", TIME, "Only messages enqueued at or after this time, or 2h ago."
    )
    where: Option[str | Where | None, Where | None] = Option(
        "--where",
        WHERE,
        "Only messages for which this SQL filter is true, as in \"priority > 5 AND sys.Label = 'new'\".",
        details="The grammar of subscription rules ([filters](filters.md)), over the message as it lies in its queue",
    )
    limit: Option[int | None, int | None] = Option("--limit", COUNT, "Move at most N messages.")
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
        "Give a queue up after this time without progress.",
        default="2m",
        details="A throttled queue is given up only if its destination has also answered busy three times",
    )
    settle: Option[Span, float] = Option(
        "--settle",
        DURATION,
        "Consider a queue empty only after it stayed empty for this time; 15m covers late messages.",
        default=0.0,
        details="Service Bus may show a message up to 15 minutes late (S11)",
    )
    messages: MessageFilter = field(init=False, repr=False)

    @property
    def is_filtered(self) -> bool:
        """Whether some messages may not match, so that the counts of the namespace do not say how many do."""
        return not self.patterns.fit_all or self.before is not None or self.after is not None or self.where is not None

    @property
    def patterns(self) -> PathPatterns:
        """The destinations whose messages are moved."""
        return PathPatterns()

    @property
    def given_up(self) -> tuple[str, ...]:
        """The words of --give-up."""
        return ()

    def written(self) -> str:
        """The options that differ from their defaults, as on the command line."""
        given = ((each, getattr(self, each.name)) for each in options_of(type(self)))
        return " ".join(
            each.flag if each.kind.is_flag else f"{each.flag} {_text(value)}"
            for each, value in given
            if value != each.default_value
        )

    def for_pump(self) -> dict[str, Any]:
        """What every pump is told of these options."""
        return {"messages": self.messages}

    def __post_init__(self) -> None:
        if self.before is not None and self.after is not None and self.before <= self.after:
            raise InvalidOption(
                f"--before {self.before.isoformat()} is not later than --after {self.after.isoformat()}."
            )
        self.messages = MessageFilter(self.patterns, millis_of(self.before), millis_of(self.after), self.where)


@dataclass(kw_only=True)
class DrainOptions(TransferOptions, QueueSelection):
    """Which messages a drain forwards, and its limits. Commands, functions and their reference are made from this."""

    destinations: Option[Names, tuple[str, ...]] = Option(
        "--destination",
        NAMES,
        "Only messages for matching destinations.",
        metavar="PATTERN",
        default=(),
        details="Messages that do not match are received and stay locked for up to a minute",
    )
    give_up: Option[Names, frozenset[str]] = Option(
        "--give-up",
        words(*GIVE_UP),
        "Dead-letter messages for destinations that are missing, disabled or both (missing,disabled).",
        default=(),
        details="`entity-not-found` and `entity-disabled` in `destinations.permanent_errors` do it always",
    )
    all_found: Option[bool, bool] = Option(
        "--all-found", FLAG, "Include backlog queues beyond backlog_queue_count (needs Manage).", default=False
    )
    ttl: Option[str | None, TimeToLive | None] = Option(
        "--ttl",
        one_of(TimeToLive),
        "restore: restart the time to live; remaining: subtract the time spent in the backlog.",
    )

    @property
    def patterns(self) -> PathPatterns:
        return PathPatterns.of(self.destinations or ["*"])

    @property
    def given_up(self) -> tuple[str, ...]:
        return tuple(sorted(self.give_up))

    def for_pump(self) -> dict[str, Any]:
        return super().for_pump() | ({} if self.ttl is None else {"ttl": self.ttl})


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if type(value) in (tuple, frozenset):
        return ",".join(map(str, sorted(value)))  # type: ignore[call-overload]
    if isinstance(value, Where):
        return repr(value.expression)
    return f"{value:.10g}" if isinstance(value, float) else str(value)
