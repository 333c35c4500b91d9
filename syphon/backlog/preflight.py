"""What would go wrong, before it does: a pair is looked at from all sides, and nothing is changed.

Each look gives findings; one that fails does not stop the others, so that everything that is wrong is told at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..bus.administration import Administration, Unanswered
from ..bus.connection import Connection
from ..bus.opening import administration_of, client_of
from ..bus.probe import try_receiver, try_sender
from ..config import NamespaceSettings, PairSettings, Via
from ..errors import NotAuthorized, SyphonError, Waits
from .names import QueueName, backlog_queues, primary_label
from .provisioning import Found, Missing, Plan, plan


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "ok"
    WARNING = "warning"
    """It works, but not as one may think."""
    UNREACHABLE = "unreachable"
    """It may work later."""
    DENIED = "denied"
    """Credentials or claims."""
    PROBLEM = "problem"
    """It will not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    pair: str
    about: str
    level: Level
    text: str


def queue_names(pair: PairSettings) -> list[QueueName]:
    """The backlog queues a pair has by its settings."""
    label = primary_label(pair.primary.host, pair.name, pair.primary.name)
    return [queue.name for queue in backlog_queues(label, pair.backlog_queue_count)]


def secondary_administration(pair: PairSettings, via: Via | None = None) -> Administration:
    """What makes the backlog queues."""
    name = primary_label(pair.secondary.host, pair.name, pair.secondary.name)
    return administration_of(pair.secondary, via or pair.provision.via, name)


def check(pair: PairSettings) -> Iterator[Finding]:
    """Looks at everything a worker will need of a pair."""
    look = _Look(pair)
    yield from look.at_the_backlog_queues()
    yield from look.at_receiving()
    yield from look.at_the_destinations()


class _Look:
    """One pair, looked at."""

    def __init__(self, pair: PairSettings) -> None:
        self._pair = pair
        self._names = queue_names(pair)
        self._missing: set[str] = set()

    def at_the_backlog_queues(self) -> Iterator[Finding]:
        about = f"secondary {self._pair.secondary.host}"
        administration: Administration | None = None
        try:
            administration = secondary_administration(self._pair)
            found = plan(administration, self._names)
        except SyphonError as error:
            yield self._finding(about, error)
            return
        finally:
            if administration is not None:
                administration.close()
        yield from self._about_plan(about, found)

    def _about_plan(self, about: str, found: Plan) -> Iterator[Finding]:
        for queue in found.queues:
            if isinstance(queue, Found):
                level = Level.WARNING if queue.differences else Level.FINE
            elif isinstance(queue, Missing):
                self._missing.add(queue.name)
                level = Level.PROBLEM
            else:
                level = Level.UNREACHABLE
            remedy = "; `syphon provision` makes it" if isinstance(queue, Missing) else ""
            yield Finding(self._pair.name, about, level, f"{queue}{remedy}")
        if found.extra:
            text = f"beyond the count of {len(self._names)}: {', '.join(found.extra)}; nobody listens to them"
            yield Finding(self._pair.name, about, Level.WARNING, text)
        if found.unlisted is not None:
            yield self._finding(about, found.unlisted)

    def at_receiving(self) -> Iterator[Finding]:
        """Listen, on a queue that is there."""
        about = f"secondary {self._pair.secondary.host}"
        there = [name for name in self._names if name not in self._missing]
        if there:
            yield from self._try(self._pair.secondary, about, there[:1], receive=True)

    def at_the_destinations(self) -> Iterator[Finding]:
        """Send, on every destination that is named; patterns name none."""
        about = f"primary {self._pair.primary.host}"
        named = [path for path in self._pair.destinations.allow if not any(mark in path for mark in "*?[")]
        yield from self._try(self._pair.primary, about, named, receive=False)

    def _try(self, side: NamespaceSettings, about: str, paths: Sequence[str], receive: bool) -> Iterator[Finding]:
        connection: Connection | None = None
        client = None
        try:
            client = client_of(side)
            connection = Connection(client, paths[0] if paths else "")
            yield Finding(self._pair.name, about, Level.FINE, "can be reached, and takes our credentials")
            for path in paths:
                error = try_receiver(connection, path) if receive else try_sender(connection, path)
                if error is None:
                    text = f"'{path}' can be {'received from' if receive else 'sent to'}"
                    yield Finding(self._pair.name, about, Level.FINE, text)
                else:
                    yield self._finding(about, error, path)
        except SyphonError as error:
            yield self._finding(about, error)
        finally:
            if connection is not None:
                connection.close()
            if client is not None:
                client.close()

    def _finding(self, about: str, error: SyphonError, path: str | None = None) -> Finding:
        level = Level.PROBLEM
        if isinstance(error, NotAuthorized):
            level = Level.DENIED
        elif isinstance(error, Waits | Unanswered):
            level = Level.UNREACHABLE
        text = f"'{path}': {error}" if path is not None else str(error)
        return Finding(self._pair.name, about, level, text)
