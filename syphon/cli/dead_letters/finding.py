"""The options that select dead letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..backlog_queues import queue_options
from ..options import MomentOption, config_option, millis_of

if TYPE_CHECKING:
    from syphon.backlog import DeadLetterFilter

FILTERS = (
    click.option(
        "--reason", default="*", metavar="PATTERN", help="Only with a reason that matches, such as 'Destination*'."
    ),
    click.option(
        "--destination",
        default="*",
        metavar="PATTERN",
        help="Only for a destination that matches; '' selects those that name none.",
    ),
    click.option(
        "--after",
        type=MomentOption(),
        help="Only those with an enqueued time since: 2026-10-01, 2026-10-01T08:30Z, or 2h (ago).",
    ),
    click.option("--before", type=MomentOption(), help="Only those with an enqueued time before."),
    click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the first N."),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`-c`, `--pair`, `--queue` and the filters that select dead letters."""
    for option in reversed(FILTERS):
        command = option(command)
    return config_option(queue_options(command))


def wanted(reason: str, destination: str, after: datetime | None, before: datetime | None) -> DeadLetterFilter:
    """The filters as one object."""
    from syphon.backlog import DeadLetterFilter

    if after is not None and before is not None and before <= after:
        raise click.UsageError(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    return DeadLetterFilter(reason, destination, millis_of(after), millis_of(before))
