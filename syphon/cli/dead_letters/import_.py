"""`syphon dead-letters import`: sends the messages of an export file, and reports which were sent."""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syphon.model import ExitCode, plural, printable

from ..backlog_queues import exit_code_for_queues, report_unreachable
from ..shared_options import config_option, load_settings
from ..signals import stop_on_signal
from .list import show_groups
from .options import Routes, edit_options, target_options, the_edit
from .replay import show_new_ids, show_reasons

if TYPE_CHECKING:
    from syphon.backlog import DeadLetter, FiledLetter, Group, Restored, SelectedQueue
    from syphon.config import Config, PairSettings
    from syphon.transfer import ImportMessage, ImportResult

    from ..backlog_queues import UnreachableQueue


Spans = tuple[tuple[int, int | None], ...]
"""Ranges of lines; None is the end of the file."""

if TYPE_CHECKING:

    class LinesType(click.ParamType[Spans]): ...

else:
    LinesType = click.ParamType  # in older releases of click the type has no parameter


class LineNumbers(LinesType):
    """Lines of a file, as in 3,7-20,31-: the form that the summary uses."""

    name = "lines"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = []
        for part in value.split(","):
            span = re.fullmatch(r"([1-9]\d*)(-)?([1-9]\d*)?", part.strip())
            if span is None or (span[3] and not span[2]):
                self.fail(f"{part!r} is not a line or a range of lines: use the form 3,7-20,31-", param, ctx)
            first = int(span[1])
            found.append((first, int(span[3]) if span[3] else None if span[2] else first))
        return tuple(found)


def line_ranges(lines: Iterable[int]) -> str:
    """Line numbers as `--lines` takes them: 1-3,7."""
    spans: list[list[int]] = []
    for line in sorted(lines):
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


MOST_MISTAKES = 10
"""Invalid lines that are listed; in a file that is not an export, every line is invalid."""


@click.command("import", short_help="Send the messages of an export file.")
@config_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pair", "pair_name", metavar="NAME", help="Send to this pair. [default: the pair they came from]")
@click.option("--queue", metavar="QUEUE", help="Send to this backlog queue. [default: the queue they came from]")
@click.option("--lines", type=LineNumbers(), metavar="LINES", help="Only these lines of the file, as in 3,7-20,31-.")
@target_options
@edit_options
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def import_letters(
    config_file: Path,
    file: Path,
    pair_name: str | None,
    queue: str | None,
    lines: Spans | None,
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
) -> None:
    """Send the messages in a FILE written by `export`, each with its original bytes and message id and without the
    dead-letter properties. The file is not changed. If a line is invalid, the file is rejected before anything is sent.

    \b
      syphon dead-letters import letters.jsonl --to backlog --dry-run
      syphon dead-letters import letters.jsonl --to destination --yes
      syphon dead-letters import letters.jsonl --to backlog --lines 38-

    A message that its queue or topic might drop as a duplicate is skipped; --new-ids sends it with a new message id.

    If some messages cannot be sent, the summary lists the lines of the file in three groups: sent, not sent, and
    unconfirmed, which may have been sent. Use --lines to retry lines.

    Exit codes: 0 all were sent · 1 some were not · 2 wrong usage, or not an export file ·
    69 a namespace is unreachable · 77 not authorized · 78 invalid settings
    """
    from syphon.config import LogLevel
    from syphon.status import set_up_logging

    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("No terminal to ask for confirmation on: add --yes, or preview with --dry-run.")
    config = load_settings(config_file)
    set_up_logging(LogLevel.ERROR, config.log.format)
    chosen = _places(config, file, lines, pair_name, queue)
    edit = the_edit(list(chosen.values()), edits, unset, path)
    routes = Routes(target, edit, ttl, new_ids=new_ids, assumes_none=assumes_none)
    job = _Import(file, chosen, target, routes)
    with closing(routes):
        job.preview()
        routes.warn()
        if not as_json:
            show_groups(job.groups)
        if not dry_run and job.chosen and (yes or click.confirm(f"\nSend {job.chosen:,} to the {target}?", err=True)):
            try:
                job.carry_out()
            except BaseException:  # any error: the operator must know what was sent
                _tell(job, dry_run, as_json)
                raise
    _tell(job, dry_run, as_json)
    left = job.would_stay if dry_run else len(job.sent) < job.chosen
    raise SystemExit(max(exit_code_for_queues(job.unreachable), ExitCode.LEFT if left else ExitCode.OK))


def _tell(job: _Import, dry_run: bool, as_json: bool) -> None:
    records = report_unreachable(job.unreachable)
    if as_json:
        click.echo(json.dumps({**job.record(dry_run), "unseen": records}, indent=2))
    else:
        job.show(dry_run)


def _read(file: Path, lines: Spans | None) -> Iterator[tuple[int, str]]:
    with file.open(encoding="utf-8", errors="replace") as stream:
        for number, text in enumerate(stream, 1):
            if text.strip() and (lines is None or any(first <= number <= (last or number) for first, last in lines)):
                yield number, text


def _places(
    config: Config, file: Path, lines: Spans | None, pair_name: str | None, queue: str | None
) -> dict[int, SelectedQueue]:
    """The backlog queue of each line. Rejects a file with a line that cannot be read."""
    from syphon.backlog import BadLine, SelectedQueue, read_line

    found: dict[int, SelectedQueue] = {}
    known: dict[tuple[str, str], SelectedQueue] = {}
    mistakes: list[str] = []
    for number, text in _read(file, lines):
        try:
            filed = read_line(text)
            key = filed.pair, filed.letter.queue
            if key not in known:
                pair = _pair(config, pair_name or filed.pair)
                known[key] = SelectedQueue(pair, _queue(pair, queue or filed.letter.queue))
            found[number] = known[key]
        except BadLine as error:
            mistakes.append(f"{file}:{number}: {error}")
    if mistakes:
        shown = [printable(mistake) for mistake in mistakes[:MOST_MISTAKES]]
        more = [f"… and {len(mistakes) - MOST_MISTAKES:,} more"] if len(mistakes) > MOST_MISTAKES else []
        raise click.UsageError("\n".join(["Nothing was sent.", *shown, *more]))
    return found


def _pair(config: Config, name: str) -> PairSettings:
    for pair in config.pairs:
        if pair.name.lower() == name.lower():
            return pair
    names = ", ".join(pair.name for pair in config.pairs)
    raise click.UsageError(printable(f"There is no pair '{name}' in the settings; choose one with --pair: {names}."))


def _queue(pair: PairSettings, name: str) -> Any:
    from syphon.backlog import NoQueueSelected, select_queues

    try:
        (found, *others) = select_queues([pair], (), (name,))
    except NoQueueSelected as error:
        raise click.UsageError(printable(f"{error} Choose one with --queue.")) from None
    if others:
        raise click.UsageError(f"--queue {name} matches several queues: choose one.")
    return found.queue


@dataclass
class _Import:
    """The lines to send, and the result of each."""

    file: Path
    places: dict[int, SelectedQueue]
    target: str
    routes: Routes
    groups: list[Group] = field(default_factory=list)
    would_stay: dict[int, str] = field(default_factory=dict)
    """Lines that can never be sent, and why."""
    new_ids: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Lines whose messages get a new message id: the old and the new one."""
    is_done: bool = False
    sent: list[int] = field(default_factory=list)
    left: dict[int, str] = field(default_factory=dict)
    uncertain: set[int] = field(default_factory=set)
    possible_duplicates: int = 0
    unreachable: list[UnreachableQueue] = field(default_factory=list)

    @property
    def chosen(self) -> int:
        return len(self.places)

    def preview(self) -> None:
        """Read all lines, and find those that could not be sent."""
        from syphon.backlog import grouped
        from syphon.transfer import wall_clock

        def previewed() -> Iterator[DeadLetter]:
            for number, filed in self._letters():
                made = self.routes.of(self.places[number]).preview(filed.letter.payload, wall_clock())
                if isinstance(made, str):
                    self.would_stay[number] = made
                else:
                    self._add_new_id(number, made)
                yield filed.letter

        self.groups = grouped(previewed())

    def _letters(self, pair: str | None = None) -> Iterator[tuple[int, FiledLetter]]:
        from syphon.backlog import read_line

        for number, text in _read(self.file, None):
            place = self.places.get(number)
            if place is not None and (pair is None or place.pair.name == pair):
                yield number, read_line(text)

    def carry_out(self) -> None:
        """Send the lines of each pair over one connection. Whatever happens, each line ends in `sent` or `left`."""
        self.is_done = True
        try:
            self._send()
        finally:
            missing = self.places.keys() - self.left.keys() - set(self.sent)
            self.left |= dict.fromkeys(sorted(missing), "The import failed before this line.")

    def _send(self) -> None:
        from syphon.model import EntityPath, Renames, SyphonError
        from syphon.servicebus import connected
        from syphon.transfer import LetterImport

        self.left |= self.would_stay
        self.routes.start_over()
        by_name = {place.pair.name: place for place in self.places.values()}
        is_stopped = False
        for name, place in by_name.items():
            messages = self._messages(name)
            first = next(messages, None)
            if first is None:
                continue
            rename = place.pair.destinations.renames if self.target == "destination" else Renames()
            side = place.pair.primary if self.target == "destination" else place.pair.secondary
            entity = rename.actual(EntityPath.of(first.restored.destination.name)).name
            try:
                with connected(side, entity) as connection:
                    letters = LetterImport(_chained(first, messages), connection, rename)
                    stop_on_signal(letters.stop, "Stopping: waiting for the outcome of messages already sent.")
                    if is_stopped:
                        letters.stop()
                    try:
                        with _Progress(self.chosen, len(self.sent)) as progress:
                            letters.run(progress)
                    finally:
                        self._add_result(letters.result)
                    is_stopped = is_stopped or letters.was_stopped
            except SyphonError as error:  # the connection could not be opened, so nothing was sent
                self.unreachable.append((place, error))
                self.left |= {message.line: str(error) for message in _chained(first, messages)}

    def _messages(self, pair: str) -> Iterator[ImportMessage]:
        """The messages to send. One that has expired since `preview` is skipped."""
        from syphon.backlog import Unrestorable
        from syphon.transfer import ImportMessage, wall_clock

        for number, filed in self._letters(pair):
            if number not in self.would_stay:
                route = self.routes.of(self.places[number])
                made = route.restore(filed.letter.payload, enqueued_at=None, now=wall_clock(), ttl=route.ttl)
                if isinstance(made, Unrestorable):
                    self.left[number] = f"{made.reason.value}: {made.description}"
                else:
                    self._add_new_id(number, made)
                    yield ImportMessage(number, made)

    def _add_new_id(self, line: int, made: Restored) -> None:
        replaced = self.routes.of(self.places[line]).replaced_id(made)
        if replaced is not None:
            self.new_ids[line] = replaced, str(made.message_id)

    def _with_new_ids(self, dry_run: bool) -> dict[int, tuple[str, str]]:
        """The lines that were sent, may have been sent, or after a dry run would be sent under a new message id."""
        sent = self.new_ids.keys() if dry_run else {*self.sent, *self.uncertain}
        return {line: ids for line, ids in sorted(self.new_ids.items()) if line in sent}

    def _add_result(self, result: ImportResult) -> None:
        self.sent += result.sent
        self.left |= result.left
        self.uncertain |= result.uncertain
        self.possible_duplicates += result.possible_duplicates

    def record(self, dry_run: bool) -> dict[str, Any]:
        """The result as JSON; after a dry run, the expected result."""
        left = self.would_stay if dry_run or not self.is_done else self.left
        sent = sorted(set(self.places) - set(left)) if dry_run else sorted(self.sent)
        return {
            "file": str(self.file),
            "to": self.target,
            "dry_run": dry_run,
            "chosen": self.chosen,
            "sent": len(sent),
            "left": len(left),
            "sent_lines": line_ranges(sent),
            "left_lines": line_ranges(left),
            "uncertain_lines": line_ranges(self.uncertain),
            "possible_duplicates": self.possible_duplicates,
            "why_left": [{"why": why, "messages": n} for why, n in Counter(left.values()).most_common()],
            "new_ids": [
                {"line": line, "message_id": old, "new_message_id": None if dry_run else new}
                for line, (old, new) in self._with_new_ids(dry_run).items()
            ],
        }

    def show(self, dry_run: bool) -> None:
        if dry_run:
            able = self.chosen - len(self.would_stay)
            click.echo(f"\nWould send {able:,} of {self.chosen:,} to the {self.target}. Nothing was sent.")
            show_reasons("would be skipped", Counter(self.would_stay.values()))
            if self.new_ids:
                click.echo(f"  {len(self.new_ids):,} would get a new message id.")
            return
        if not self.is_done:
            click.echo("Nothing was sent.")
            return
        click.echo(f"\nSent {len(self.sent):,} of {plural(self.chosen, 'line')}.")
        if self.left:
            click.echo(f"  sent: {line_ranges(self.sent) or 'none'}")
            click.echo(f"  not sent: {line_ranges(self.left)}; retry with --lines {line_ranges(self.left)}")
            show_reasons("not sent", Counter(self.left.values()))
        if self.uncertain:
            few = plural(len(self.uncertain), "line")
            click.echo(f"  {few} of these may have been sent (no answer): {line_ranges(self.uncertain)}")
        if self.possible_duplicates:
            click.echo(
                f"  {self.possible_duplicates:,} of those sent may have arrived twice, with the same message id."
            )
        show_new_ids(self._with_new_ids(dry_run).values())


def _chained(first: ImportMessage, rest: Iterator[ImportMessage]) -> Iterator[ImportMessage]:
    yield first
    yield from rest


class _Progress:
    """Show the progress on stderr: a line that updates on a terminal, a JSON line per second elsewhere."""

    def __init__(self, chosen: int, before: int) -> None:
        self._chosen, self._before = chosen, before
        self._shown_at = time.monotonic()

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, result: ImportResult) -> None:
        on_terminal, now = sys.stderr.isatty(), time.monotonic()
        if now - self._shown_at < (0.1 if on_terminal else 1.0):
            return
        self._shown_at = now
        sent, left = self._before + len(result.sent), len(result.left)
        if on_terminal:
            click.echo(f"\r{sent:,} of {self._chosen:,} sent, {left:,} not sent\033[K", nl=False, err=True)
        else:
            click.echo(json.dumps({"progress": {"chosen": self._chosen, "sent": sent, "left": left}}), err=True)

    def __exit__(self, *_: object) -> None:
        if sys.stderr.isatty():
            click.echo("\r\033[K", nl=False, err=True)
