"""The path of a queue or topic, patterns of such paths, and other names for them.

Service Bus ignores case, and `orders`, `/orders` and `orders/` are one entity. Text that names an entity becomes an
`EntityPath` where it comes in, so that no other place has to know this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class EntityPath:
    """A queue or topic. Two paths are equal if they name the same entity, however they are written."""

    name: str = field(compare=False)
    """As it was written, without slashes around it: for people, and for Service Bus."""
    key: str
    """The name in lower case, to look it up."""

    @staticmethod
    def of(text: str) -> EntityPath:
        """The path that a text means."""
        return _known(text)

    def __str__(self) -> str:
        return self.name


@lru_cache(maxsize=4096)
def _known(text: str) -> EntityPath:
    # Most messages name the same few destinations. The cache is bounded: messages may name anything.
    name = text.strip("/")
    return EntityPath(name, name.lower())


BACKLOG_MARK = "x-servicebus-transfer"
"""The part of a name that makes a queue a backlog queue."""
_NOT_IN_A_NAME = frozenset("@?#*\\%")
"""No entity has these characters in its name. Some of them, and dots, have a meaning in an address: `billing/../orders`
matches `billing/*`, and a server that resolves it is at `orders`."""


def never_a_destination(path: EntityPath) -> str | None:
    """Why a path can never be a destination (D13), whatever the operator allows; None if it can."""
    parts = path.key.split("/")
    if not path.name.isprintable() or _NOT_IN_A_NAME & set(path.name) or not {"", ".", ".."}.isdisjoint(parts):
        return "no queue or topic can be called that"
    if parts[-2:-1] == [BACKLOG_MARK]:
        return "it is a backlog queue: the message would come back to the backlog"
    if any(part.startswith("$") for part in parts):
        return "it is a part of an entity ($…), not a queue or topic"
    if "subscriptions" in parts[1:-1]:
        return "it is a subscription: only its topic accepts messages"
    return None


def dead_letter_owner(path: str) -> str | None:
    """The queue or subscription whose dead letters a path names; None if it names no dead-letter queue."""
    owner = re.fullmatch(r"(.+?)(?:/\$transfer)?/\$deadletterqueue", path, re.IGNORECASE)
    return None if owner is None else owner[1]


@dataclass(frozen=True, slots=True)
class PathPatterns:
    """Patterns, one of which must fit: `*` is any text, slashes included; `?` one character; `[ab]` one of these."""

    texts: tuple[str, ...] = ("*",)

    @staticmethod
    def of(texts: Iterable[str]) -> PathPatterns:
        return PathPatterns(tuple(EntityPath.of(text).name for text in texts))

    def fit(self, path: EntityPath) -> bool:
        return _expression(self.texts).fullmatch(path.key) is not None

    @property
    def fit_all(self) -> bool:
        """Whether every path fits, and also a message that names no destination."""
        return "*" in self.texts

    @property
    def java_regex(self) -> str:
        """The patterns as a regular expression of Java, to search for in a path's key."""
        return rf"(?s)^(?:{_alternatives(self.texts)})\z"


@dataclass(frozen=True, slots=True)
class Renames:
    """Where the operator sends the messages for some destinations instead: each text names an entity.

    It matches whole names and does not chain renames: the result of one is not renamed again.
    So no message can reach an entity by this that the operator has not written down.
    """

    texts: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(texts: Mapping[str, str]) -> Renames:
        return Renames(tuple(texts.items()))

    def actual(self, path: EntityPath) -> EntityPath:
        """The entity that messages for a path go to: the path itself unless it is renamed."""
        return _renamed(self.texts).get(path.key, path) if self.texts else path


@lru_cache(maxsize=256)
def _renamed(texts: tuple[tuple[str, str], ...]) -> dict[str, EntityPath]:
    return {EntityPath.of(name).key: EntityPath.of(actual) for name, actual in texts}


@lru_cache(maxsize=256)
def _expression(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(_alternatives(texts), re.DOTALL)


def _alternatives(texts: tuple[str, ...]) -> str:
    """One expression for all patterns, for Python and Java. Without patterns it matches nothing."""
    return "|".join(f"(?:{_translated(text)})" for text in texts) or "(?!)"


def _translated(pattern: str) -> str:
    # Python wraps the expression in a group with flags and ends it with \Z, which has another meaning in Java.
    found = translate(pattern.lower())
    return found.removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z")
