"""The options of a pair (F1). All mistakes in them are reported at once, when the options are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeAlias

from syphon.time_budget import PARTITIONED_TIMEOUT

from .events import Change

_MINUTE = timedelta(minutes=1)
_MOST_QUEUES = 10_000
_RANGES = {
    "failover_interval": (0, 60 * 60),
    "ping_primary_interval": (1, 30 * 60),
    "operation_timeout": (1, 60 * 60),
    "session_order_wait": (0, 24 * 60 * 60),
}
"""The durations among the options, and the seconds that they may be."""

Duration: TypeAlias = timedelta | float
"""A timedelta, or a number of seconds."""


def seconds(duration: Duration) -> float:
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


class BadOptions(ValueError):
    """Some options cannot be used. The text names each of them, and its valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How a pair behaves. The defaults are those of the paired namespaces of the .NET SDK.

    A duration is a timedelta or a number of seconds; it is kept as a timedelta. All mistakes in the options are
    reported at once, when the options are made.
    """

    backlog_queue_count: int = 10
    failover_interval: Duration = _MINUTE
    """How long an entity may fail before its messages go to the backlog; 0: at the first failure that counts."""
    ping_primary_interval: Duration = _MINUTE
    """How often an entity that is failed over is pinged."""
    enable_syphon: bool = False
    """Move the backlog to the primary from inside this process. In one process, not in every sender: each syphon polls
    all backlog queues, and each poll is billed. For small deployments: otherwise run `syphon`."""
    operation_timeout: Duration = _MINUTE
    """How long the primary, and then each backlog queue, may take for a call without a timeout of its own."""
    allow_short_timeouts: bool = False
    """Allow an operation timeout below 15 seconds, in which a partitioned entity may not find another partition."""
    session_order: bool = False
    """Keep the order of each session, also through an outage. The syphon of the pair needs the same setting."""
    session_order_wait: Duration = 10 * _MINUTE
    """How long an entity whose ping has arrived waits for the end of its backlog, before it returns without order."""
    primary_name: str | None = None
    """The primary's part in the names of its backlog queues; by default the first label of its host name."""
    on_change: Callable[[Change], None] | None = None
    """Called when an entity fails over, is pinged or returns, and when a backlog queue stops or starts working."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise BadOptions("; ".join(problems))
        for name in _RANGES:
            object.__setattr__(self, name, _duration(getattr(self, name)))

    def _problems(self) -> Iterator[str]:
        count: object = self.backlog_queue_count
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_QUEUES:
            yield f"backlog_queue_count is {count!r}: it may be 1 to {_MOST_QUEUES}, a whole number"
        for name, (least, most) in _RANGES.items():
            value: object = getattr(self, name)
            duration = _duration(value)
            if duration is None or not least <= seconds(duration) <= most:
                yield f"{name} is {_shown(value)}: it may be {least} to {most} seconds, as a number or a timedelta"
        timeout = _duration(self.operation_timeout)
        if timeout is not None and 1 <= seconds(timeout) < PARTITIONED_TIMEOUT and not self.allow_short_timeouts:
            yield (
                f"operation_timeout is {_shown(self.operation_timeout)}: a partitioned entity may need "
                f"{PARTITIONED_TIMEOUT:g} seconds; set it to that or more, or set allow_short_timeouts"
            )
        for name in ("enable_syphon", "allow_short_timeouts", "session_order"):
            if not isinstance(getattr(self, name), bool):
                yield f"{name} is {getattr(self, name)!r}: it may be True or False"
        prefix: object = self.primary_name
        if prefix is not None and (not isinstance(prefix, str) or not prefix.strip() or "/" in prefix):
            yield f"primary_name is {prefix!r}: it is one part of a queue's name, without a slash"
        if self.on_change is not None and not callable(self.on_change):
            yield f"on_change is {self.on_change!r}: it may be a function with one parameter"


def _duration(value: object) -> timedelta | None:
    """A value as a timedelta; None if it is no duration."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return timedelta(seconds=value)
    except (ValueError, OverflowError):  # not a number, or longer than any timedelta
        return None


def _shown(value: object) -> str:
    return f"{value.total_seconds():g} seconds" if isinstance(value, timedelta) else repr(value)
