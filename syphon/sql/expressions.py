"""The parts of a parsed filter, each a function of the properties of a message."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from .language import Written
from .values import calculate, compare, like_pattern


class FilterableProperties(Protocol):
    """The properties of one message, as a filter reads them."""

    def system(self, name: str) -> object | None:
        """The value of a system property, by its name in lower case: `messageid`, `label` and so on."""

    def user(self, name: str) -> object | None:
        """The value of an application property, `None` if there is none or it is null."""

    def has_user(self, name: str) -> bool:
        """Whether there is an application property of that name, null or not."""


class FilterableMessage(FilterableProperties, Protocol):
    """A message with a body that a filter may read."""

    def body(self, names: Sequence[str]) -> object | None:
        """The value at a place in a JSON body; `None` if there is none."""


@dataclass(frozen=True)
class ValueExpression:
    """A part of the expression that has a value."""

    of: Callable[[FilterableProperties], object]
    exists: Callable[[FilterableProperties], bool] | None = None
    """Whether the message has the property. Only properties have this."""
    text: str | None = None
    """The value of a string constant, so that an invalid pattern is refused before the first message."""
    written: Written | None = None
    """How a text that it is compared with is read. Only some system properties have this."""


@dataclass(frozen=True)
class Condition:
    """A part of the expression that is true, false or unknown."""

    holds: Callable[[FilterableProperties], bool | None]


Expression = ValueExpression | Condition


def constant(value: object) -> ValueExpression:
    return ValueExpression(lambda _: value, text=value if isinstance(value, str) else None)


def system_property(name: str, written: Written | None = None) -> ValueExpression:
    return ValueExpression(
        lambda properties: properties.system(name),
        lambda properties: properties.system(name) is not None,
        written=written,
    )


def body_value(names: Sequence[str]) -> ValueExpression:
    """A value in the body. Only a language for messages with bodies has it."""

    def of(properties: FilterableProperties) -> object:
        return cast(FilterableMessage, properties).body(names)

    return ValueExpression(of, lambda properties: of(properties) is not None)


def user_property(name: ValueExpression) -> ValueExpression:
    """An application property. Its name is an expression too, because property() may compute it."""

    def of(properties: FilterableProperties) -> object:
        known = name.of(properties)
        return properties.user(known) if isinstance(known, str) else None

    def exists(properties: FilterableProperties) -> bool:
        known = name.of(properties)
        return isinstance(known, str) and properties.has_user(known)

    return ValueExpression(of, exists)


def calculation(first: ValueExpression, rest: Sequence[tuple[str, ValueExpression]]) -> ValueExpression:
    """Operators of one precedence from left to right, in one expression: a chain of hundreds needs no deep stack."""

    def of(properties: FilterableProperties) -> object:
        result = first.of(properties)
        for symbol, operand in rest:
            result = calculate(symbol, result, operand.of(properties))
        return result

    return ValueExpression(of)


def comparison(symbol: str, left: ValueExpression, right: ValueExpression) -> Condition:
    return Condition(lambda properties: compare(symbol, left.of(properties), right.of(properties)))


def one_of(left: ValueExpression, choices: Sequence[ValueExpression]) -> Condition:
    def holds(properties: FilterableProperties) -> bool | None:
        value = left.of(properties)
        return _any(compare("=", value, choice.of(properties)) for choice in choices)

    return Condition(holds)


def like(left: ValueExpression, pattern: ValueExpression, escape: ValueExpression | None) -> Condition:
    def holds(properties: FilterableProperties) -> bool | None:
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
