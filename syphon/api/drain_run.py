"""One drain, from its options to its summary. The command and `syphon.drain` run it in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from syphon.backlog import SelectedQueue, Ttl, by_pair, plan, queue_names, secondary_administration, select_queues
from syphon.config import Config
from syphon.model import InvalidOption, MessageFilter, PathPatterns, SyphonError, millis_of
from syphon.worker import (
    Drain,
    DrainOptions,
    DrainProgress,
    counts_of,
    running_engine,
    waiting_destinations,
)

from .drain_summary import DrainSummary, exit_code_of, summarized

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress: TypeAlias = Callable[[DrainProgress], None]
"""Called about twice a second while messages move."""


def drain_options(
    config: Config,
    destinations: Iterable[str] = (),
    before: datetime | None = None,
    after: datetime | None = None,
    limit: int | None = None,
    rate: float | None = None,
    timeout: float | None = None,
    patience: float = 120.0,
    settle: float = 0.0,
    ttl: str | None = None,
) -> DrainOptions:
    """The options of a drain, checked. Raises InvalidOption."""
    if before is not None and after is not None and before <= after:
        raise InvalidOption(f"--before {before.isoformat()} is not later than --after {after.isoformat()}.")
    if limit is not None and limit < 1:
        raise InvalidOption(f"{limit} is not a limit: it must be 1 or more.")
    if ttl is not None and ttl not in list(Ttl):
        raise InvalidOption(f"'{ttl}' is not known: write restore or remaining.")
    return DrainOptions(
        messages=MessageFilter(PathPatterns.of(list(destinations) or ["*"]), millis_of(before), millis_of(after)),
        limit=limit,
        rate=rate,
        timeout=timeout,
        patience=patience,
        settle=settle,
        lease=config.pipeline.lease / 1000,
        ttl=Ttl(ttl) if ttl else None,
    )


def queues_to_drain(
    config: Config, pairs: Iterable[str] = (), queues: Iterable[str] = (), all_found: bool = False
) -> list[SelectedQueue]:
    """The queues that the options select; with `all_found` also those beyond the count, of the same pairs (P4).

    Raises NoQueueSelected, or why the namespace does not list its queues.
    """
    chosen = select_queues(config.pairs, tuple(pairs), tuple(queues))
    for pair, _ in by_pair(chosen) if all_found else ():
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
    """A drain of some queues: look, move, summary. Another thread or a signal handler may stop it."""

    def __init__(
        self,
        config: Config,
        queues: list[SelectedQueue],
        options: DrainOptions,
        give_up: Iterable[str] = (),
        spark: SparkSession | None = None,
    ) -> None:
        """`config` contains already what is given up."""
        self.queues = queues
        self._config = config
        self._options = options
        self._give_up = tuple(give_up)
        self._spark = spark
        self._drain: Drain | None = None
        self._ledger_error = ""

    def look(self) -> bool:
        """Peeks into every queue, and returns whether there is something to move: only then is Spark needed."""
        self._drain = Drain(self.queues, self._options, counts_of(self.queues))
        return self._drain.look()

    def move(
        self,
        showing: Callable[[], AbstractContextManager[Progress]],
        say: Callable[[str], None] | None = None,
        ends_process: bool = False,
    ) -> None:
        """Moves messages on Spark until the drain ends.

        `showing` is entered when Spark has started, and yields the function that shows the progress. `say` gets a line
        while the ledger is written. `ends_process`: a process whose ending takes too long is ended (a command).
        """
        drain = self._looked
        with running_engine(self._config.pipeline, say=say, spark=self._spark, ends_process=ends_process) as ready:
            try:
                with showing() as show:
                    drain.run(ready, show)
            except BaseException:
                drain.stop()  # so that the end of the engine does not wait for a ledger that it need not write
                raise
            ready.ending.exit_code = exit_code_of(drain.result(), self._options)
        self._ledger_error = ready.ledger_writer.error

    def stop(self) -> None:
        """Takes no more messages, and finishes those in hand. Safe in a signal handler."""
        self._looked.stop()

    @property
    def is_stopping(self) -> bool:
        return self._looked.is_stopping

    def summary(self) -> DrainSummary:
        """How it ended."""
        result = self._looked.result()
        waiting = waiting_destinations(result, self._options)
        ledger = self._config.pipeline.ledger
        return summarized(result, self._options, waiting, ledger, self._ledger_error, self._give_up)

    @property
    def lost(self) -> SyphonError | None:
        """Why Spark was lost before the drain had ended, if it was."""
        return self._looked.result().lost

    @property
    def _looked(self) -> Drain:
        assert self._drain is not None, "look() comes first"
        return self._drain
