"""The path of a queue or topic, and patterns of such paths.

Service Bus ignores case, and `orders`, `/orders` and `orders/` are one entity. Text that names an entity becomes an
`EntityPath` where it comes in, so that no other place has to know this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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
    # Messages name the same few destinations again and again. The cache is bounded: messages may name anything.
    name = text.strip("/")
    return EntityPath(name, name.lower())


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
