"""`syphon.drain`: moves the backlog to its destinations, once, and returns what happened."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from syphon.worker import DrainProgress

from .drain_run import DrainRun, Progress, drain_options, queues_to_drain
from .drain_summary import DrainSummary
from .give_up import read_words, with_given_up
from .options import (
    ConfigLike,
    Moment,
    Names,
    Queues,
    Span,
    names_of,
    read_duration,
    read_moment,
    read_rate,
    settings_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DrainInterrupted(KeyboardInterrupt):
    """The caller interrupted a drain. It finished the messages in hand, or gave them back; `summary` has the rest."""

    def __init__(self, summary: DrainSummary) -> None:
        super().__init__(f"The drain was interrupted, and stopped in order. {summary.verdict}")
        self.summary = summary

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: where the drain was when it was interrupted says nothing."""
        return [str(self)]


def drain(
    config: ConfigLike,
    spark: SparkSession | None = None,
    *,
    pairs: Names = (),
    queues: Queues = (),
    destinations: Names = (),
    before: Moment | None = None,
    after: Moment | None = None,
    limit: int | None = None,
    rate: str | float | None = None,
    timeout: Span | None = None,
    patience: Span = 120.0,
    give_up: Names = (),
    settle: Span = 0.0,
    all_found: bool = False,
    ttl: Literal["restore", "remaining"] | None = None,
    progress: Progress | None = None,
) -> DrainSummary:
    """Moves every message of the backlog queues to its destination, and proves that nothing is left.

    `config` is a settings file, its content as a dict, or a `Config`. `spark` is a session that is there, classic or
    Spark Connect: it is used as it is, and keeps running. Without one, the active session is used, or one is started
    for this drain. The options are those of `syphon drain`, and mean the same. `progress` is called about twice a
    second; an error that it raises stops the drain in order.

    Nothing is asked and nothing is printed. Look at the summary: `exit_code` is 0 only if nothing that was asked for is
    left, and nothing was dead-lettered. Raises errors of `syphon.model` for settings and options that make no sense,
    for a Spark that does not start, and for a namespace out of reach.

    An interrupt (Ctrl-C, or a notebook's stop button) finishes the messages in hand and raises `DrainInterrupted`, a
    KeyboardInterrupt with the summary so far. A second one leaves at once. Nothing is lost either way.
    """
    words = read_words(give_up) if give_up else frozenset()
    settings = with_given_up(settings_of(config), words)
    options = drain_options(
        settings,
        names_of(destinations),
        None if before is None else read_moment(before),
        None if after is None else read_moment(after),
        limit,
        None if rate is None else read_rate(rate),
        None if timeout is None else read_duration(timeout),
        read_duration(patience),
        read_duration(settle),
        ttl,
    )
    chosen = queues_to_drain(settings, names_of(pairs), names_of(queues), all_found)
    run = DrainRun(settings, chosen, options, words, spark)
    watched = _Watched(run, progress)
    if run.look():
        with _Interrupts(run) as interrupts:
            run.move(lambda: watched.showing(interrupts))
        if watched.error is not None:
            raise watched.error
        if interrupts.seen:
            raise DrainInterrupted(run.summary())
    return run.summary()


class _Watched:
    """Calls the caller's function. Its first error stops the drain, and is raised when the drain has ended in order."""

    def __init__(self, run: DrainRun, progress: Progress | None) -> None:
        self._run = run
        self._progress = progress
        self.error: Exception | None = None

    @contextmanager
    def showing(self, interrupts: _Interrupts) -> Iterator[Progress]:
        interrupts.catch()  # again: Spark sets a handler of its own, which kills what is in hand
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
    """While it is open, the first SIGINT stops the drain in order, and the second raises KeyboardInterrupt.

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
