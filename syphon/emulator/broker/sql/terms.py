"""Terms: what an expression is made of, each a function of a message's properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .values import calculate, compare, like_pattern

if TYPE_CHECKING:
    from ..filters import Properties


@dataclass(frozen=True)
class Value:
    """A part of the expression that has a value."""

    of: Callable[[Properties], object]
    exists: Callable[[Properties], bool] | None = None
    """Only a property can be asked if the message has it at all."""
    text: str | None = None
    """The value of a string constant, so that a senseless pattern is refused before there is a message."""


@dataclass(frozen=True)
class Condition:
    """A part of the expression that is true, false or unknown."""

    holds: Callable[[Properties], bool | None]


Term = Value | Condition


def constant(value: object) -> Value:
    return Value(lambda _: value, text=value if isinstance(value, str) else None)


def system_property(name: str) -> Value:
    return Value(
        lambda properties: properties.system(name),
        lambda properties: properties.system(name) is not None,
    )


def user_property(name: Value) -> Value:
    """The name is a value too: property() may compute it."""

    def of(properties: Properties) -> object:
        known = name.of(properties)
        return properties.user(known) if isinstance(known, str) else None

    def exists(properties: Properties) -> bool:
        known = name.of(properties)
        return isinstance(known, str) and properties.has_user(known)

    return Value(of, exists)


def calculation(first: Value, rest: Sequence[tuple[str, Value]]) -> Value:
    """Operators of one precedence, from left to right, in one term: a chain of hundreds needs no deep stack."""

    def of(properties: Properties) -> object:
        result = first.of(properties)
        for symbol, operand in rest:
            result = calculate(symbol, result, operand.of(properties))
        return result

    return Value(of)


def comparison(symbol: str, left: Value, right: Value) -> Condition:
    return Condition(lambda properties: compare(symbol, left.of(properties), right.of(properties)))


def one_of(left: Value, choices: Sequence[Value]) -> Condition:
    def holds(properties: Properties) -> bool | None:
        value = left.of(properties)
        return _any(compare("=", value, choice.of(properties)) for choice in choices)

    return Condition(holds)


def like(left: Value, pattern: Value, escape: Value | None) -> Condition:
    def holds(properties: Properties) -> bool | None:
        text, wanted = left.of(properties), pattern.of(properties)
        special = escape.of(properties) if escape else None
        if not isinstance(text, str) or not isinstance(wanted, str) or not isinstance(special, str | None):
            return None
        if escape and special is None:
            return None
        try:
            return like_pattern(wanted, special).matches(text)
        except ValueError:
            return None

    return Condition(holds)


def negation(condition: Condition) -> Condition:
    return Condition(lambda properties: _not(condition.holds(properties)))


def conjunction(conditions: Sequence[Condition]) -> Condition:
    return Condition(lambda properties: _not(_any(_not(each.holds(properties)) for each in conditions)))


def disjunction(conditions: Sequence[Condition]) -> Condition:
    return Condition(lambda properties: _any(each.holds(properties) for each in conditions))


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _any(answers: Iterable[bool | None]) -> bool | None:
    unknown = False
    for answer in answers:
        if answer:
            return True
        unknown = unknown or answer is None
    return None if unknown else False
