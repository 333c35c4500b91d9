"""`syphon dead-letters replay`: sends dead letters again, after showing which ones."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import ExitCode, plural, printable

from ..backlog_queues import exit_code_for_queues, report_unreachable, selected_queues
from ..shared_options import load_settings
from ..signals import stop_on_signal
from .list import as_record, show_groups
from .options import NO_FILTER, Routes, edit_options, filter_options, target_options, the_edit, wanted

if TYPE_CHECKING:
    from syphon.backlog import DeadLetterSearch, Group, LetterEdit, SelectedQueue
    from syphon.transfer import NewId, ReplayResult

    from ..backlog_queues import UnreachableQueue


@click.command(short_help="Replay dead letters to the backlog or their destination.")
@filter_options
@target_options
@edit_options
@click.option("--dry-run", is_flag=True, help="Show what would be replayed; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def replay(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    limit: int | None,
    target: str,
    new_ids: bool,
    assumes_none: bool,
    path: str | None,
    edits: tuple[str, ...],
    unset: tuple[str, ...],
    ttl: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Replay the matching dead letters, each with its original bytes and message id and without the dead-letter
    properties. The command completes a dead letter only after its copy was accepted. A message that cannot be replayed
    stays in the dead-letter queue, and the summary says why.

    \b
      syphon dead-letters replay --reason 'Dest*' --to backlog --dry-run
      syphon dead-letters replay --destination 'a/*' --after 2h --to destination
      syphon dead-letters replay --set-path orders --to destination --yes
      syphon dead-letters replay --edit x-ms-timetolive=PT1H --to backlog

    --edit sets a property of each message: NAME=VALUE is a string, NAME:TYPE=VALUE has an AMQP type (int, long,
    boolean, double, timestamp, timespan, uuid, binary, …). The aliases x-ms-… are application properties;
    properties.subject and so on are AMQP properties. --unset removes a property. The message id is kept, except with
    --new-ids.

    A queue or topic with duplicate detection silently drops a message with a known id. Messages for which this could
    happen are skipped; --new-ids sends them with a new message id, and the summary lists both ids.

    Exit codes: 0 all were (would be) replayed · 1 some not · 2 wrong usage · 69 a namespace is unreachable ·
    77 not authorized · 78 invalid settings
    """
    from syphon.backlog import DeadLetterSearch
    from syphon.config import LogLevel
    from syphon.status import set_up_logging

    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("No terminal to ask for confirmation on: add --yes, or preview with --dry-run.")
    config = load_settings(config_file)
    set_up_logging(LogLevel.ERROR, config.log.format)  # the summary says which messages were skipped, and why
    chosen = selected_queues(config, pairs, queues)
    edit = the_edit(chosen, edits, unset, path)
    routes = Routes(target, edit, ttl, new_ids=new_ids, assumes_none=assumes_none)
    plan = _Plan(target, edit, routes)
    search = DeadLetterSearch(chosen, wanted(**filters), limit)
    with closing(routes):
        plan.preview(search)
        routes.warn()
        plan.warn()
        if not as_json:
            is_filtered = bool(pairs or queues or filters != NO_FILTER)
            show_groups(plan.groups, len(search.unreachable), is_filtered)
        if not dry_run and plan.chosen and (yes or _agreed(plan)):
            plan.carry_out()
    unreachable = [*search.unreachable, *plan.unreachable]
    records = report_unreachable(unreachable)
    if as_json:
        click.echo(json.dumps({**plan.record(dry_run), "unseen": records}, indent=2))
    else:
        plan.show(dry_run)
    left = plan.would_stay.total() if dry_run else plan.chosen - plan.replayed
    raise SystemExit(max(exit_code_for_queues(unreachable), ExitCode.LEFT if left else ExitCode.OK))


def _agreed(plan: _Plan) -> bool:
    return click.confirm(f"\nReplay {plural(plan.chosen, 'dead letter')} to the {plan.target}?", err=True)


@dataclass
class _Plan:
    """The messages to replay, and the result."""

    target: str
    edit: LetterEdit
    routes: Routes
    groups: list[Group] = field(default_factory=list)
    work: list[tuple[SelectedQueue, set[int]]] = field(default_factory=list)
    """The queues, each with the sequence numbers of the selected messages."""
    would_stay: Counter[str] = field(default_factory=Counter)
    would_change: list[tuple[SelectedQueue, NewId]] = field(default_factory=list)
    """Messages that would get a new message id."""
    results: list[tuple[SelectedQueue, ReplayResult]] = field(default_factory=list)
    unreachable: list[UnreachableQueue] = field(default_factory=list)

    of_sessions: int = 0
    """Messages with a session whose order its pair keeps."""

    @property
    def chosen(self) -> int:
        return sum(len(numbers) for _, numbers in self.work)

    @property
    def replayed(self) -> int:
        return sum(result.completed for _, result in self.results)

    def preview(self, search: DeadLetterSearch) -> None:
        """Collect the sequence numbers of the matching dead letters, and find those that could not be replayed."""
        from syphon.backlog import DeadLetter, grouped
        from syphon.transfer import NewId, wall_clock

        def previewed() -> Iterator[DeadLetter]:
            for assignment, letter in search:
                if not self.work or self.work[-1][0] is not assignment:
                    self.work.append((assignment, set()))
                self.work[-1][1].add(letter.sequence_number)
                self.of_sessions += letter.has_session and assignment.pair.session_order is not None
                route = self.routes.of(assignment)
                made = route.preview(letter.payload, wall_clock())
                if isinstance(made, str):
                    self.would_stay[made] += 1
                elif (replaced := route.replaced_id(made)) is not None:
                    self.would_change.append((assignment, NewId(letter.sequence_number, replaced, None)))
                yield letter

        self.groups = grouped(previewed())

    def warn(self) -> None:
        """Print on stderr that messages will come late in their sessions (D21)."""
        if self.of_sessions:
            click.echo(
                f"{plural(self.of_sessions, 'message')} with a session: in the order of their sessions they come after "
                "the messages that have been sent since, although session_order is set.",
                err=True,
            )

    def carry_out(self) -> None:
        from syphon.model import SyphonError
        from syphon.servicebus import connected
        from syphon.transfer import Replay

        self.routes.start_over()
        for assignment, numbers in self.work:
            try:
                with ExitStack() as stack:
                    source = stack.enter_context(connected(assignment.pair.secondary, assignment.queue))
                    target = source
                    if self.target == "destination":
                        target = stack.enter_context(connected(assignment.pair.primary, self._first(assignment)))
                    replay = Replay(assignment.queue, numbers, source, target, self.routes.of(assignment))
                    stop_on_signal(replay.stop, "Stopping: finishing or abandoning messages in flight.")
                    with _Progress(assignment.queue) as progress:
                        self.results.append((assignment, replay.carry_out(progress)))
                    if replay.was_stopped:
                        return
            except SyphonError as error:
                self.unreachable.append((assignment, error))

    def _first(self, assignment: SelectedQueue) -> str:
        """An entity whose token opens the connection to the primary: a policy may cover a single queue."""
        from syphon.model import EntityPath

        named = self.edit.path or next((one.destination for one in self.groups if one.destination), "")
        return assignment.pair.destinations.renames.actual(EntityPath.of(named)).name

    def record(self, dry_run: bool) -> dict[str, Any]:
        """The result as JSON; after a dry run, the expected result."""
        stay = self.would_stay if dry_run else self._why_left()
        replayed = self.chosen - stay.total() if dry_run else self.replayed
        return {
            "to": self.target,
            "dry_run": dry_run,
            "chosen": self.chosen,
            "replayed": replayed,
            "left": self.chosen - replayed,
            "possible_duplicates": sum(result.possible_duplicates for _, result in self.results),
            "why_left": [{"why": why, "messages": count} for why, count in stay.most_common()],
            "new_ids": [{"queue": assignment.queue, **new._asdict()} for assignment, new in self._new_ids(dry_run)],
            "groups": [as_record(group) for group in self.groups],
        }

    def _new_ids(self, dry_run: bool) -> list[tuple[SelectedQueue, NewId]]:
        if dry_run:
            return self.would_change
        return [(assignment, new) for assignment, result in self.results for new in result.new_ids]

    def _why_left(self) -> Counter[str]:
        return sum((result.why_left for _, result in self.results), Counter())

    def show(self, dry_run: bool) -> None:
        if not self.chosen:
            return
        if dry_run:
            able = self.chosen - self.would_stay.total()
            click.echo(f"\nWould replay {able:,} of {self.chosen:,} to the {self.target}. Nothing was changed.")
            show_reasons("would be skipped", self.would_stay)
            if self.would_change:
                click.echo(f"  {len(self.would_change):,} would get a new message id.")
            return
        click.echo(f"\nReplayed {self.replayed:,} of {self.chosen:,}.")
        doubtful = sum(result.possible_duplicates for _, result in self.results)
        new_ids = self._new_ids(dry_run)
        if doubtful:
            under = "the same message id, or the old and the new one" if new_ids else "the same message id"
            click.echo(f"{doubtful:,} of them may exist twice, with {under}.")
        show_reasons("not replayed", self._why_left())
        show_new_ids([(new.message_id, str(new.new_message_id)) for _, new in new_ids])


def show_reasons(what: str, reasons: Counter[str]) -> None:
    for why, count in reasons.most_common():
        click.echo(f"  {count:,} {what}: {printable(why)}")


def show_new_ids(ids: Collection[tuple[str, str]]) -> None:
    """Print the old and the new message id of each message that got one. All of them: there is no other record."""
    if ids:
        click.echo(f"  {len(ids):,} got a new message id:")
    for old, new in ids:
        click.echo(f"    {printable(old)} -> {new}")


class _Progress:
    """Show the progress on stderr: a line that updates on a terminal, a JSON line per second elsewhere."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._shown_at = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, result: ReplayResult) -> None:
        on_terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._shown_at < (0.1 if on_terminal else 1.0):
            return
        self._shown_at = now
        if on_terminal:
            done = f"{result.completed:,} of {result.chosen:,} replayed, {result.left:,} not replayed"
            click.echo(f"\r{self._queue}: {done}\033[K", nl=False, err=True)
        else:
            counts = {"chosen": result.chosen, "replayed": result.completed, "left": result.left}
            click.echo(json.dumps({"progress": {"queue": self._queue, **counts}}), err=True)

    def __exit__(self, *_: object) -> None:
        if sys.stderr.isatty():
            click.echo("\r\033[K", nl=False, err=True)
