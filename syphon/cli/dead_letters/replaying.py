"""`syphon dead-letters replay`: put them back, after a look at what that means."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import harmless

from ..chosen_queues import assignments, exit_code_for, unseen_records
from ..exit_codes import ExitCode
from ..settings_file import load
from ..signals import stop_on_signal
from .finding import Search, filter_options, wanted
from .listing import as_record, show_groups

if TYPE_CHECKING:
    from syphon.backlog import Group, SelectedQueue
    from syphon.transfer import ReplayResult, Route

    from ..chosen_queues import Unseen


@click.command(short_help="Put dead letters back.")
@filter_options
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(["backlog", "destination"]),
    help="Into the backlog queue again, or straight to the primary's queue or topic.",
)
@click.option(
    "--set-path",
    "path",
    metavar="PATH",
    help="The destination of each, instead of the one it has or lacks (x-ms-path).",
)
@click.option(
    "--ttl",
    type=click.Choice(["restore", "remaining"]),
    help="Lifetimes start again, or are less the time in the backlog. [default: the pair's]",
)
@click.option("--dry-run", is_flag=True, help="Say what would be put back, and put nothing back.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def replay(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    limit: int | None,
    target: str,
    path: str | None,
    ttl: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Put back the dead letters that the filters choose, each as it was before: its bytes, its message id, without what
    made it a dead letter. It is removed from the dead letters only after its copy was accepted. What cannot be put back
    stays, and the summary says why.

    \b
      syphon dead-letters replay -c config.yaml --reason DestinationMissing --to backlog --dry-run
      syphon dead-letters replay -c config.yaml --destination 'billing/*' --after 2h --to destination
      syphon dead-letters replay -c config.yaml --reason NoDestination --set-path orders --to destination --yes

    \b
    Exit codes: 0 all are back · 1 some stay · 2 usage · 69 a namespace is out of reach · 77 · 78
    """
    from syphon.config import LogLevel
    from syphon.ops import set_up_logging

    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("Nobody can be asked here: add --yes, or look first with --dry-run.")
    config = load(config_file)
    set_up_logging(LogLevel.ERROR, config.log.format)  # what stays and why is in the summary
    chosen = assignments(config, pairs, queues)
    _check_path(chosen, path)
    plan = _Plan(target, path, ttl)
    search = Search(chosen, wanted(**filters), limit)
    plan.look(search)
    if not as_json:
        show_groups(plan.groups)
    if not dry_run and plan.chosen and (yes or _agreed(plan)):
        plan.carry_out()
    unseen = [*search.unseen, *plan.unseen]
    told = unseen_records(unseen)
    if as_json:
        click.echo(json.dumps({**plan.record(dry_run), "unseen": told}, indent=2))
    else:
        plan.show(dry_run)
    left = plan.chosen > plan.replayed and not dry_run
    raise SystemExit(max(exit_code_for(unseen), ExitCode.LEFT if left else ExitCode.OK))


def _check_path(chosen: list[SelectedQueue], path: str | None) -> None:
    """A destination that would be refused is refused before anything is touched (D13)."""
    from syphon.backlog import PATH_LIMIT, not_allowed
    from syphon.model import EntityPath

    if path is None:
        return
    if not path.strip() or len(path) > PATH_LIMIT:
        raise click.UsageError(f"--set-path: {path!r} is no path of an entity: it has 1 to {PATH_LIMIT} characters.")
    for assignment in chosen:
        forbidden = not_allowed(EntityPath.of(path), assignment.pair.destinations.allowed)
        if forbidden is not None:
            raise click.UsageError(
                f"--set-path: nothing may go to '{path}' in the pair {assignment.pair.name}: {forbidden}."
            )


def _agreed(plan: _Plan) -> bool:
    return click.confirm(f"\nPut {plan.chosen:,} back, to the {plan.target}?", err=True)


@dataclass
class _Plan:
    """What is to be put back, and what became of it."""

    target: str
    path: str | None
    ttl: str | None
    groups: list[Group] = field(default_factory=list)
    work: list[tuple[SelectedQueue, set[int]]] = field(default_factory=list)
    """The queues, and in each the sequence numbers of what is meant."""
    would_stay: Counter[str] = field(default_factory=Counter)
    tallies: list[tuple[SelectedQueue, ReplayResult]] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)

    @property
    def chosen(self) -> int:
        return sum(len(numbers) for _, numbers in self.work)

    @property
    def replayed(self) -> int:
        return sum(tally.replayed for _, tally in self.tallies)

    def look(self, search: Search) -> None:
        """Notes which dead letters are meant, by their sequence numbers, and tries each in thought."""
        from syphon.backlog import DeadLetter, grouped
        from syphon.transfer import wall_clock

        def noted() -> Iterator[DeadLetter]:
            for assignment, letter in search:
                if not self.work or self.work[-1][0] is not assignment:
                    self.work.append((assignment, set()))
                self.work[-1][1].add(letter.sequence_number)
                why_not = self._route(assignment).why_not(letter.payload, wall_clock())
                if why_not is not None:
                    self.would_stay[why_not] += 1
                yield letter

        self.groups = grouped(noted())

    def _route(self, assignment: SelectedQueue) -> Route:
        from syphon.backlog import Ttl
        from syphon.transfer import to_backlog, to_destination

        if self.target == "backlog":
            return to_backlog(assignment.queue, self.path)
        return to_destination(assignment.pair, Ttl(self.ttl or assignment.pair.time_to_live.value), self.path)

    def carry_out(self) -> None:
        from syphon.bus import connected
        from syphon.model import SyphonError
        from syphon.transfer import Replay

        for assignment, numbers in self.work:
            try:
                with ExitStack() as stack:
                    source = stack.enter_context(connected(assignment.pair.secondary, assignment.queue))
                    target = source
                    if self.target == "destination":
                        first = self.path or next((one.destination for one in self.groups if one.destination), "")
                        target = stack.enter_context(connected(assignment.pair.primary, first))
                    replay = Replay(assignment.queue, numbers, source, target, self._route(assignment))
                    stop_on_signal(replay.stop, "Stopping: what is in hand is finished or let go.")
                    with _Progress(assignment.queue) as progress:
                        self.tallies.append((assignment, replay.replay(progress)))
                    if replay.stopping:
                        return
            except SyphonError as error:
                self.unseen.append((assignment, error))

    def record(self, dry_run: bool) -> dict[str, Any]:
        """The result; of a dry run, what it would be."""
        stay = self.would_stay if dry_run else self._why_left()
        replayed = self.chosen - stay.total() if dry_run else self.replayed
        return {
            "to": self.target,
            "dry_run": dry_run,
            "chosen": self.chosen,
            "replayed": replayed,
            "left": self.chosen - replayed,
            "possible_duplicates": sum(tally.possible_duplicates for _, tally in self.tallies),
            "why_left": [{"why": why, "messages": count} for why, count in stay.most_common()],
            "groups": [as_record(group) for group in self.groups],
        }

    def _why_left(self) -> Counter[str]:
        return sum((tally.why_left for _, tally in self.tallies), Counter())

    def show(self, dry_run: bool) -> None:
        if not self.chosen:
            return
        if dry_run:
            able = self.chosen - self.would_stay.total()
            click.echo(f"\n{able:,} of {self.chosen:,} would be put back, to the {self.target}. Nothing was changed.")
            _reasons("would stay", self.would_stay)
            return
        left = self.chosen - self.replayed
        click.echo(f"\n{self.chosen:,} chosen = {self.replayed:,} put back + {left:,} left.")
        doubtful = sum(tally.possible_duplicates for _, tally in self.tallies)
        if doubtful:
            click.echo(f"{doubtful:,} of them may be there twice, under the same message id.")
        _reasons("left", self._why_left())


def _reasons(what: str, reasons: Counter[str]) -> None:
    for why, count in reasons.most_common():
        click.echo(f"  {count:,} {what}: {harmless(why)}")


class _Progress:
    """How far it is, on stderr: a line that changes on a terminal, JSON lines once a second elsewhere."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._told_at = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, tally: ReplayResult) -> None:
        on_terminal = sys.stderr.isatty()
        now = time.monotonic()
        if now - self._told_at < (0.1 if on_terminal else 1.0):
            return
        self._told_at = now
        if on_terminal:
            done = f"{tally.replayed:,} put back, {tally.left:,} left, of {tally.chosen:,}"
            click.echo(f"\r{self._queue}: {done}\033[K", nl=False, err=True)
        else:
            counts = {"chosen": tally.chosen, "replayed": tally.replayed, "left": tally.left}
            click.echo(json.dumps({"progress": {"queue": self._queue, **counts}}), err=True)

    def __exit__(self, *_: object) -> None:
        if sys.stderr.isatty():
            click.echo("\r\033[K", nl=False, err=True)
