"""`syphon dead-letters list`: counts dead letters by reason and destination."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import plural

from ..backlog_queues import exit_code_for_queues, report_unreachable, selected_queues
from ..output import show_table, shown_queues, time_iso, time_text
from ..shared_options import load_settings
from .options import NO_FILTER, filter_options, wanted

if TYPE_CHECKING:
    from syphon.backlog import Group


@click.command("list", short_help="Count dead letters by reason and destination.")
@filter_options
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def list_letters(
    config_file: Path, pairs: tuple[str, ...], queues: tuple[str, ...], limit: int | None, as_json: bool, **filters: Any
) -> None:
    """Count the dead letters of the backlog queues by reason and destination, with an example of each.

    "First enqueued" is the earliest enqueued time in the dead-letter queue, which may be when the message was
    dead-lettered. `syphon report` shows when it was enqueued in the backlog.

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
        is_filtered = bool(pairs or queues or filters != NO_FILTER)
        show_groups(groups, len(search.unreachable), is_filtered)
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


def show_groups(groups: list[Group], unseen: int = 0, is_filtered: bool = True) -> None:
    """Print the groups. Queues that could not be read may have more dead letters."""
    if not groups:
        found = "No dead letters match." if is_filtered else "There are no dead letters."
        click.echo(f"No dead letters found; {plural(unseen, 'queue')} could not be read." if unseen else found)
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
    show_table(("reason", "destination", "messages", "first enqueued", "example", "description"), rows)
    total = sum(group.count for group in groups)
    more = f"; {plural(unseen, 'queue')} could not be read" if unseen else ""
    click.echo(f"\n{plural(total, 'dead letter')}{more}.")
