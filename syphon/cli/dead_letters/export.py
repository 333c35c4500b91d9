"""`syphon dead-letters export`: writes dead letters to a file, and removes them only with --remove."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from syphon.durable_files import sync_folder
from syphon.model import ExitCode, plural, volume

from ..backlog_queues import exit_code_for_queues, report_unreachable
from ..shared_options import load_settings
from ..signals import stop_on_signal
from .options import chosen_queues, entity_option, filter_options, wanted
from .replay import show_reasons

if TYPE_CHECKING:
    from syphon.backlog import DeadLetter, DeadLetterSearch, SelectedQueue
    from syphon.worker import MoveEnd

    from ..backlog_queues import UnreachableQueue

STDOUT = "-"


@click.command("export", short_help="Write dead letters to a file, byte for byte.")
@filter_options
@entity_option
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--decoded", is_flag=True, help="Also write properties and body in readable form, like `show --body --json`."
)
@click.option(
    "--remove",
    is_flag=True,
    help="Remove the messages from the dead-letter queues once the file is written. Asks first.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def export(
    config_file: Path,
    pairs: tuple[str, ...],
    queues: tuple[str, ...],
    entities: tuple[MoveEnd, ...],
    limit: int | None,
    file: str,
    decoded: bool,
    remove: bool,
    yes: bool,
    as_json: bool,
    **filters: Any,
) -> None:
    """Write the matching dead letters to a new FILE in JSON Lines format, one dead letter per line, with the whole
    message in base64. `-` is standard output. The command only peeks, and changes nothing without --remove.

    \b
      syphon dead-letters export -c config.yaml letters.jsonl
      syphon dead-letters export --reason BadAlias --remove letters.jsonl
      syphon dead-letters export -c config.yaml --decoded - | jq -r .properties

    The file contains message bodies, so only you can read it. `syphon dead-letters import` sends its messages.

    Exit codes: 0 all were written, and with --remove removed · 1 some could not be removed ·
    2 wrong usage, or the file cannot be written · 69 a namespace is unreachable · 77 not authorized ·
    78 invalid settings
    """
    from syphon.backlog import DeadLetterSearch
    from syphon.config import LogLevel
    from syphon.status import set_up_logging

    if remove and file == STDOUT:
        raise click.UsageError("--remove needs a file: syphon cannot verify what was written to standard output.")
    if remove and not (yes or sys.stdin.isatty()):
        raise click.UsageError("No terminal to ask for confirmation on: add --yes to --remove.")
    config = load_settings(config_file)
    set_up_logging(LogLevel.ERROR, config.log.format)
    search = DeadLetterSearch(chosen_queues(config, pairs, queues, entities), wanted(**filters), limit)
    job = _Export(file)
    with _opened(file) as stream:
        job.write(search, stream, decoded)
    if remove:
        _keep_name(file)
    if remove and job.written and (yes or click.confirm(job.question, err=True)):
        job.remove()
    unreachable = [*search.unreachable, *job.unreachable]
    records = report_unreachable(unreachable)
    if as_json:
        click.echo(json.dumps({**job.record(), "unseen": records}, indent=2), err=file == STDOUT)
    else:
        job.show()
    left = remove and job.removed < job.written
    raise SystemExit(max(exit_code_for_queues(unreachable), ExitCode.LEFT if left else ExitCode.OK))


@contextmanager
def _opened(file: str) -> Iterator[TextIO]:
    """Open a new file that only its owner can read, synced to disk when the block ends; or standard output."""
    if file == STDOUT:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        stream = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except FileExistsError:
        raise click.UsageError(f"{file} already exists. An export never overwrites a file.") from None
    except OSError as error:
        raise _not_written(file, error) from None
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise _not_written(file, error) from None


def _keep_name(file: str) -> None:
    """Sync the folder, so that the file survives a power cut before the other copies of its messages are removed."""
    folder = Path(file).absolute().parent
    try:
        sync_folder(folder)
    except OSError as error:
        raise click.UsageError(
            f"{file} was written, but its folder {folder} could not be synced to disk: {error.strerror}. "
            "Nothing was removed."
        ) from None


def _not_written(file: str, error: OSError) -> click.UsageError:
    return click.UsageError(f"{file} cannot be written: {error.strerror}. Nothing was removed.")


@dataclass
class _Export:
    """What was written, and what was removed afterwards."""

    file: str
    written: int = 0
    size: int = 0
    work: list[tuple[SelectedQueue, dict[int, bytes]]] = field(default_factory=list)
    """The queues, each with the fingerprints of its exported messages by sequence number."""
    asked_to_remove: bool = False
    removed: int = 0
    uncertain: int = 0
    """Messages whose removal was not confirmed: they may be removed or not."""
    why_left: Counter[str] = field(default_factory=Counter)
    unreachable: list[UnreachableQueue] = field(default_factory=list)

    @property
    def question(self) -> str:
        return (
            f"Exported {plural(self.written, 'dead letter')} to {self.file}. Remove them from the dead-letter queues?"
        )

    def write(self, search: DeadLetterSearch, stream: TextIO, decoded: bool) -> None:
        from syphon.backlog import fingerprint, letter_line

        for selected, letter in search:
            stream.write(letter_line(selected.pair.name, letter, _decoded(letter) if decoded else None) + "\n")
            self.written += 1
            self.size += letter.size
            if not self.work or self.work[-1][0] is not selected:
                self.work.append((selected, {}))
            self.work[-1][1][letter.sequence_number] = fingerprint(letter.payload) or b""

    def remove(self) -> None:
        """Complete the messages that are in the file, queue after queue."""
        from syphon.model import SyphonError
        from syphon.servicebus import connected
        from syphon.transfer import Removal

        self.asked_to_remove = True
        for selected, chosen in self.work:
            try:
                with connected(selected.pair.secondary, selected.queue) as connection:
                    removal = Removal(selected.queue, chosen, connection)
                    stop_on_signal(removal.stop, "Stopping: messages not yet removed stay in the dead-letter queue.")
                    result = removal.carry_out()
            except SyphonError as error:
                self.unreachable.append((selected, error))
                continue
            self.removed += result.completed
            self.uncertain += result.uncertain
            self.why_left += result.why_left
            if removal.was_stopped:
                return

    def record(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "written": self.written,
            "bytes": self.size,
            "removed": self.removed,
            "uncertain": self.uncertain,
            "why_left": [{"why": why, "messages": count} for why, count in self.why_left.most_common()],
        }

    def show(self) -> None:
        on_stderr = self.file == STDOUT
        said = f"Exported {plural(self.written, 'dead letter')} to {self.file}, {volume(self.size)}."
        if not self.asked_to_remove:
            click.echo(f"{said} Nothing was removed.", err=on_stderr)
            return
        left = self.written - self.removed
        doubt = f" ({self.uncertain:,} of them unconfirmed: they may be removed)" if self.uncertain else ""
        click.echo(f"{said} {self.removed:,} removed from the dead letters, {left:,} not removed{doubt}.")
        show_reasons("not removed", self.why_left)


def _decoded(letter: DeadLetter) -> dict[str, Any]:
    """The sections of the message, as `show` has them."""
    from .show import sections

    return sections(letter.payload, with_body=True)
