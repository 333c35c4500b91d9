"""`syphon.drain`: forwards the backlog to its destinations, once, and returns a summary.

The command runs the same `DrainRun`. `--give-up` dead-letters messages for missing or disabled destinations.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from syphon.backlog import SelectedQueue, by_pair, plan, queue_names, secondary_administration, select_queues
from syphon.config import Config, ConfigLike, PermanentError, SlotReports, settings_of
from syphon.ledger import LedgerUnwritable, RunRecord
from syphon.model import SyphonError
from syphon.option_declarations import called_with
from syphon.time_budget import UNATTENDED_LEASE
from syphon.transfer import MovePlan
from syphon.worker import (
    GIVE_UP,
    Drain,
    DrainOptions,
    DrainProgress,
    TransferOptions,
    counts_of,
    running_engine,
    waiting_destinations,
)

from .drain_summary import DrainSummary, exit_code_of, summarized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Progress: TypeAlias = Callable[[DrainProgress], None]
"""Called about twice per second during the drain."""


@dataclass(kw_only=True)
class DryRunCall(DrainOptions):
    """What `syphon.dry_run` is called with."""

    config: ConfigLike = field(kw_only=False)
    spark: SparkSession | None = field(default=None, kw_only=False)


@dataclass(kw_only=True)
class DrainCall(DryRunCall):
    """What `syphon.drain` is called with."""

    progress: Progress | None = None


def with_given_up(config: Config, words: Iterable[str]) -> Config:
    """The settings for one drain: these errors are permanent for every pair, in addition to the configured ones.

    By default messages for missing or disabled destinations stay in the backlog (S4): the sender failed over because of
    these errors, and the entity may be created or enabled. Only a person knows that it will not.
    """
    errors = [PermanentError(GIVE_UP[word]) for word in words]
    pairs = [
        pair.model_copy(update={"destinations": pair.destinations.giving_up(errors)}) if errors else pair
        for pair in config.pairs
    ]
    return config.model_copy(update={"pairs": pairs})


def queues_to_drain(config: Config, options: DrainOptions) -> list[SelectedQueue]:
    """The queues that the options select; with `all_found` also those beyond the count, of the same pairs (P4).

    Their settings include the errors to give up on.

    Raises NoQueueSelected, or the error of the namespace if it cannot list its queues.
    """
    config = with_given_up(config, options.give_up)
    chosen = select_queues(config.pairs, options.pairs, options.queues)
    for pair, _ in by_pair(chosen) if options.all_found else ():
        try:
            administration = secondary_administration(pair)
            try:
                chosen += [SelectedQueue(pair, name) for name in plan(administration, queue_names(pair)).extra]
            finally:
                administration.close()
        except SyphonError as error:
            raise type(error)(f"--all-found: {error}") from error
    return chosen


class DrainRun:
    """A drain of some queues: peek, run, summary. Another thread or a signal handler may stop it."""

    command = "drain"

    def __init__(
        self, config: Config, options: TransferOptions, spark: SparkSession | None, drain: Drain, has_work: bool
    ) -> None:
        """Use `peek`."""
        self._config = config
        self._options = options
        self._spark = spark
        self._drain = drain
        self._ledger_error = ""
        self.has_work = has_work
        """Whether a queue has something to forward: only then is Spark needed, and `run`."""

    @classmethod
    def peek(
        cls,
        config: Config,
        queues: list[SelectedQueue],
        options: TransferOptions,
        spark: SparkSession | None = None,
        move: MovePlan | None = None,
    ) -> Self:
        """Peek into every queue, and return the drain, which has not begun."""
        pipeline = config.pipeline
        is_live = pipeline.slot_reports is SlotReports.LIVE
        lease = pipeline.lease / 1000 if is_live else min(pipeline.lease / 1000, UNATTENDED_LEASE)
        drain = Drain(queues, options, counts_of(queues), lease, move)
        return cls(config, options, spark, drain, has_work=drain.peek())

    def run(
        self,
        showing: Callable[[], AbstractContextManager[Progress]],
        say: Callable[[str], None] | None = None,
        ends_process: bool = False,
    ) -> None:
        """Forward messages on Spark until the drain ends.

        `showing` is entered when Spark has started, and yields the function that shows the progress. `say` gets a line
        while the ledger is written. `ends_process`: kill the process if shutdown takes too long (for a command).
        """
        drain = self._drain
        with running_engine(self._config.pipeline, say=say, spark=self._spark, ends_process=ends_process) as ready:
            try:
                with showing() as show:
                    drain.run(ready, show)
            except BaseException:
                drain.stop()  # so that the end of the engine does not wait for a ledger that it need not write
                raise
            ready.ending.exit_code = exit_code_of(drain.result(), self._options)
            with suppress(LedgerUnwritable):  # the ledger's writer says so, too
                ready.ledger.put_run(self._record())
        self._ledger_error = ready.ledger_writer.error

    def _record(self) -> RunRecord:
        """This drain, as `syphon report --list` shows it."""
        found = self.summary()
        return RunRecord(
            command=self.command,
            options=self._options.written(),
            pairs=list(dict.fromkeys(queue.pair for queue in found.queues)),
            started_at=datetime.now(UTC) - timedelta(seconds=found.seconds),
            seconds=found.seconds,
            host=socket.gethostname(),
            received=found.account.received,
            forwarded=found.account.forwarded,
            dead_lettered=found.account.dead_lettered,
            possible_duplicates=found.account.possible_duplicates,
            remaining=found.remaining,
            exit_code=int(found.exit_code),
            verdict=found.verdict,
        )

    def stop(self) -> None:
        """Stop receiving, and finish the messages in flight. Safe in a signal handler."""
        self._drain.stop()

    @property
    def is_stopping(self) -> bool:
        return self._drain.is_stopping

    def summary(self) -> DrainSummary:
        """How it ended."""
        result = self._drain.result()
        waiting = waiting_destinations(result)
        ledger = self._config.pipeline.ledger
        return summarized(result, self._options, waiting, ledger, self._ledger_error)

    @property
    def lost(self) -> SyphonError | None:
        """Why Spark was lost before the drain had ended, if it was."""
        return self._drain.result().lost


class DrainInterrupted(KeyboardInterrupt):
    """The caller interrupted a drain, which finished or abandoned its messages in flight. See `summary`."""

    def __init__(self, summary: DrainSummary) -> None:
        super().__init__(f"The drain was interrupted and stopped gracefully. {summary.verdict}")
        self.summary = summary

    def _render_traceback_(self) -> list[str]:
        """Hide the traceback in notebooks: it is irrelevant where the drain was interrupted."""
        return [str(self)]


@called_with(DrainCall)
def drain(call: DrainCall) -> DrainSummary:
    """Forward every message in the backlog queues to its destination, and verify that the backlog is empty.

    `config` is a settings file, its content as a dict, or a `Config`. `spark` is an existing session, classic or Spark
    Connect, which keeps running. Without it, the active session is used, or one is started for this drain. The options
    are those of `syphon drain`. `progress` is called about twice per second; an exception from it stops the drain
    gracefully.

    Nothing is prompted for or printed. Check the summary: `exit_code` is 0 only if no matching message is left and
    nothing was dead-lettered. Raises errors of `syphon.model` for invalid settings and options, if Spark does not
    start, and if a namespace is unreachable.

    An interrupt (Ctrl-C, or a notebook's stop button) finishes the messages in flight and raises `DrainInterrupted`, a
    KeyboardInterrupt with the summary so far. A second one exits immediately. No message is lost either way.
    """
    config = settings_of(call.config)
    return finished_run(DrainRun.peek(config, queues_to_drain(config, call), call, call.spark), call.progress)


def finished_run(drain_run: DrainRun, progress: Progress | None) -> DrainSummary:
    """Carry a drain or a move out for a program, and return its summary. Raises DrainInterrupted."""
    watched = _Watched(drain_run, progress)
    if drain_run.has_work:
        with _Interrupts(drain_run) as interrupts:
            drain_run.run(lambda: watched.showing(interrupts))
        if watched.error is not None:
            raise watched.error
        if interrupts.seen:
            raise DrainInterrupted(drain_run.summary())
    return drain_run.summary()


class _Watched:
    """Call the caller's function. Its first exception stops the drain, and is raised when the drain has stopped."""

    def __init__(self, run: DrainRun, progress: Progress | None) -> None:
        self._run = run
        self._progress = progress
        self.error: Exception | None = None

    @contextmanager
    def showing(self, interrupts: _Interrupts) -> Iterator[Progress]:
        interrupts.catch()  # again: Spark installs its own handler, which kills the tasks
        yield self._show

    def _show(self, progress: DrainProgress) -> None:
        if self._progress is None or self.error is not None:
            return
        try:
            self._progress(progress)
        except Exception as error:
            self.error = error
            self._run.stop()


class _Interrupts:
    """While open, the first SIGINT stops the drain gracefully, and the second raises KeyboardInterrupt.

    Only a program's main thread gets signals. In any other thread this does nothing.
    """

    def __init__(self, run: DrainRun) -> None:
        self._run = run
        self._before: Any = None
        self.seen = False

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            self.catch()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def catch(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            signal.default_int_handler(number, frame)
        self.seen = True
        self._run.stop()
