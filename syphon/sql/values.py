"""Values of the language: comparison, arithmetic and LIKE patterns."""

from __future__ import annotations

import math
import operator
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any


class BadExpression(ValueError):
    """An expression that is not of the language. The text names the character."""


LONGEST_TEXT = 65_536
"""The size limit of all properties of a message together. A longer concatenation is unknown."""
LONGEST_PATTERN = 1024

_KINDS: Mapping[type, type] = {  # bool comes first because Python's bools are ints
    bool: bool,
    int: float,
    float: float,
    str: str,
    bytes: bytes,
    uuid.UUID: uuid.UUID,
    datetime: datetime,
    timedelta: timedelta,
}
EQUALITY: Mapping[str, Callable[[Any, Any], bool]] = {"=": operator.eq, "<>": operator.ne, "!=": operator.ne}
ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC: Mapping[str, Callable[[Any, Any], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": math.fmod,
}
_ORDERED_KINDS = frozenset({float, str, datetime, timedelta})
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""The AMQP integers, signed or not."""


def kind_of(value: object) -> type | None:
    """The type that a value is compared as: one for all numbers. `None` for values that filters cannot compare."""
    return next((kind for base, kind in _KINDS.items() if isinstance(value, base)), None)


def compare(symbol: str, left: object, right: object) -> bool | None:
    kind = kind_of(left)
    if kind is None or kind is not kind_of(right):
        return None
    if isinstance(left, datetime) and isinstance(right, datetime):
        left, right = _in_utc(left), _in_utc(right)
    if symbol in EQUALITY:
        return EQUALITY[symbol](left, right)
    return ORDER[symbol](left, right) if kind in _ORDERED_KINDS else None


def calculate(symbol: str, left: object, right: object) -> object:
    """Calculates as C# does, but overflow and division by zero, which throw in C#, give unknown."""
    if isinstance(left, str) and isinstance(right, str) and symbol == "+":
        return left + right if len(left) + len(right) <= LONGEST_TEXT else None
    if kind_of(left) is not float or kind_of(right) is not float:
        return None
    try:
        if isinstance(left, int) and isinstance(right, int):
            whole = _calculate_whole(symbol, left, right)
            return whole if _SMALLEST <= whole <= _LARGEST else None
        return _ARITHMETIC[symbol](left, right)
    except (ArithmeticError, ValueError):
        return None


def _calculate_whole(symbol: str, left: int, right: int) -> int:
    if symbol in "+-*":
        return int(_ARITHMETIC[symbol](left, right))
    # C# rounds towards zero and gives a remainder the sign of the dividend; Python rounds down.
    quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    return quotient if symbol == "/" else left - right * quotient


def _in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


@dataclass(frozen=True)
class LikePattern:
    """A LIKE pattern in two parts: up to its last `%`, and after it (None if the pattern has no `%`).

    Each part between two `%` matches at its first occurrence, in an atomic group. The matcher never goes back to try
    another place: if the first place does not lead to a match, no other does.
    """

    start: re.Pattern[str]
    end: re.Pattern[str] | None
    end_length: int

    def matches(self, text: str) -> bool:
        if self.end is None:
            return self.start.fullmatch(text) is not None
        started = self.start.match(text)
        if started is None:
            return False
        return self.end.fullmatch(text, max(started.end(), len(text) - self.end_length)) is not None


@lru_cache(maxsize=1024)
def like_pattern(pattern: str, escape: str | None) -> LikePattern:
    """Compiles a pattern. For an invalid one it raises ValueError, which says what was expected."""
    if escape is not None and len(escape) != 1:
        raise ValueError("an escape character of length 1")
    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(f"a pattern of at most {LONGEST_PATTERN} characters")
    parts: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise ValueError("a character after the escape character that ends the pattern")
            parts[-1].append(re.escape(literal))
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append("." if character == "_" else re.escape(character))
    head, *middle = ("".join(part) for part in parts)
    if not middle:
        return LikePattern(re.compile(head, re.DOTALL), None, 0)
    tail = middle.pop()
    start = head + "".join(f"(?>.*?{part})" for part in middle if part)
    return LikePattern(re.compile(start, re.DOTALL), re.compile(tail, re.DOTALL), len(parts[-1]))
