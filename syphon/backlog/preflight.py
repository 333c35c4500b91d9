"""What would go wrong, before it does: a pair is looked at from both sides, and nothing is changed.

Each look gives findings; one that fails does not stop the others, so that everything that is wrong is told at once.
No look takes longer than a minute or so, whoever is silent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum

from syphon.bus import (
    OPERATION_TIMEOUT,
    Administration,
    AdministrationUnavailable,
    Connection,
    administration_of,
    client_of,
    try_receiver,
    try_sender,
)
from syphon.config import NamespaceSettings, PairSettings, Via
from syphon.model import (
    DestinationDisabled,
    DestinationMissing,
    DestinationUnreachable,
    EntityPath,
    Interrupted,
    NamespaceGone,
    NotAuthorized,
    PathPatterns,
    SyphonError,
    Waits,
)

from .names import QueueName, backlog_queues, never_a_destination, primary_label
from .provisioning import Found, Missing, Plan, plan

ANSWER_WITHIN = 15.0
"""Seconds for an answer. A worker is more patient; who looks is waited for."""
PATIENCE = 45.0
"""Seconds for all doors of a namespace together."""

_OF_NO_USE = frozenset({"requires_session", "forward_to", "status"})
"""What keeps messages from coming in or out, whereas other differences are the owner's business (P3)."""


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

    @property
    def is_good(self) -> bool:
        return self in (Level.FINE, Level.WARNING)


class Side(StrEnum):
    PRIMARY = "primary"
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    pair: str
    side: Side
    namespace: str
    entity: str | None
    """A queue, topic or pattern; None if it is about the namespace."""
    level: Level
    text: str


def queue_names(pair: PairSettings) -> list[QueueName]:
    """The backlog queues a pair has by its settings."""
    label = primary_label(pair.primary.host, pair.name, pair.primary.name)
    return [queue.name for queue in backlog_queues(label, pair.backlog_queue_count)]


def secondary_administration(
    pair: PairSettings, via: Via | None = None, timeout: float = OPERATION_TIMEOUT
) -> Administration:
    """What makes the backlog queues."""
    name = primary_label(pair.secondary.host, pair.name, pair.secondary.name)
    return administration_of(pair.secondary, via or pair.provision.via, name, timeout)


def looks(pair: PairSettings, makes_queues: bool = True) -> list[Look]:
    """All there is to look at before a worker serves a pair; they may run side by side.

    A worker that makes no queues needs no Manage claim on the secondary, so nothing is asked that takes one.
    """
    return [_Secondary(pair, makes_queues), _Primary(pair)]


class Look:
    """A look at one side of a pair."""

    side: Side

    def __init__(self, pair: PairSettings) -> None:
        self.pair = pair

    @property
    def settings(self) -> NamespaceSettings:
        return self.pair.primary if self.side is Side.PRIMARY else self.pair.secondary

    def __str__(self) -> str:
        return f"{self.pair.name}: {self.side} {self.settings.host}"

    def findings(self) -> Iterator[Finding]:
        raise NotImplementedError

    def _finding(self, level: Level, text: str, entity: str | None = None) -> Finding:
        return Finding(self.pair.name, self.side, self.settings.host, entity, level, text)

    def _failure(self, error: SyphonError, entity: str | None = None) -> Finding:
        # The entity stands in front of the text already; without it, what is wrong with many is said in the same words.
        text = str(error) if entity is None else str(error).replace(f" '{entity}'", "")
        return self._finding(_level(error), text, entity)

    def _doors(self, paths: Sequence[str]) -> Iterator[Finding]:
        """Whether links can be opened; with no path, whether the namespace takes us at all."""
        deadline = time.monotonic() + PATIENCE
        try:
            with (
                client_of(self.settings) as client,
                closing(Connection(client, paths[0] if paths else "", ANSWER_WITHIN)) as connection,
            ):
                yield self._finding(Level.FINE, "can be reached over AMQP, and takes our credentials")
                for path in paths:
                    if time.monotonic() > deadline:
                        yield self._finding(Level.UNREACHABLE, "was not looked at: the others took too long", path)
                    else:
                        yield self._door(connection, path)
        except DestinationUnreachable as error:
            way = "Check that it is up and the network lets AMQP through (port 5671), or try again later."
            yield self._finding(Level.UNREACHABLE, f"{error}. {way}")
        except SyphonError as error:
            yield self._failure(error)

    def _door(self, connection: Connection, path: str) -> Finding:
        raise NotImplementedError


class _Secondary(Look):
    """The backlog queues: whether they are there and as documented (P2), and whether we may listen."""

    side = Side.SECONDARY

    def __init__(self, pair: PairSettings, makes_queues: bool) -> None:
        super().__init__(pair)
        self._makes_queues = makes_queues

    def findings(self) -> Iterator[Finding]:
        names = queue_names(self.pair)
        if self._makes_queues:
            missing: set[str] = set()
            for finding in self._described(names):
                if finding.level is Level.PROBLEM and finding.entity is not None:
                    missing.add(finding.entity)
                yield finding
            # One tells of the Listen claim, which is the namespace's; that they are there, the administration has said.
            names = [name for name in names if name not in missing][:1]
        yield from self._doors(names)

    def _described(self, names: Sequence[QueueName]) -> Iterator[Finding]:
        try:
            with closing(secondary_administration(self.pair, timeout=ANSWER_WITHIN)) as administration:
                found = plan(administration, names)
        except NotAuthorized as error:
            way = "`syphon run --no-provision` does without, if the queues are there; so does this command."
            yield self._finding(Level.DENIED, f"{error} {way}")
            return
        except SyphonError as error:
            yield self._failure(error)
            return
        yield from self._about(found)

    def _about(self, found: Plan) -> Iterator[Finding]:
        for queue in found.queues:
            if isinstance(queue, Missing):
                yield self._finding(Level.PROBLEM, "missing; to be made with `syphon provision`", queue.name)
            elif isinstance(queue, Found) and queue.differences:
                differing = "; ".join(map(str, queue.differences))
                if _OF_NO_USE.isdisjoint(difference.property for difference in queue.differences):
                    yield self._finding(Level.WARNING, f"there, and used as it is, but {differing}", queue.name)
                else:
                    text = f"there, but of no use as a backlog: {differing}; set that right, or delete it"
                    yield self._finding(Level.PROBLEM, text, queue.name)
            elif isinstance(queue, Found):
                yield self._finding(Level.FINE, "there, as documented", queue.name)
            elif queue.because is not found.unlisted:
                yield self._failure(queue.because, queue.name)
        for name in found.extra:
            beyond = f"beyond the count of {len(found.queues)}: nobody listens"
            text = f"{beyond}; to be emptied with `syphon drain --all-found`"
            yield self._finding(Level.WARNING, text, name)
        if found.unlisted is not None:
            yield self._failure(found.unlisted)

    def _door(self, connection: Connection, path: str) -> Finding:
        error = try_receiver(connection, path)
        if error is None:
            return self._finding(Level.FINE, "can be received from", path)
        if isinstance(error, DestinationMissing):
            return self._finding(Level.PROBLEM, "missing; to be made with `syphon provision`", path)
        if isinstance(error, NotAuthorized):
            return self._finding(Level.DENIED, f"{error} {_grant('Listen', 'Receiver')}", path)
        return self._failure(error, path)


class _Primary(Look):
    """The destinations: whether those that are named are there, and whether we may send."""

    side = Side.PRIMARY

    def findings(self) -> Iterator[Finding]:
        allow = self.pair.destinations.allow
        patterns = [path for path in allow if any(mark in path for mark in "*?[")]
        named = [path for path in allow if path not in patterns]
        useless = {path: why for path in named if (why := never_a_destination(EntityPath.of(path))) is not None}
        for path, why in useless.items():
            text = f"never takes a message: {why}; take it out of destinations.allow"
            yield self._finding(Level.WARNING, text, path)
        reached = True
        for finding in self._doors([path for path in named if path not in useless]):
            reached = reached and not (finding.entity is None and finding.level is not Level.FINE)
            yield finding
        if reached:
            yield from self._covered([pattern for pattern in patterns if pattern != "*"])

    def _covered(self, patterns: Sequence[str]) -> Iterator[Finding]:
        """What is there for each pattern. A worker can do without the Manage claim that this takes, and so can we."""
        if not patterns:
            return
        try:
            with closing(administration_of(self.pair.primary, Via.ADMIN, "", ANSWER_WITHIN)) as administration:
                names = [
                    name for name in administration.entity_names() if never_a_destination(EntityPath.of(name)) is None
                ]
        except SyphonError:
            for pattern in patterns:
                text = "a pattern; without the Manage claim nobody can see which queues and topics it is good for"
                yield self._finding(Level.FINE, text, pattern)
            return
        for pattern in patterns:
            covered = [name for name in names if PathPatterns.of([pattern]).fit(EntityPath.of(name))]
            if covered:
                more = f" and {len(covered) - 3} more" if len(covered) > 3 else ""
                yield self._finding(Level.FINE, f"good for {', '.join(covered[:3])}{more}", pattern)
            else:
                text = "a pattern that is good for no queue or topic there is; mend it, or make them"
                yield self._finding(Level.WARNING, text, pattern)

    def _door(self, connection: Connection, path: str) -> Finding:
        error = try_sender(connection, EntityPath.of(path).name)
        if error is None:
            return self._finding(Level.FINE, "can be sent to", path)
        if isinstance(error, NotAuthorized):
            return self._finding(Level.DENIED, f"{error} {_grant('Send', 'Sender')}", path)
        if isinstance(error, DestinationMissing):
            text = f"no queue or topic of that name; {self._fate(error)}"
            return self._finding(Level.PROBLEM, text, path)
        if isinstance(error, DestinationDisabled):
            return self._finding(Level.PROBLEM, f"disabled; {self._fate(error)}", path)
        return self._failure(error, path)

    def _fate(self, error: SyphonError) -> str:
        if type(error) in self.pair.destinations.permanent():
            return "messages would be dead-lettered"
        return "messages would wait in the backlog"


def _grant(claim: str, role: str) -> str:
    return f"Give the policy the {claim} claim, or the identity the role Azure Service Bus Data {role}."


def _level(error: SyphonError) -> Level:
    if isinstance(error, NotAuthorized):
        return Level.DENIED
    # A name that is not known may be one that is not known yet; it is told as what it is.
    return (
        Level.UNREACHABLE
        if isinstance(error, Waits | AdministrationUnavailable | Interrupted | NamespaceGone)
        else Level.PROBLEM
    )
