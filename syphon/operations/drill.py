"""A drill: a game day on one entity. It disables sending, watches the failover, restores the entity, and drains.

The entity is restored in every ending that a process can see: an error, Ctrl-C, SIGTERM, a closed terminal. Only a
person can restore it after SIGKILL or a power cut, or if the primary refuses for too long: `syphon drill --restore`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from syphon.backlog import dead_letter_path, destination_of, queue_names
from syphon.config import Config, PairSettings
from syphon.model import EntityPath, ExitCode, SyphonError, html_line, html_table, plural, utc_time
from syphon.servicebus import AllowedUse, connected, data_plane_of, peek_pages
from syphon.time_budget import DRILL_LOOKS_EVERY, DRILL_RESTORES_WITHIN
from syphon.worker import DrainOptions, DrainProgress

from .drain_run import DrainRun, queues_to_drain
from .drain_summary import DrainSummary


class DrillRefused(SyphonError):
    """A drill cannot begin: it would prove nothing, or would not be able to restore what it changes."""


class Switch(Protocol):
    """Disables and enables sending to the entity."""

    def state(self) -> AllowedUse | None: ...

    def set(self, state: AllowedUse) -> None: ...


@dataclass(frozen=True, slots=True)
class DrillStep:
    """Something that happened in the drill."""

    at: datetime
    text: str


@dataclass
class DrillReport:
    """What the drill has seen."""

    pair: str
    entity: str
    steps: list[DrillStep] = field(default_factory=list)
    disabled_at: datetime | None = None
    restored_at: datetime | None = None
    first_seconds: float | None = None
    """From the disabling to the first message of the entity in the backlog; None if there was none."""
    failed_over: int = 0
    """Messages of the entity that came into the backlog."""
    drained: DrainSummary | None = None
    """None if there was nothing to drain, or the drill was stopped."""
    remaining: int = 0
    """Messages of the entity that are still in the backlog."""
    dead_lettered: int = 0
    """Messages of the entity that went to the dead letters of the backlog, also by a worker beside the drill."""
    error: str = ""
    """Why the drill ended early."""

    @property
    def is_restored(self) -> bool:
        return self.disabled_at is None or self.restored_at is not None

    @property
    def forwarded(self) -> int:
        """Messages that the drain has forwarded."""
        return 0 if self.drained is None else self.drained.account.forwarded

    @property
    def by_others(self) -> int:
        """Messages that have left the backlog otherwise: a worker forwarded them, or they expired, or were deleted."""
        if self.drained is None:
            return 0
        return max(0, self.failed_over - self.forwarded - self.dead_lettered - self.remaining)

    @property
    def exit_code(self) -> ExitCode:
        if not self.is_restored:
            return ExitCode.FAULTED
        is_good = self.drained is not None and not self.error and not self.remaining and not self.dead_lettered
        return ExitCode.OK if is_good else ExitCode.LEFT

    @property
    def remedy(self) -> str:
        """What to do if the drill could not restore its entity."""
        return f"Restore it with `syphon drill --pair {self.pair} --entity {self.entity} --restore`."

    @property
    def verdict(self) -> str:
        """How the drill ended, in a sentence or two."""
        if not self.is_restored:
            return f"'{self.entity}' is still disabled: {self.error} {self.remedy}"
        if self.error:
            return f"The drill ended early: {self.error} '{self.entity}' was restored."
        if not self.failed_over:
            return f"No message for '{self.entity}' came into the backlog: no sender failed over, or none was sending."
        moved = f"{plural(self.failed_over, 'message')} failed over"
        if self.drained is None:
            return f"{moved}; they were not drained."
        parts = [f"{moved}; {self.forwarded:,} of them were forwarded by this drain"]
        if self.by_others:
            parts += [f"{self.by_others:,} left the backlog otherwise (`syphon report` lists what a worker forwarded)"]
        parts += [f"{self.dead_lettered:,} dead-lettered"] if self.dead_lettered else []
        return f"{', '.join([*parts, f'{self.remaining:,} left in the backlog'])}."

    def as_json(self) -> dict[str, object]:
        """The report in its documented form for programs (docs/commands.md)."""
        return {
            "verdict": self.verdict,
            "exit_code": int(self.exit_code),
            "pair": self.pair,
            "entity": self.entity,
            "disabled_at": _text(self.disabled_at),
            "restored_at": _text(self.restored_at),
            "first_seconds": self.first_seconds,
            "failed_over": self.failed_over,
            "forwarded": self.forwarded,
            "by_others": self.by_others,
            "dead_lettered": self.dead_lettered,
            "remaining": self.remaining,
            "steps": [{"at": _text(step.at), "text": step.text} for step in self.steps],
        }

    def as_html(self) -> str:
        """The report as a page to pass on: one file without scripts."""
        first = "none" if self.first_seconds is None else f"{self.first_seconds:.1f} s"
        numbers = [
            ("first message in the backlog after", first),
            ("failed over", self.failed_over),
            ("forwarded by the drain", self.forwarded),
            ("left the backlog otherwise (syphon report lists what a worker forwarded)", self.by_others),
            ("dead-lettered", self.dead_lettered),
            ("left in the backlog", self.remaining),
        ]
        title = html_line(f"Drill of {self.entity} ({self.pair})", strong=True)
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>syphon drill</title>'
            f"<style>{_STYLE}</style></head><body>{title}{html_line(self.verdict)}"
            f"{html_table(('what', 'messages'), numbers)}"
            f"{html_table(('time', 'step'), [(utc_time(step.at), step.text) for step in self.steps])}</body></html>\n"
        )


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem 1rem .25rem 0;text-align:left}"
)


def _text(when: datetime | None) -> str | None:
    return None if when is None else when.isoformat(timespec="milliseconds")


class Drill:
    """One drill. `stop` may be called from a signal handler: the drill then restores the entity, and ends."""

    def __init__(
        self,
        pair: str,
        entity: str,
        lasts: float,
        *,
        switch: Switch,
        backlog: Callable[[], int],
        dead_letters: Callable[[], int],
        drain: Callable[[], DrainSummary],
        say: Callable[[str], None],
        stop_drain: Callable[[], None] = lambda: None,
        rest: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`backlog` and `dead_letters` count the messages of the entity in the backlog queues and in their dead-letter
        queues; `drain` forwards those of the backlog."""
        self.report = DrillReport(pair, entity)
        self._lasts = lasts
        self._switch = switch
        self._backlog = backlog
        self._dead_letters = dead_letters
        self._dead_letters_before = 0
        self._drain = drain
        self._say = say
        self._stop_drain = stop_drain
        self._rest = rest
        self._now = now
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        self._stop_drain()

    def run(self) -> DrillReport:
        """Carries out the drill. Raises DrillRefused before anything has changed, and nothing afterwards."""
        report, entity = self.report, self.report.entity
        self._check()
        try:
            report.disabled_at = datetime.now(UTC)  # first: an answer that is lost does not mean that nothing happened
            self._switch.set(AllowedUse.SEND_DISABLED)
            self._record(f"Disabled sending to '{entity}'.")
            self._watch()
        except Exception as error:
            report.error = _reason(error)
        finally:
            self._restore()
        if report.error or not report.is_restored:
            return report
        try:
            report.failed_over = max(report.failed_over, self._backlog())
            if report.failed_over and not self._is_stopped:
                self._record(f"Draining {plural(report.failed_over, 'message')}.")
                report.drained = self._drain()
                report.remaining = self._backlog()
                new_dead_letters = self._dead_letters() - self._dead_letters_before
                report.dead_lettered = max(report.drained.account.dead_lettered, new_dead_letters)
                self._record(report.drained.verdict)
        except SyphonError as error:
            report.error = str(error)
        if self._is_stopped:
            report.error = "it was stopped."
        return report

    def _check(self) -> None:
        state, entity = self._switch.state(), self.report.entity
        if state is None:
            raise DrillRefused(f"'{entity}' does not exist on the primary.")
        if state is not AllowedUse.ACTIVE:
            raise DrillRefused(f"'{entity}' is {state.value}: a drill begins and ends with an active entity.")
        if waiting := self._backlog():
            messages = plural(waiting, "message")
            raise DrillRefused(f"{messages} for '{entity}' are in the backlog already: drain them first.")
        self._dead_letters_before = self._dead_letters()

    def _watch(self) -> None:
        """Waits while messages fail over, and counts them."""
        report, began = self.report, self._now()
        while self._now() - began < self._lasts and not self._is_stopped:
            count = self._backlog()
            if count and report.first_seconds is None:
                report.first_seconds = round(self._now() - began, 1)
                self._record(f"The first message failed over after {report.first_seconds:.1f} s.")
            report.failed_over = max(report.failed_over, count)
            self._rest(min(DRILL_LOOKS_EVERY, max(0.0, self._lasts - (self._now() - began))))

    def _restore(self) -> None:
        """Enables the entity again, and retries for `DRILL_RESTORES_WITHIN`."""
        deadline = self._now() + DRILL_RESTORES_WITHIN
        while True:
            try:
                self._switch.set(AllowedUse.ACTIVE)
            except Exception as error:  # of any kind: a file of certificates may be replaced in this moment
                if self._now() > deadline:
                    self.report.error = _reason(error)
                    self._record(f"'{self.report.entity}' could not be enabled: {_reason(error)} {self.report.remedy}")
                    return
                self._rest(DRILL_LOOKS_EVERY)
            else:
                self.report.restored_at = datetime.now(UTC)
                self._record(f"Enabled sending to '{self.report.entity}'.")
                return

    def _record(self, text: str) -> None:
        self.report.steps.append(DrillStep(datetime.now(UTC), text))
        self._say(text)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, SyphonError) else f"{type(error).__name__}: {error}."


class AdministeredEntity:
    """The switch of a real entity. Each call has a client of its own: a drill may take long."""

    def __init__(self, pair: PairSettings, entity: str) -> None:
        self._pair = pair
        self._entity = entity

    def state(self) -> AllowedUse | None:
        with closing(data_plane_of(self._pair.primary)) as administration:
            return administration.entity_state(self._entity)

    def set(self, state: AllowedUse) -> None:
        with closing(data_plane_of(self._pair.primary)) as administration:
            administration.set_entity_state(self._entity, state)


def waiting_in_backlog(pair: PairSettings, entity: str, queues: Sequence[str]) -> int:
    """How many messages for an entity are in backlog queues of a pair, or in dead-letter queues of them, by peek."""
    wanted = EntityPath.of(entity)
    with connected(pair.secondary, queues[0]) as connection:
        return sum(
            (named := destination_of(message.payload)) is not None and pair.destinations.renames.actual(named) == wanted
            for queue in queues
            for page in peek_pages(connection, queue)
            for message in page
        )


class _Drain:
    """The drain of a drill, on Spark."""

    def __init__(self, config: Config, pair: PairSettings, entity: str, started: Callable[[], None]) -> None:
        renames = pair.destinations.rename
        names = [entity, *(old for old, new in renames.items() if EntityPath.of(new) == EntityPath.of(entity))]
        self._config = config
        self._options = DrainOptions(pairs=(pair.name,), destinations=names)
        self._started = started
        self._run: DrainRun | None = None

    def run(self) -> DrainSummary:
        run = DrainRun.peek(self._config, queues_to_drain(self._config, self._options), self._options)
        if run.has_work:
            self._run = run
            run.run(self._showing)
        return run.summary()

    def stop(self) -> None:
        if self._run is not None:
            self._run.stop()

    @contextmanager
    def _showing(self) -> Iterator[Callable[[DrainProgress], None]]:
        self._started()
        yield lambda progress: None  # noqa: ARG005


def drill_of(
    config: Config,
    pair: PairSettings,
    entity: str,
    lasts: float,
    *,
    say: Callable[[str], None],
    started: Callable[[], None],
) -> Drill:
    """A drill on a real entity. `started` is called when Spark has started: it installs handlers of signals."""
    queues, drain = queue_names(pair), _Drain(config, pair, entity, started)
    dead_letter_queues = [dead_letter_path(queue) for queue in queues]
    return Drill(
        pair.name,
        entity,
        lasts,
        switch=AdministeredEntity(pair, entity),
        backlog=lambda: waiting_in_backlog(pair, entity, queues),
        dead_letters=lambda: waiting_in_backlog(pair, entity, dead_letter_queues),
        drain=drain.run,
        stop_drain=drain.stop,
        say=say,
    )
