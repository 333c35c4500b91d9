"""Checks both sides of a pair before a worker uses it, and changes nothing.

Each check yields findings. A check that fails does not stop the others, so that the operator sees all problems at once.
No check takes much longer than a minute, even if a service does not answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from syphon.config import PairSettings, SideSettings, Transport, Via
from syphon.model import (
    BACKLOG_MARK,
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
    duration,
    never_a_destination,
    plural,
    volume,
)
from syphon.servicebus import (
    Administration,
    AdministrationUnavailable,
    Connection,
    DataPlaneAdministration,
    administration_of,
    client_of,
    peek_pages,
    try_receiver,
    try_sender,
)
from syphon.time_budget import ADMINISTRATION_TIMEOUT, CHECK_ANSWER_WITHIN, CHECK_PATIENCE

from .preview import PreviewRules, expiry_warning, preview_message
from .provisioning import Plan, ProvisionState, plan
from .queues import DOCUMENTED, QueueName, not_allowed, parse_queue_name, primary_label, queue_names

_UNUSABLE_IF = frozenset({"requires_session", "forward_to", "status"})
"""Differences that stop messages. All others are the owner's decision (P3)."""


NO_ENTITY = "syphon-check-of-the-right-to-send"
"""A name that no entity has: a service that checks the claims of a policy first refuses it."""


class Level(StrEnum):
    """How much a finding matters."""

    FINE = "ok"
    WARNING = "warning"
    """It works, but perhaps not as expected."""
    UNREACHABLE = "unreachable"
    """It may work later."""
    DENIED = "denied"
    """Credentials were refused, or a claim is missing."""
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
    """The result of checking one thing."""

    pair: str
    side: Side
    namespace: str
    entity: str | None
    """A queue, topic or pattern; None if it is about the namespace."""
    level: Level
    text: str


def secondary_administration(
    pair: PairSettings, via: Via | None = None, timeout: float = ADMINISTRATION_TIMEOUT
) -> Administration:
    """The administration client that creates the backlog queues."""
    name = primary_label(pair.secondary.host, pair.name, pair.secondary.name)
    return administration_of(pair.secondary, via or pair.provision.via, name, timeout)


@dataclass(frozen=True, slots=True)
class StrandedBacklog:
    """Backlog queues with messages that no pair listens to: their senders name the primary otherwise."""

    label: str
    """The primary's name in the names of these queues."""
    queues: int
    messages: int

    def __str__(self) -> str:
        where = f"{plural(self.queues, 'queue')} {self.label}/{BACKLOG_MARK}/*"
        return (
            f"{plural(self.messages, 'message')} in {where}, to which no pair of these settings listens. If their "
            f"senders mean this primary (their `primary_name`), set `primary.name: {self.label}`, or add a pair with it"
        )


def stranded_backlogs(pair: PairSettings, pairs: Sequence[PairSettings]) -> list[StrandedBacklog]:
    """The stranded backlogs in the secondary of a pair, which may serve several of `pairs`.

    Raises the error of the namespace if it cannot be asked, which needs the Manage claim.
    """
    shared = [each for each in pairs if each.secondary.host == pair.secondary.host]
    ours = {primary_label(each.primary.host, each.name, each.primary.name).lower() for each in (pair, *shared)}
    found: dict[str, list[int]] = {}
    with closing(secondary_administration(pair, timeout=CHECK_ANSWER_WITHIN)) as administration:
        for name in administration.queue_names(""):
            queue = parse_queue_name(name)
            if queue is None or queue.primary.lower() in ours:
                continue
            counts = administration.queue_counts(name)
            if counts is not None and counts.active:
                found.setdefault(queue.primary, []).append(counts.active)
    return [StrandedBacklog(label, len(counts), sum(counts)) for label, counts in found.items()]


MOST_SKEW = 30.0
"""Seconds by which clocks may differ: tokens are valid for longer, but ages and reports are wrong by as much."""
ENVELOPE = 300
"""Bytes that a message takes beside its body, about: properties, aliases, annotations."""


@dataclass(frozen=True, slots=True)
class ExpectedOutage:
    """An outage that the backlog must have room for."""

    seconds: float
    rate: float
    """Messages per second that senders send."""
    size: int
    """Bytes of the body of a message."""

    @property
    def bytes(self) -> float:
        return self.seconds * self.rate * (self.size + ENVELOPE)

    def __str__(self) -> str:
        return f"{duration(self.seconds)} at {self.rate:,.10g} messages per second of {volume(self.size)}"


def preflight_checks(
    pair: PairSettings,
    makes_queues: bool = True,
    pairs: Sequence[PairSettings] = (),
    outage: ExpectedOutage | None = None,
) -> list[PreflightCheck]:
    """All checks before a worker serves a pair, one of `pairs`; they may run at the same time.

    A worker that creates no queues needs no Manage claim on the secondary, so then no check needs the claim.
    """
    return [_Secondary(pair, makes_queues, pairs, outage), _Primary(pair)]


class PreflightCheck:
    """Checks one side of a pair."""

    side: Side

    def __init__(self, pair: PairSettings) -> None:
        self.pair = pair

    @property
    def settings(self) -> SideSettings:
        return self.pair.primary if self.side is Side.PRIMARY else self.pair.secondary

    def __str__(self) -> str:
        return f"{self.pair.name}: {self.side} {self.settings.host}"

    def findings(self) -> Iterator[Finding]:
        raise NotImplementedError

    def _finding(self, level: Level, text: str, entity: str | None = None) -> Finding:
        return Finding(self.pair.name, self.side, self.settings.host, entity, level, text)

    def _failure(self, error: SyphonError, entity: str | None = None) -> Finding:
        # The entity is shown before the text. Without its name, the same problem of many entities has the same text.
        text = str(error) if entity is None else str(error).replace(f" '{entity}'", "")
        return self._finding(_level(error), text, entity)

    def _links(self, paths: Sequence[str]) -> Iterator[Finding]:
        """Checks that links can be opened; without paths, that the namespace accepts the connection."""
        deadline = time.monotonic() + CHECK_PATIENCE
        try:
            with (
                client_of(self.settings) as client,
                closing(Connection(client, paths[0] if paths else "", CHECK_ANSWER_WITHIN)) as connection,
            ):
                yield self._finding(Level.FINE, "reachable over AMQP, accepts the credentials")
                for path in paths:
                    if time.monotonic() > deadline:
                        yield self._finding(Level.UNREACHABLE, "not checked: the other entities took too long", path)
                    else:
                        yield self._link(connection, path)
                yield from self._once_connected(connection, deadline)
        except DestinationUnreachable as error:
            usual = "443" if self.settings.transport is Transport.WEBSOCKETS else "5671"
            port = self.settings.host.rpartition("]")[2].partition(":")[2] or usual
            advice = f"Check that it is up and that the network allows AMQP (port {port}), or retry later."
            yield self._finding(Level.UNREACHABLE, f"{error}. {advice}")
        except SyphonError as error:
            yield self._failure(error)

    def _link(self, connection: Connection, path: str) -> Finding:
        raise NotImplementedError

    def _once_connected(self, connection: Connection, deadline: float) -> Iterator[Finding]:  # noqa: ARG002
        """What else is to be said about a side that can be reached."""
        yield from ()


class _Secondary(PreflightCheck):
    """Checks that the backlog queues exist as documented (P2), and that the worker may listen."""

    side = Side.SECONDARY

    def __init__(
        self, pair: PairSettings, makes_queues: bool, pairs: Sequence[PairSettings], outage: ExpectedOutage | None
    ) -> None:
        super().__init__(pair)
        self._outage = outage
        self._makes_queues = makes_queues
        self._pairs = pairs
        self._existing = queue_names(pair)
        """The queues that exist, as far as is known."""
        self._megabytes = dict.fromkeys(self._existing, DOCUMENTED.max_size_in_megabytes)
        """The size of each queue: the documented one, unless a queue is found to have another."""

    def findings(self) -> Iterator[Finding]:
        names = self._existing
        if self._makes_queues:
            missing: set[str] = set()
            for finding in self._described(names):
                if finding.level is Level.PROBLEM and finding.entity is not None:
                    missing.add(finding.entity)
                yield finding
            # One queue is enough to check the Listen claim of the namespace; the administration has found the queues.
            self._existing = [name for name in names if name not in missing]
            names = self._existing[:1]
        yield from self._links(names)
        with suppress(SyphonError):  # it needs the Manage claim, and other findings say what is wrong
            for stranded in stranded_backlogs(self.pair, self._pairs):
                yield self._finding(Level.WARNING, str(stranded))

    def _capacity(self) -> Finding:
        """How much an outage may bring before senders fail, and the risk of a single queue."""
        count = len(self._megabytes)
        room = f"room for {volume(sum(self._megabytes.values()) * 2**20)}"
        if count > 1:
            text = f"{room} in {count} backlog queues, if all exist: everything sent during an outage must fit"
            return self._finding(Level.FINE, text)
        only = f"{room} in a single backlog queue: if it fails or is full, senders have no other"
        return self._finding(Level.WARNING, f"{only}; set backlog_queue_count to 2 or more (10 is the default)")

    def _room_for_outage(self, outage: ExpectedOutage) -> Finding:
        """Whether an outage fits into the backlog, and how long it may last otherwise."""
        room, needed = sum(self._megabytes.values()) * 2**20, volume(int(outage.bytes))
        if outage.bytes <= room:
            share = f"{outage.bytes / room:.0%}" if outage.bytes >= room / 100 else "under 1 %"
            return self._finding(Level.FINE, f"an outage of {outage} fits: {needed}, {share} of the room")
        lasts = duration(outage.seconds * room / outage.bytes)
        text = f"an outage of {outage} needs {needed}: after {lasts} the backlog is full, and senders fail"
        return self._finding(Level.WARNING, f"{text}; raise backlog_queue_count, or make the queues larger")

    def _clock(self, administration: Administration) -> Iterator[Finding]:
        """Warns of a clock that is wrong: tokens are refused when it is far off, and times are wrong before that."""
        skew = administration.clock_skew if isinstance(administration, DataPlaneAdministration) else None
        if skew is not None and abs(skew) > MOST_SKEW:
            off = f"{duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the namespace's"
            consequence = "ages, reports and the expiry of tokens are wrong by as much"
            yield self._finding(Level.WARNING, f"this machine's clock is {off}: {consequence}; synchronize it (NTP)")

    def _once_connected(self, connection: Connection, deadline: float) -> Iterator[Finding]:
        yield self._capacity()
        if self._outage is not None:
            yield self._room_for_outage(self._outage)
        yield from self._expiring(connection, deadline)

    def _expiring(self, connection: Connection, deadline: float) -> Iterator[Finding]:
        """Peeks at the first messages of each queue, and warns about those that expire in the backlog (M9)."""
        moments: list[int] = []
        for name in self._existing:
            if time.monotonic() > deadline:
                break
            with (
                suppress(SyphonError),  # another check says what is wrong; this one is about messages that it can see
                closing(peek_pages(connection, name, answer_within=CHECK_ANSWER_WITHIN, ahead=False)) as pages,
            ):
                previews = (preview_message(message.payload, 0, PreviewRules()) for message in next(pages, []))
                moments += [found.backlog_expires_at for found in previews if found.backlog_expires_at is not None]
        if moments:
            first = f"{datetime.fromtimestamp(min(moments) / 1000, UTC):%Y-%m-%d %H:%M} UTC"
            yield self._finding(Level.WARNING, f"at least {expiry_warning(len(moments), first)}")

    def _described(self, names: Sequence[QueueName]) -> Iterator[Finding]:
        try:
            with closing(secondary_administration(self.pair, timeout=CHECK_ANSWER_WITHIN)) as administration:
                found = plan(administration, names)
                yield from self._clock(administration)
        except NotAuthorized as error:
            advice = "Without Manage: `syphon check --no-provision`, `syphon run --no-provision`."
            yield self._finding(Level.DENIED, f"{error} {advice}")
            return
        except SyphonError as error:
            yield self._failure(error)
            return
        yield from self._about(found)

    def _about(self, found: Plan) -> Iterator[Finding]:
        for queue in found.queues:
            if queue.state is ProvisionState.MISSING:
                yield self._finding(Level.PROBLEM, "missing: run `syphon provision`", queue.name)
            elif queue.differences:
                for difference in queue.differences:
                    if difference.property == "max_size_in_megabytes":
                        self._megabytes[queue.name] = int(difference.found)
                differing = "; ".join(map(str, queue.differences))
                if _UNUSABLE_IF.isdisjoint(difference.property for difference in queue.differences):
                    yield self._finding(Level.WARNING, f"exists and is used unchanged, but {differing}", queue.name)
                else:
                    text = f"exists, but is unusable as a backlog queue: {differing}; correct that, or delete it"
                    yield self._finding(Level.PROBLEM, text, queue.name)
            elif queue.state is ProvisionState.EXISTS:
                yield self._finding(Level.FINE, "exists, as documented", queue.name)
            elif queue.because is not None and queue.because is not found.unlisted:
                yield self._failure(queue.because, queue.name)
        for name in found.extra:
            beyond = f"beyond the count of {len(found.queues)}: no worker listens on it"
            text = f"{beyond}; empty it with `syphon drain --all-found`"
            yield self._finding(Level.WARNING, text, name)
        if found.unlisted is not None:
            yield self._failure(found.unlisted)

    def _link(self, connection: Connection, path: str) -> Finding:
        error = try_receiver(connection, path)
        if error is None:
            return self._finding(Level.FINE, "can be received from", path)
        if isinstance(error, DestinationMissing):
            return self._finding(Level.PROBLEM, "missing: run `syphon provision`", path)
        if isinstance(error, NotAuthorized):
            return self._finding(Level.DENIED, f"{error} {_grant('Listen', 'Receiver')}", path)
        return self._failure(error, path)


class _Primary(PreflightCheck):
    """Checks that the destinations that the settings name exist, and that the worker may send."""

    side = Side.PRIMARY

    def findings(self) -> Iterator[Finding]:
        allow = self.pair.destinations.allow
        patterns = [path for path in allow if _is_pattern(path)]
        named = [path for path in allow if path not in patterns]
        useless = {path: why for path in named if (why := never_a_destination(EntityPath.of(path))) is not None}
        for path, why in useless.items():
            text = f"can never receive a message: {why}; remove it from destinations.allow"
            yield self._finding(Level.WARNING, text, path)
        reached, entities = True, self._entities([path for path in named if path not in useless])
        for finding in self._links(entities):
            reached = reached and not (finding.entity is None and not finding.level.is_good)
            yield finding
        if reached:
            yield from self._that_detect_duplicates(entities)
            yield from self._covered([pattern for pattern in patterns if pattern != "*"])

    def _once_connected(self, connection: Connection, deadline: float) -> Iterator[Finding]:  # noqa: ARG002
        """Tries the right to send where the settings name no destination, with any entity, or with a name of none."""
        if self._entities([path for path in self.pair.destinations.allow if not _is_pattern(path)]):
            return
        names = self._names()
        if names is not None and not names:
            return
        error = try_sender(connection, names[0] if names else NO_ENTITY)
        if error is None:
            yield self._finding(Level.FINE, "accepts messages with these credentials")
        elif isinstance(error, NotAuthorized):
            yield self._finding(Level.DENIED, f"{error} {_grant('Send', 'Sender')}")
        else:
            advice = "name a queue or topic in destinations.allow, beside the patterns, to check it"
            yield self._finding(Level.WARNING, f"whether these credentials may send is not known: {advice}")

    def _names(self) -> list[str] | None:
        """The queues and topics that may be destinations; None without the Manage claim."""
        try:
            with closing(administration_of(self.pair.primary, Via.ADMIN, "", CHECK_ANSWER_WITHIN)) as administration:
                names = map(EntityPath.of, administration.entity_names())
                return [path.name for path in names if not_allowed(path, self.pair.destinations.allowed) is None]
        except SyphonError:
            return None

    def _entities(self, named: Sequence[str]) -> list[str]:
        """The entities that messages go to: those that the settings name, or what they are renamed to."""
        destinations = self.pair.destinations
        actual = [destinations.renames.actual(EntityPath.of(path)).name for path in named]
        return list(dict.fromkeys([*actual, *destinations.rename.values()]))

    def _that_detect_duplicates(self, entities: Sequence[str]) -> Iterator[Finding]:
        """Names the destinations that drop a message whose id they know, also if it is another message (S2)."""
        if not entities:
            return
        renamed = {new: old for old, new in self.pair.destinations.rename.items()}
        with (
            suppress(SyphonError),  # only the Manage claim allows the question, and a worker needs none here
            closing(administration_of(self.pair.primary, Via.ADMIN, "", CHECK_ANSWER_WITHIN)) as administration,
        ):
            for entity in entities:
                if not (window := administration.duplicate_window(entity)):
                    continue
                drops = f"drops a message whose id it has seen within {duration(window / 1000)}"
                if (old := renamed.get(entity)) is not None:
                    text = f"{drops}; different messages that were meant for '{old}' may have the same id"
                    yield self._finding(Level.WARNING, text, entity)
                else:
                    text = f"{drops}; a drain may send messages within that time that were sent further apart"
                    yield self._finding(Level.FINE, text, entity)

    def _covered(self, patterns: Sequence[str]) -> Iterator[Finding]:
        """Lists what each pattern matches. This needs the Manage claim; without it the check only says so."""
        if not patterns:
            return
        try:
            with closing(administration_of(self.pair.primary, Via.ADMIN, "", CHECK_ANSWER_WITHIN)) as administration:
                names = [
                    name for name in administration.entity_names() if never_a_destination(EntityPath.of(name)) is None
                ]
        except SyphonError:
            for pattern in patterns:
                text = "a pattern; without the Manage claim syphon cannot see which queues and topics it matches"
                yield self._finding(Level.FINE, text, pattern)
            return
        for pattern in patterns:
            covered = [name for name in names if PathPatterns.of([pattern]).fit(EntityPath.of(name))]
            if covered:
                more = f" and {len(covered) - 3} more" if len(covered) > 3 else ""
                yield self._finding(Level.FINE, f"matches {', '.join(covered[:3])}{more}", pattern)
            else:
                text = "a pattern that matches no queue or topic; correct it, or create the entities"
                yield self._finding(Level.WARNING, text, pattern)

    def _link(self, connection: Connection, path: str) -> Finding:
        error = try_sender(connection, EntityPath.of(path).name)
        if error is None:
            return self._finding(Level.FINE, "can be sent to", path)
        if isinstance(error, NotAuthorized):
            return self._finding(Level.DENIED, f"{error} {_grant('Send', 'Sender')}", path)
        if isinstance(error, DestinationMissing):
            text = f"no queue or topic of that name; {self._consequence(error)}"
            return self._finding(Level.PROBLEM, text, path)
        if isinstance(error, DestinationDisabled):
            return self._finding(Level.PROBLEM, f"disabled; {self._consequence(error)}", path)
        return self._failure(error, path)

    def _consequence(self, error: SyphonError) -> str:
        if type(error) in self.pair.destinations.permanent():
            return "messages would be dead-lettered"
        return "messages would wait in the backlog"


def _is_pattern(path: str) -> bool:
    return any(mark in path for mark in "*?[")


def _grant(claim: str, role: str) -> str:
    return f"Give the policy the {claim} claim, or the identity the role Azure Service Bus Data {role}."


def _level(error: SyphonError) -> Level:
    if isinstance(error, NotAuthorized):
        return Level.DENIED
    # A namespace that is unknown may only be unknown yet: it counts as unreachable.
    may_work_later = isinstance(error, Waits | AdministrationUnavailable | Interrupted | NamespaceGone)
    return Level.UNREACHABLE if may_work_later else Level.PROBLEM
