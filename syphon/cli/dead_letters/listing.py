"""`syphon dead-letters list`: counts dead letters by reason and destination."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import plural

from ..backlog_queues import exit_code_for_queues, report_unreachable, selected_queues
from ..options import load_settings
from ..output import show_table, shown_queues, time_iso, time_text
from .finding import filter_options, wanted

if TYPE_CHECKING:
    from syphon.backlog import Group


@click.command("list", short_help="Count dead letters by reason and destination.")
@filter_options
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def list_letters(
    config_file: Path, pairs: tuple[str, ...], queues: tuple[str, ...], limit: int | None, as_json: bool, **filters: Any
) -> None:
    """Count the dead letters of the backlog queues by reason and destination, with the first of each as an example.

    "First enqueued" is the earliest time that the dead-letter queue has for one of them, which may be when it became a
    dead letter. `syphon report` shows when it came into the backlog.

    \b
      syphon dead-letters list -c config.yaml
      syphon dead-letters list -c config.yaml --reason 'Destination*' --after 1d
      syphon dead-letters list -c config.yaml --destination '' --json
    """
    from syphon.backlog import DeadLetterSearch, grouped

    search = DeadLetterSearch(selected_queues(load_settings(config_file), pairs, queues), wanted(**filters), limit)
    groups = grouped(letter for _, letter in search)
    unreachable = report_unreachable(search.unreachable)
    if as_json:
        click.echo(json.dumps({"groups": [as_record(group) for group in groups], "unseen": unreachable}, indent=2))
    else:
        show_groups(groups, len(search.unreachable))
    raise SystemExit(exit_code_for_queues(search.unreachable))


def as_record(group: Group) -> dict[str, Any]:
    example = group.example
    return {
        "reason": group.reason,
        "destination": group.destination,
        "messages": group.count,
        "bytes": group.bytes,
        "first_enqueued": time_iso(example.enqueued_at),
        "example": {
            "queue": example.queue,
            "sequence_number": example.sequence_number,
            "message_id": example.message_id,
            "description": example.description,
        },
    }


def show_groups(groups: list[Group], unseen: int = 0) -> None:
    """Prints the groups, and no more than was seen: queues that could not be looked into may have dead letters, too."""
    if not groups:
        seen = "No dead letter matches."
        click.echo(f"No dead letter was seen; {plural(unseen, 'queue')} could not be looked into." if unseen else seen)
        return
    queues = shown_queues([group.example.queue for group in groups])
    rows = [
        (
            group.reason or "(none)",
            group.destination or "(none)",
            group.count,
            time_text(group.example.enqueued_at),
            f"{queue} #{group.example.sequence_number}",
            group.example.description,
        )
        for group, queue in zip(groups, queues, strict=True)
    ]
    show_table(("reason", "destination", "messages", "first enqueued", "for example", "which says"), rows)
    total = sum(group.count for group in groups)
    more = f"; {plural(unseen, 'queue')} could not be looked into" if unseen else ""
    click.echo(f"\n{plural(total, 'dead letter')}{more}.")
