"""What a pair can be told (F1), and in which ranges. All mistakes are told at once, when the options are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from .changes import Change

_MINUTE = timedelta(minutes=1)


class BadOptions(ValueError):
    """Options that cannot be used; the text names each, and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairOptions:
    """How a pair behaves. The defaults are those of the paired namespaces of old."""

    backlog_queue_count: int = 10
    failover_interval: timedelta = _MINUTE
    """How long an entity may fail before its messages go to the backlog; 0: at the first failure that counts."""
    ping_primary_interval: timedelta = _MINUTE
    """How often an entity that is failed over is tried again."""
    enable_syphon: bool = False
    """Carry the backlog home from inside this process. For small deployments: otherwise run `syphon`."""
    operation_timeout: timedelta = _MINUTE
    """How long the primary, and then a backlog queue, may take for a call that brings no timeout of its own."""
    primary_name: str | None = None
    """What stands for the primary in the names of its backlog queues; else the first label of its host name."""
    on_change: Callable[[Change], None] | None = None
    """Called when an entity fails over, is pinged or returns, and when a backlog queue stops or starts working."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise BadOptions("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        if self.backlog_queue_count < 1:
            yield f"backlog_queue_count is {self.backlog_queue_count}: at least 1 queue is needed"
        for name, least, most in (
            ("failover_interval", timedelta(0), timedelta(minutes=60)),
            ("ping_primary_interval", timedelta(seconds=1), timedelta(minutes=30)),
            ("operation_timeout", timedelta(seconds=1), timedelta(minutes=60)),
        ):
            value: timedelta = getattr(self, name)
            if not least <= value <= most:
                yield f"{name} is {value}: it may be {least} to {most}"
        if self.primary_name is not None and (not self.primary_name.strip() or "/" in self.primary_name):
            yield f"primary_name is {self.primary_name!r}: it is one part of a queue's name, without a slash"
