"""What backlog queues are called, and which paths can never be a destination.

A backlog queue is `<primary>/x-servicebus-transfer/<n>` and lives in the secondary namespace (P1). Service Bus makes no
difference between capitals and small letters in a name, and neither does reading one here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NewType

from syphon.model import EntityPath, PathPatterns, first_label

QueueName = NewType("QueueName", str)

MARK = "x-servicebus-transfer"
_NOT_IN_A_NAME = frozenset("@?#*\\%")
"""No entity has these in its name, and in an address some of them, and dots, mean something else: `billing/../orders`
matches `billing/*`, and who resolves it is at `orders`."""
_NAME = re.compile(rf"([^/]+)/{MARK}/(0|[1-9][0-9]{{0,8}})", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class BacklogQueue:
    """One backlog queue: whose it is, and its index."""

    primary: str
    index: int

    @property
    def name(self) -> QueueName:
        return QueueName(f"{self.primary}/{MARK}/{self.index}")


def backlog_queues(primary: str, count: int) -> list[BacklogQueue]:
    """The queues of a primary, index in [0, count) (P1)."""
    return [BacklogQueue(primary, index) for index in range(count)]


def parse_queue_name(name: str) -> BacklogQueue | None:
    """The backlog queue of that name, or None if it is no backlog queue's. `07` is no index: nobody writes one so."""
    found = _NAME.fullmatch(name)
    return BacklogQueue(found[1], int(found[2])) if found else None


def primary_label(host: str, pair: str, override: str | None = None) -> str:
    """What stands for the primary in its queues' names: the first label of its host, `contoso` of contoso.servicebus…

    An IP address or localhost has none to give, so the pair's name stands in. `override` always wins.
    """
    return override or first_label(host) or pair


def never_a_destination(path: EntityPath) -> str | None:
    """Why nothing may ever be forwarded there (D13), whatever the operator allows; None if something may."""
    parts = path.key.split("/")
    if not path.name.isprintable() or _NOT_IN_A_NAME & set(path.name) or not {"", ".", ".."}.isdisjoint(parts):
        return "no queue or topic can be called that"
    if parts[-2:-1] == [MARK]:
        return "it is a backlog queue: the message would go round in circles"
    if any(part.startswith("$") for part in parts):
        return "it is a part of an entity ($…), not a queue or topic"
    if "subscriptions" in parts[1:-1]:
        return "it is a subscription: only its topic takes messages"
    return None


def not_allowed(path: EntityPath, allow: PathPatterns) -> str | None:
    """Why a message may not be forwarded there, by nature or by the operator's patterns (D13); None if it may."""
    never = never_a_destination(path)
    if never is None and not allow.fit(path):
        return "the configuration does not allow it"
    return never
