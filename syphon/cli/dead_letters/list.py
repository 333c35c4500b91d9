"""`syphon dead-letters list`: counts dead letters by reason and destination."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import ExitCode, InvalidOption, SyphonError, exit_code_for, plural

from ..backlog_queues import exit_code_for_queues, report_unreachable
from ..shared_options import load_settings
from ..tables import show_table, shown_queues, time_iso, time_text
from .options import NO_FILTER, chosen_queues, entity_option, filter_options, wanted

if TYPE_CHECKING:
    from syphon.backlog import DeadLetter, DeadLetterSearch, Group
    from syphon.config import Config
    from syphon.worker import MoveEnd

MOST_LISTED = 1_000
"""Dead letters that `--each` lists without `--limit`."""


@click.command("list", short_help="Count dead letters by reason and destination.")
@filter_options
@entity_option
@click.option(
    "--all",
    "namespace",
    metavar="NAMESPACE",
    help="List the queues and subscriptions of a namespace that have dead letters, the most first (needs Manage).",
)
@click.option("--each", is_flag=True, help="List each dead letter with its sequence number, at most 1,000.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def list_letters(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    entities: tuple[MoveEnd, ...],
    limit: int | None,
    namespace: str | None,
    each: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Count the dead letters of the backlog queues by reason and destination, with an example of each.

    "First enqueued" is the earliest enqueued time in the dead-letter queue, which may be when the message was
    dead-lettered. `syphon report` shows when it was enqueued in the backlog.

    \b
      syphon dead-letters list -c config.yaml
      syphon dead-letters list -c config.yaml --reason 'Destination*' --after 1d
      syphon dead-letters list -c config.yaml --destination '' --json
      syphon dead-letters list -c config.yaml --destination orders --each
      syphon dead-letters list -c config.yaml --entity contoso.primary:orders
      syphon dead-letters list -c config.yaml --all contoso.primary
    """
    from syphon.backlog import DeadLetterSearch, grouped

    config = load_settings(config_file)
    if namespace is not None:
        if pairs or queues or entities or each or limit or filters != NO_FILTER:
            raise click.UsageError("--all lists whole entities: leave the other options out.")
        raise SystemExit(_list_all(config, namespace, as_json))
    chosen = chosen_queues(config, pairs, queues, entities)
    search = DeadLetterSearch(chosen, wanted(**filters), limit or (MOST_LISTED if each else None))
    if each:
        _list_each(search, is_limited=limit is None, as_json=as_json)
        raise SystemExit(exit_code_for_queues(search.unreachable))
    groups = grouped(letter for _, letter in search)
    unreachable = report_unreachable(search.unreachable)
    if as_json:
        click.echo(json.dumps({"groups": [as_record(group) for group in groups], "unseen": unreachable}, indent=2))
    else:
        is_filtered = bool(pairs or queues or entities or filters != NO_FILTER)
        show_groups(groups, len(search.unreachable), is_filtered)
    raise SystemExit(exit_code_for_queues(search.unreachable))


def _list_all(config: Config, namespace: str, as_json: bool) -> ExitCode:
    from syphon.config import named_namespace
    from syphon.operations import dead_letters_of_namespace

    try:
        found = dead_letters_of_namespace(named_namespace(config, namespace))
    except InvalidOption as error:
        raise click.UsageError(f"--all: {error}") from None
    except SyphonError as error:
        click.echo(str(error), err=True)
        return exit_code_for([error])
    if as_json:
        records = [each._asdict() | {"first_enqueued": time_iso(each.first_enqueued)} for each in found]
        click.echo(json.dumps({"entities": records}, indent=2))
    elif found:
        rows = [(each.entity, each.messages, time_text(each.first_enqueued)) for each in found]
        show_table(("entity", "dead letters", "first enqueued"), rows)
    else:
        click.echo("There are no dead letters.")
    return ExitCode.OK


def _list_each(search: DeadLetterSearch, is_limited: bool, as_json: bool) -> None:
    letters = [letter for _, letter in search]
    unreachable = report_unreachable(search.unreachable)
    if as_json:
        records = [_letter_record(letter) for letter in letters]
        click.echo(json.dumps({"letters": records, "unseen": unreachable}, indent=2))
        return
    rows = [
        (
            str(letter.sequence_number),
            queue,
            letter.reason or "(none)",
            letter.destination or "(none)",
            letter.message_id or "(none)",
            time_text(letter.enqueued_at),
        )
        for letter, queue in zip(letters, shown_queues([letter.queue for letter in letters]), strict=True)
    ]
    if rows:
        show_table(("number", "queue", "reason", "destination", "message id", "enqueued"), rows)
        click.echo()
    click.echo(f"{plural(len(rows), 'dead letter')}.")
    if is_limited and len(rows) == MOST_LISTED:
        click.echo(f"There may be more than {MOST_LISTED:,}; --limit N lists more.", err=True)


def _letter_record(letter: DeadLetter) -> dict[str, Any]:
    return {
        "queue": letter.queue,
        "sequence_number": letter.sequence_number,
        "message_id": letter.message_id,
        "reason": letter.reason,
        "description": letter.description,
        "destination": letter.destination,
        "enqueued_at": time_iso(letter.enqueued_at),
        "bytes": letter.size,
    }


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
