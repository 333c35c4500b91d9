"""The backlog queues of a pair: what is there, what would be made, and making it (SPEC P).

`plan` only looks. What it gives can be shown, and `provision` carries it out. Nothing is ever changed or deleted: a
queue that is there with another description is its owner's business, and is used as it is.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from syphon.bus import Administration, AdministrationFailed, AdministrationUnreachable, EntityConflict, QueueInfo
from syphon.model import SyphonError

from .description import DOCUMENTED, Difference, QueueDescription
from .names import MARK, QueueName, parse_queue_name

TRIES = 3
PAUSE = 30.0
"""Seconds between two tries."""

_log = logging.getLogger(__name__)


# What was found -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Found:
    """A queue that is there, as owed or with differences."""

    name: QueueName
    differences: tuple[Difference, ...] = ()

    def __str__(self) -> str:
        if not self.differences:
            return f"queue {self.name} is there"
        return f"queue {self.name} is there and is used as it is, but {'; '.join(map(str, self.differences))}"


@dataclass(frozen=True, slots=True)
class Missing:
    """A queue that is not there, and would be made."""

    name: QueueName

    def __str__(self) -> str:
        return f"queue {self.name} is to be made"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A queue we could not look for."""

    name: QueueName
    because: AdministrationFailed

    def __str__(self) -> str:
        return f"queue {self.name} could not be looked for: {self.because}"


PlannedQueue: TypeAlias = Found | Missing | Unknown


@dataclass(frozen=True, slots=True)
class Plan:
    """What is there, and what would be made."""

    namespace: str
    queues: tuple[PlannedQueue, ...]
    extra: tuple[QueueName, ...] = ()
    """Backlog queues beyond the count, which some earlier setting has left (P4)."""
    unlisted: AdministrationFailed | None = None
    """Why extra queues could not be looked for, if so."""

    @property
    def as_owed(self) -> tuple[Found, ...]:
        return tuple(queue for queue in self.queues if isinstance(queue, Found) and not queue.differences)

    @property
    def different(self) -> tuple[Found, ...]:
        return tuple(queue for queue in self.queues if isinstance(queue, Found) and queue.differences)

    @property
    def missing(self) -> tuple[Missing, ...]:
        return tuple(queue for queue in self.queues if isinstance(queue, Missing))

    @property
    def unknown(self) -> tuple[Unknown, ...]:
        return tuple(queue for queue in self.queues if isinstance(queue, Unknown))


def plan(administration: Administration, names: Sequence[QueueName]) -> Plan:
    """Looks at the queues of these names, `<primary>/x-servicebus-transfer/0` and on, and changes nothing.

    Raises `NotAuthorized` and `NamespaceGone`; what else goes wrong with a queue is part of the plan.
    """
    if not names:
        raise ValueError("a pair has at least one backlog queue")
    queues: list[PlannedQueue] = []
    unlisted: AdministrationFailed | None = None
    for name in names:
        # Out of reach is out of reach: to ask for each queue would cost a timeout each.
        queue = Unknown(name, unlisted) if unlisted is not None else _look(administration, name)
        queues.append(queue)
        if isinstance(queue, Unknown) and isinstance(queue.because, AdministrationUnreachable):
            unlisted = queue.because
    extra: tuple[QueueName, ...] = ()
    if unlisted is None:
        try:
            extra = _extra(administration, names)
        except AdministrationFailed as error:
            unlisted = error
    return Plan(administration.namespace, tuple(queues), extra, unlisted)


def _look(administration: Administration, name: QueueName) -> PlannedQueue:
    try:
        facts = administration.get_queue(name)
    except AdministrationFailed as error:
        return Unknown(name, error)
    return Missing(name) if facts is None else Found(name, differences(facts))


_LEFT_TO_THE_SERVICE: dict[str, str] = {
    "requires_session": "false",
    "requires_duplicate_detection": "false",
    "enable_partitioning": "false",
    "enable_express": "false",
    "forward_to": "not set",
    "forward_dead_lettered_messages_to": "not set",
    "status": "Active",
}
"""What a queue is if nobody says anything else: a backlog that wants sessions or forwards its messages is of no use."""


def differences(facts: QueueInfo) -> tuple[Difference, ...]:
    """Where a queue is not what we would have made: in what P2 sets, and in what it leaves to the service."""
    described = (field.name for field in dataclasses.fields(QueueDescription))
    found = QueueDescription(**{name: getattr(facts, name) for name in described})
    others = (
        Difference(name, _written(getattr(facts, name)), usual)
        for name, usual in _LEFT_TO_THE_SERVICE.items()
        if _written(getattr(facts, name)) != usual
    )
    return (*DOCUMENTED.differences(found), *others)


def _written(value: str | bool | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else value


def _extra(administration: Administration, names: Sequence[QueueName]) -> tuple[QueueName, ...]:
    """Queues that are named as ours are, with an index that none of ours has."""
    queues = [queue for name in names if (queue := parse_queue_name(name)) is not None]
    ours = {name.lower() for name in names}
    extra = []
    for primary in {queue.primary.lower() for queue in queues}:
        listed = administration.queue_names(f"{primary}/{MARK}/")
        extra += [
            queue for name in listed if name.lower() not in ours and (queue := parse_queue_name(name)) is not None
        ]
    return tuple(queue.name for queue in sorted(extra))


# Making ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Made:
    """A queue that was not there, and now is."""

    name: QueueName

    def __str__(self) -> str:
        return f"queue {self.name} was made"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A queue that is not there and could not be made: the pair does without it."""

    name: QueueName
    because: AdministrationFailed

    def __str__(self) -> str:
        return f"queue {self.name} is left out: {self.because}"


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The backlog as it is now."""

    namespace: str
    queues: tuple[Found | Made, ...]
    dropped: tuple[Dropped, ...] = ()
    extra: tuple[QueueName, ...] = ()

    @property
    def names(self) -> tuple[QueueName, ...]:
        """The queues to be used."""
        return tuple(queue.name for queue in self.queues)

    @property
    def count(self) -> int:
        """The effective backlog_queue_count."""
        return len(self.queues)

    @property
    def made(self) -> tuple[Made, ...]:
        return tuple(queue for queue in self.queues if isinstance(queue, Made))

    @property
    def different(self) -> tuple[Found, ...]:
        return tuple(queue for queue in self.queues if isinstance(queue, Found) and queue.differences)

    def warnings(self) -> list[str]:
        """What the owner should know of."""
        warnings = [f"{self.namespace}: {problem}" for problem in (*self.different, *self.dropped)]
        if self.extra:
            warnings.append(
                f"{self.namespace}: {', '.join(self.extra)} beyond the count of {self.count + len(self.dropped)}: "
                "left as they are, and not listened to; have them drained before they are deleted"
            )
        return warnings


class NoBacklogQueue(SyphonError):
    """Not one backlog queue is there or could be made."""

    def __init__(self, namespace: str, dropped: tuple[Dropped, ...]) -> None:
        # One cause says it: they are all alike but for the queue's name, and `dropped` has the others.
        super().__init__(
            f"{namespace}: not one of the {len(dropped)} backlog queues is there or could be made. {dropped[0].because}"
        )
        self.dropped = dropped


def provision(
    administration: Administration,
    plan: Plan,
    *,
    sleep: Callable[[float], None] = time.sleep,
    tries: int = TRIES,
    pause: float = PAUSE,
    reports: bool = True,
) -> Provisioned:
    """Makes the queues that are not there. Each one is tried `tries` times; a queue that fails is left out (P5).

    What the owner should know of the result is logged, unless it `reports` nothing because the caller shows all of it.
    Raises `NotAuthorized` and `NamespaceGone` at once, and `NoBacklogQueue` if in the end there is not one.
    The queues are tried in turns, so that an outage costs two pauses, and not two for each queue.
    """
    ready: dict[QueueName, Found | Made] = {queue.name: queue for queue in plan.queues if isinstance(queue, Found)}
    names = [queue.name for queue in plan.queues]
    failures: dict[QueueName, AdministrationFailed] = {}
    for turn in range(tries):
        left = [name for name in names if name not in ready]
        if left and turn > 0:
            _log.warning(
                "%s: %d of %d backlog queues could not be made yet, next try in %g s: %s",
                plan.namespace,
                len(left),
                len(names),
                pause,
                failures[left[0]],
            )
            sleep(pause)
        for place, name in enumerate(left):
            try:
                ready[name] = _ensure(administration, name)
            except AdministrationUnreachable as error:
                failures.update(dict.fromkeys(left[place:], error))
                break
            except AdministrationFailed as error:
                failures[name] = error
    dropped = tuple(Dropped(name, failures[name]) for name in names if name not in ready)
    if not ready:
        raise NoBacklogQueue(plan.namespace, dropped)
    done = Provisioned(plan.namespace, tuple(ready[name] for name in names if name in ready), dropped, plan.extra)
    for warning in done.warnings() if reports else ():
        _log.warning(warning)
    return done


def _ensure(administration: Administration, name: QueueName) -> Found | Made:
    """The queue, made if it is not there. Looks again: a plan may be old, and a lost answer may have been yes."""
    facts = administration.get_queue(name)
    if facts is None:
        try:
            administration.create_queue(name, DOCUMENTED)
        except EntityConflict:
            facts = administration.get_queue(name)  # somebody else may have made it in between
            if facts is None:
                raise
        else:
            return Made(name)
    return Found(name, differences(facts))
