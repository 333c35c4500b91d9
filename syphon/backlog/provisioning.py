"""Provisions the backlog queues of a pair: finds those that exist, and creates the others (P1 to P6).

`plan` only reads; its result can be shown, and `provision` carries it out. Nothing is ever changed or deleted: a queue
that exists with another description is its owner's decision, and is used as it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from syphon.model import SyphonError
from syphon.servicebus import (
    Administration,
    AdministrationFailed,
    AdministrationUnreachable,
    EntityConflict,
    QueueInfo,
)
from syphon.time_budget import PROVISION_RETRY_AFTER

from .queues import DOCUMENTED, MARK, Difference, QueueName, differences_from_documented, parse_queue_name

ATTEMPTS = 3
"""Attempts for each queue (P5)."""

_log = logging.getLogger(__name__)


# --- what was found --------------------------------------------------------------------------------------------------


class ProvisionState(StrEnum):
    """What is known of a backlog queue, before or after provisioning."""

    EXISTS = "exists"
    MISSING = "missing"
    """It would be created."""
    UNKNOWN = "unknown"
    """It could not be looked up."""
    CREATED = "created"
    FAILED = "failed"
    """It could not be created: the pair does without it."""


_SENTENCES = {
    ProvisionState.EXISTS: "queue {name} exists",
    ProvisionState.MISSING: "queue {name} would be created",
    ProvisionState.UNKNOWN: "queue {name} could not be looked up: {because}",
    ProvisionState.CREATED: "queue {name} was created",
    ProvisionState.FAILED: "queue {name} could not be created and is not used: {because}",
}


@dataclass(frozen=True, slots=True)
class ProvisionedQueue:
    """One backlog queue of a plan, or of its result."""

    name: QueueName
    state: ProvisionState
    differences: tuple[Difference, ...] = ()
    """From the documented description; only of a queue that exists."""
    because: AdministrationFailed | None = None
    """Why it could not be looked up or created."""

    def __str__(self) -> str:
        text = _SENTENCES[self.state].format(name=self.name, because=self.because)
        return (
            f"{text} and is used unchanged, but {'; '.join(map(str, self.differences))}" if self.differences else text
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Which queues exist, and which would be created."""

    namespace: str
    queues: tuple[ProvisionedQueue, ...]
    extra: tuple[QueueName, ...] = ()
    """Backlog queues beyond the count, from an earlier setting (P4)."""
    unlisted: AdministrationFailed | None = None
    """Why extra queues could not be listed, if they could not."""

    def of(self, *states: ProvisionState) -> tuple[ProvisionedQueue, ...]:
        return tuple(queue for queue in self.queues if queue.state in states)

    @property
    def different(self) -> tuple[ProvisionedQueue, ...]:
        return tuple(queue for queue in self.queues if queue.differences)


def plan(administration: Administration, names: Sequence[QueueName]) -> Plan:
    """Reads the queues of these names, `<primary>/x-servicebus-transfer/0` and on, and changes nothing.

    Raises `NotAuthorized` and `NamespaceGone`; any other problem with a queue is part of the plan.
    """
    if not names:
        raise ValueError("a pair has at least one backlog queue")
    queues: list[ProvisionedQueue] = []
    unlisted: AdministrationFailed | None = None
    for name in names:
        # The namespace is unreachable: asking for each queue would cost a timeout for each.
        queue = _unknown(name, unlisted) if unlisted is not None else _read_queue(administration, name)
        queues.append(queue)
        if isinstance(queue.because, AdministrationUnreachable):
            unlisted = queue.because
    extra: tuple[QueueName, ...] = ()
    if unlisted is None:
        try:
            extra = _extra(administration, names)
        except AdministrationFailed as error:
            unlisted = error
    return Plan(administration.namespace, tuple(queues), extra, unlisted)


def _read_queue(administration: Administration, name: QueueName) -> ProvisionedQueue:
    try:
        existing = administration.get_queue(name)
    except AdministrationFailed as error:
        return _unknown(name, error)
    return ProvisionedQueue(name, ProvisionState.MISSING) if existing is None else _existing(name, existing)


def _unknown(name: QueueName, because: AdministrationFailed) -> ProvisionedQueue:
    return ProvisionedQueue(name, ProvisionState.UNKNOWN, because=because)


def _existing(name: QueueName, existing: QueueInfo) -> ProvisionedQueue:
    return ProvisionedQueue(name, ProvisionState.EXISTS, differences(existing))


_LEFT_TO_THE_SERVICE: dict[str, str] = {
    "requires_session": "false",
    "requires_duplicate_detection": "false",
    "enable_partitioning": "false",
    "enable_express": "false",
    "forward_to": "not set",
    "forward_dead_lettered_messages_to": "not set",
    "status": "Active",
}
"""The defaults of the service. A queue that requires sessions or forwards its messages cannot be a backlog queue."""
_CONSEQUENCES = {
    "requires_duplicate_detection": "different messages with the same message id become one, without an error, and a "
    "dead letter can be replayed only after the queue has forgotten its id, or with a new id",
}
"""What follows from a difference, where its name does not say it."""


def differences(existing: QueueInfo) -> tuple[Difference, ...]:
    """How a queue differs from one that `provision` creates: in what P2 sets, and in what it leaves to the service."""
    others = (
        Difference(name, _written(getattr(existing, name)), usual, _CONSEQUENCES.get(name))
        for name, usual in _LEFT_TO_THE_SERVICE.items()
        if _written(getattr(existing, name)) != usual
    )
    return (*differences_from_documented(existing), *others)


def _written(value: str | bool | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else value


def _extra(administration: Administration, names: Sequence[QueueName]) -> tuple[QueueName, ...]:
    """Queues with the name of a backlog queue of this pair and an index beyond the count."""
    queues = [queue for name in names if (queue := parse_queue_name(name)) is not None]
    ours = {name.lower() for name in names}
    extra = []
    for primary in {queue.primary.lower() for queue in queues}:
        listed = administration.queue_names(f"{primary}/{MARK}/")
        extra += [
            queue for name in listed if name.lower() not in ours and (queue := parse_queue_name(name)) is not None
        ]
    return tuple(queue.name for queue in sorted(extra))


# --- creating --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The backlog queues after provisioning."""

    namespace: str
    queues: tuple[ProvisionedQueue, ...]
    """Those that exist or were created."""
    dropped: tuple[ProvisionedQueue, ...] = ()
    """Those that could not be created."""
    extra: tuple[QueueName, ...] = ()

    @property
    def names(self) -> tuple[QueueName, ...]:
        """The queues to use."""
        return tuple(queue.name for queue in self.queues)

    @property
    def count(self) -> int:
        """The effective backlog_queue_count."""
        return len(self.queues)

    @property
    def created(self) -> tuple[ProvisionedQueue, ...]:
        return tuple(queue for queue in self.queues if queue.state is ProvisionState.CREATED)

    @property
    def different(self) -> tuple[ProvisionedQueue, ...]:
        return tuple(queue for queue in self.queues if queue.differences)

    def warnings(self) -> list[str]:
        """What the owner should know."""
        warnings = [f"{self.namespace}: {problem}" for problem in (*self.different, *self.dropped)]
        if self.extra:
            warnings.append(
                f"{self.namespace}: {', '.join(self.extra)} beyond the count of {self.count + len(self.dropped)}: "
                "not changed and not listened on; drain them before you delete them"
            )
        return warnings


class NoBacklogQueue(SyphonError):
    """No backlog queue exists, and none could be created."""

    def __init__(self, namespace: str, dropped: tuple[ProvisionedQueue, ...]) -> None:
        # One cause is enough: they differ only in the queue's name, and `dropped` has the others.
        super().__init__(
            f"{namespace}: none of the {len(dropped)} backlog queues exists or could be created. {dropped[0].because}"
        )
        self.dropped = dropped


def provision(
    administration: Administration,
    plan: Plan,
    *,
    sleep: Callable[[float], None] = time.sleep,
    attempts: int = ATTEMPTS,
    delay: float = PROVISION_RETRY_AFTER,
    reports: bool = True,
) -> Provisioned:
    """Creates the queues that do not exist. Each gets `attempts` attempts; a queue that fails is dropped (P5).

    It logs warnings for the owner, unless `reports` is false because the caller shows the result.
    Raises `NotAuthorized` and `NamespaceGone` at once, and `NoBacklogQueue` if there is no queue in the end.
    Each round attempts all queues, so that an outage costs two delays, and not two for each queue.
    """
    ready = {queue.name: queue for queue in plan.of(ProvisionState.EXISTS)}
    names = [queue.name for queue in plan.queues]
    failures: dict[QueueName, AdministrationFailed] = {}
    for turn in range(attempts):
        left = [name for name in names if name not in ready]
        if left and turn > 0:
            _log.warning(
                "%s: %d of %d backlog queues could not be created yet: %s; retrying in %.0f s",
                plan.namespace,
                len(left),
                len(names),
                str(failures[left[0]]).rstrip("."),
                delay,
            )
            sleep(delay)
        for place, name in enumerate(left):
            try:
                ready[name] = _ensure(administration, name)
            except AdministrationUnreachable as error:
                failures.update(dict.fromkeys(left[place:], error))
                break
            except AdministrationFailed as error:
                failures[name] = error
    dropped = tuple(
        ProvisionedQueue(name, ProvisionState.FAILED, because=failures[name]) for name in names if name not in ready
    )
    if not ready:
        raise NoBacklogQueue(plan.namespace, dropped)
    done = Provisioned(plan.namespace, tuple(ready[name] for name in names if name in ready), dropped, plan.extra)
    for warning in done.warnings() if reports else ():
        _log.warning(warning)
    return done


def _ensure(administration: Administration, name: QueueName) -> ProvisionedQueue:
    """Creates a queue if it does not exist. Checks again: the plan may be old, a lost answer a yes."""
    existing = administration.get_queue(name)
    if existing is None:
        try:
            administration.create_queue(name, DOCUMENTED)
        except EntityConflict:
            existing = administration.get_queue(name)  # another client may have created it in between
            if existing is None:
                raise
        else:
            return ProvisionedQueue(name, ProvisionState.CREATED)
    return _existing(name, existing)
