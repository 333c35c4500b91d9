"""The parser: turns tokens of a filter or an action into expressions. It refuses other input and names the position.

An action is a list of statements, `SET property = expression` and `REMOVE property`, as in Microsoft's article
"Subscription Rule SQL Action Syntax". A semicolon or a comma may follow a statement.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from .expressions import (
    Condition,
    Expression,
    ValueExpression,
    body_value,
    calculation,
    comparison,
    conjunction,
    constant,
    disjunction,
    like,
    negation,
    one_of,
    system_property,
    user_property,
)
from .language import RULES, Language
from .tokens import Token, refuse, tokens
from .values import EQUALITY, ORDER, BadExpression, kind_of, like_pattern

LONGEST_EXPRESSION = 1024
MOST_STATEMENTS = 32
DEEPEST_NESTING = 32

_NAMES = ("word", "name")
_LITERALS: Mapping[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}


def parse(
    expression: str,
    parameters: Mapping[str, object],
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    language: Language = RULES,
) -> Condition:
    """Parses an expression into its condition. `BadExpression` names the position of an error."""
    return _Parser("filter", expression, parameters, new_id, language).whole()


@dataclass(frozen=True)
class Statement:
    """One step of an action: it sets a property of the message, or removes it if there is no value."""

    system: bool
    name: str
    """As it is spelled. A system property has its name in lower case."""
    value: ValueExpression | None


def parse_action(
    expression: str,
    parameters: Mapping[str, object],
    settable: Collection[str],
    new_id: Callable[[], uuid.UUID] = uuid.uuid4,
) -> list[Statement]:
    """Parses an action into its statements. They may change only system properties that are `settable`."""
    return _Parser("action", expression, parameters, new_id, RULES).statements(settable)


class _Parser:
    """One method per level of precedence, loosest first. Parentheses may hold a value or a condition, so each level
    returns what it read and requires a value or a condition only where it needs one."""

    def __init__(
        self,
        what: str,
        expression: str,
        parameters: Mapping[str, object],
        new_id: Callable[[], uuid.UUID],
        language: Language,
    ) -> None:
        if len(expression) > LONGEST_EXPRESSION:
            raise BadExpression(
                f"The SQL {what} expression has {len(expression)} characters; expected at most {LONGEST_EXPRESSION}."
            )
        self._what = what
        self._tokens = list(tokens(expression, what))
        self._index = 0
        self._depth = 0
        self._parameters = {name.removeprefix("@").casefold(): value for name, value in parameters.items()}
        self._new_id = new_id
        self._language = language

    def whole(self) -> Condition:
        condition = self._as_condition(self._disjunction())
        if self._here.kind != "end":
            self._refuse("AND, OR or the end of the expression")
        return condition

    def statements(self, settable: Collection[str]) -> list[Statement]:
        found = [self._statement(settable)]
        while self._here.kind != "end":
            if len(found) == MOST_STATEMENTS:
                self._refuse(f"at most {MOST_STATEMENTS} statements")
            found.append(self._statement(settable))
        return found

    def _statement(self, settable: Collection[str]) -> Statement:
        verb = self._next()
        word = verb.text.upper() if verb.kind == "word" else ""
        if word not in ("SET", "REMOVE"):
            self._refuse("SET or REMOVE", verb)
        system, name = self._changed_property(settable)
        value = None
        if word == "SET":
            self._expect("=", "= and a value")
            value = self._operand()
        if self._here.kind in (";", ","):
            self._next()
        return Statement(system, name, value)

    def _changed_property(self, settable: Collection[str]) -> tuple[bool, str]:
        if self._here.kind not in _NAMES:
            self._refuse("a property")
        token = self._next()
        if token.kind != "word" or self._here.kind != ".":
            return False, token.name()
        system, token = self._scoped_name(token)
        if not system:
            return False, token.name()
        name = self._language.system[token.name().lower()]
        if name not in settable:
            self._refuse(f"a system property that an action can change ({', '.join(settable)})", token)
        return True, name

    def _disjunction(self) -> Expression:
        return self._joined("OR", self._conjunction, disjunction)

    def _conjunction(self) -> Expression:
        return self._joined("AND", self._negation, conjunction)

    def _joined(
        self, keyword: str, operand: Callable[[], Expression], join: Callable[[Sequence[Condition]], Condition]
    ) -> Expression:
        first = operand()
        if self._here.kind != keyword:
            return first
        conditions = [self._as_condition(first)]
        while self._accept(keyword):
            conditions.append(self._as_condition(operand()))
        return join(conditions)

    def _negation(self) -> Expression:
        if self._here.kind != "NOT":
            return self._test()
        odd = False
        while self._accept("NOT"):
            odd = not odd
        condition = self._as_condition(self._test())
        return negation(condition) if odd else condition

    def _test(self) -> Expression:
        start = self._here
        term = self._sum()
        if self._here.kind in EQUALITY or self._here.kind in ORDER:
            left, symbol, after = self._as_value(term, start), self._next().kind, self._here
            right = self._operand()
            return comparison(symbol, self._as_kind_of(right, left, start), self._as_kind_of(left, right, after))
        if self._accept("IS"):
            return self._is_null(term, start)
        negated = self._accept("NOT")
        if self._accept("IN"):
            condition = self._in(self._as_value(term, start))
        elif self._accept("LIKE"):
            condition = self._like(self._as_value(term, start))
        elif negated:
            self._refuse("IN or LIKE after NOT")
        else:
            return term
        return negation(condition) if negated else condition

    def _is_null(self, term: Expression, start: Token) -> Condition:
        if not isinstance(term, ValueExpression) or term.exists is None:
            self._refuse("a property before IS", start)
        negated = self._accept("NOT")
        self._expect("NULL", "NULL" if negated else "NULL or NOT NULL")
        return Condition(lambda properties: (term.of(properties) is None) is not negated)

    def _in(self, left: ValueExpression) -> Condition:
        self._open("( and the values to choose from")
        choices = [self._choice(left)]
        while self._accept(","):
            choices.append(self._choice(left))
        self._close("a comma or )")
        return one_of(left, choices)

    def _choice(self, left: ValueExpression) -> ValueExpression:
        start = self._here
        return self._as_kind_of(left, self._operand(), start)

    def _as_kind_of(self, left: ValueExpression, right: ValueExpression, start: Token) -> ValueExpression:
        """A text that is compared with a time or a duration is read as one, where the language says so."""
        if left.written is None or right.text is None:
            return right
        try:
            return constant(left.written.read(right.text))
        except (ValueError, OverflowError):
            self._refuse(left.written.expected, start)

    def _like(self, left: ValueExpression) -> Condition:
        start = self._here
        pattern = self._operand()
        escape = self._operand() if self._accept("ESCAPE") else None
        if pattern.text is not None and (escape is None or escape.text is not None):
            try:
                like_pattern(pattern.text, escape.text if escape else None)
            except ValueError as problem:
                self._refuse(str(problem), start)
        return like(left, pattern, escape)

    def _sum(self) -> Expression:
        return self._calculation(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._calculation(("*", "/", "%"), self._signed)

    def _calculation(self, symbols: Sequence[str], operand: Callable[[], Expression]) -> Expression:
        start = self._here
        term = operand()
        if self._here.kind not in symbols:
            return term
        first = self._as_value(term, start)
        rest: list[tuple[str, ValueExpression]] = []
        while self._here.kind in symbols:
            symbol, start = self._next().kind, self._here
            rest.append((symbol, self._as_value(operand(), start)))
        return calculation(first, rest)

    def _signed(self) -> Expression:
        if self._here.kind not in ("+", "-"):
            return self._primary()
        factor = 1
        while self._here.kind in ("+", "-"):
            factor = -factor if self._next().kind == "-" else factor
        start = self._here
        return calculation(self._as_value(self._primary(), start), [("*", constant(factor))])

    def _primary(self) -> Expression:
        token = self._here
        if token.kind == "(":
            self._open("(")
            term = self._disjunction()
            self._close("AND, OR, an operator or )")
            return term
        if self._accept("EXISTS"):
            return self._exists()
        if token.kind in _NAMES:
            return self._named()
        return constant(self._constant())

    def _exists(self) -> Condition:
        self._open("( and a property")
        start = self._here
        subject = self._named() if start.kind in _NAMES else None
        if subject is None or subject.exists is None:
            self._refuse("a property", start)
        self._close(")")
        return Condition(subject.exists)

    def _named(self) -> ValueExpression:
        """A property or the result of a function: both begin with a name."""
        token = self._next()
        if token.kind == "word" and self._here.kind == "(":
            return self._function(token)
        if token.kind == "word" and self._here.kind == ".":
            return self._scoped(token)
        return user_property(constant(token.name()))

    def _scoped(self, scope: Token) -> ValueExpression:
        if self._language.has_body and scope.text.lower() == "body":
            return self._body()
        system, token = self._scoped_name(scope)
        if system:
            name = self._language.system[token.name().lower()]
            return system_property(name, self._language.written.get(name))
        return user_property(constant(token.name()))

    def _body(self) -> ValueExpression:
        names = []
        while self._accept("."):
            if self._here.kind not in _NAMES:
                self._refuse("a name in the body after the dot")
            names.append(self._next().name())
        return body_value(names)

    def _scoped_name(self, scope: Token) -> tuple[bool, Token]:
        """Whether the scope before the dot is `sys`, and the name after it."""
        if scope.text.lower() not in ("sys", "user"):
            self._refuse(self._language.scopes + " before the dot", scope)
        self._next()
        if self._here.kind not in _NAMES:
            self._refuse("a property's name after the dot")
        token = self._next()
        system = scope.text.lower() == "sys"
        if system and token.name().lower() not in self._language.system:
            self._refuse("the name of a system property", token)
        return system, token

    def _function(self, token: Token) -> ValueExpression:
        name = token.text.lower()
        if name not in ("newid", "property", "p"):
            self._refuse("the function newid, property or p", token)
        self._open("(")
        result = ValueExpression(lambda _: self._new_id()) if name == "newid" else user_property(self._operand())
        self._close(")")
        return result

    def _constant(self) -> object:
        token = self._next()
        if token.kind in _LITERALS:
            return _LITERALS[token.kind]
        if token.kind == "string":
            return token.unquoted()
        if token.kind == "number":
            return self._number(token)
        if token.kind != "parameter":
            self._refuse("a property, a value or (", token)
        return self._parameter(token)

    def _number(self, token: Token) -> float:
        number = int(token.text) if token.text.isdigit() else float(token.text)
        if number == math.inf or (isinstance(number, int) and number >= 2**63):
            self._refuse("a number within the range of a 64-bit integer or a double", token)
        return number

    def _parameter(self, token: Token) -> object:
        name = token.text.removeprefix("@").casefold()
        if name not in self._parameters:
            self._refuse(f"a parameter the {self._what} has a value for", token)
        value = self._parameters[name]
        if value is not None and kind_of(value) is None:
            self._refuse("a parameter whose value a filter can compare", token)
        return value

    def _operand(self) -> ValueExpression:
        start = self._here
        return self._as_value(self._sum(), start)

    def _as_value(self, term: Expression, start: Token) -> ValueExpression:
        if isinstance(term, Condition):
            self._refuse("a value rather than a condition", start)
        return term

    def _as_condition(self, term: Expression) -> Condition:
        if isinstance(term, ValueExpression):
            self._refuse("a comparison, IN, LIKE or IS after a value")
        return term

    @property
    def _here(self) -> Token:
        return self._tokens[self._index]

    def _next(self) -> Token:
        token = self._here
        self._index += 1
        return token

    def _accept(self, kind: str) -> bool:
        if self._here.kind != kind:
            return False
        self._index += 1
        return True

    def _expect(self, kind: str, expected: str) -> None:
        if not self._accept(kind):
            self._refuse(expected)

    def _open(self, expected: str) -> None:
        if self._depth == DEEPEST_NESTING:
            self._refuse(f"at most {DEEPEST_NESTING} parentheses within each other")
        self._expect("(", expected)
        self._depth += 1

    def _close(self, expected: str) -> None:
        self._expect(")", expected)
        self._depth -= 1

    def _refuse(self, expected: str, token: Token | None = None) -> NoReturn:
        token = token or self._here
        refuse(self._what, token.at, expected, token.text)
