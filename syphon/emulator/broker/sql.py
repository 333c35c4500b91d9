"""The SQL of subscription rules: text in, a condition that messages are held against out.

The language is the one of Microsoft's article "Subscription Rule SQL Filter Syntax". It is our own code because the
language is nobody else's: SQL libraries parse statements about tables, and JMS selectors have neither scopes (`sys.`,
`user.`) nor delimited names, parameters, EXISTS or property(). Nothing here recurses except parentheses, whose depth
is bounded, so that neither a hostile expression nor a hostile message can exhaust the stack or the processor.

`None` is SQL's unknown throughout: a missing property, a NULL, the outcome of comparing what cannot be compared.
"""

from __future__ import annotations

import math
import operator
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from .refusals import BadArgument

if TYPE_CHECKING:
    from .filters import Properties

LONGEST_EXPRESSION = 1024
LONGEST_TEXT = 65_536
"""As long as all properties of a message together may be: a concatenation beyond that is unknown."""
DEEPEST_NESTING = 32

SYSTEM_PROPERTIES: Mapping[str, str] = {
    **{
        name: name
        for name in (
            "messageid", "correlationid", "to", "replyto", "label", "sessionid", "replytosessionid", "contenttype",
            "timetolive", "enqueuedtimeutc", "sequencenumber", "deliverycount", "partitionkey",
            "scheduledenqueuetimeutc",
        )
    },
    "subject": "label",
}  # fmt: skip
"""What `sys.` may be followed by, and the name to ask a message for. Newer SDKs call the label a subject."""


# Values ---------------------------------------------------------------------------------------------------------------

_KINDS: Mapping[type, type] = {  # bool comes first because Python's bools are ints
    bool: bool, int: float, float: float, str: str, bytes: bytes, uuid.UUID: uuid.UUID, datetime: datetime,
    timedelta: timedelta,
}  # fmt: skip
_EQUALITY: Mapping[str, Callable[[Any, Any], bool]] = {"=": operator.eq, "<>": operator.ne, "!=": operator.ne}
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: Mapping[str, Callable[[Any, Any], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": math.fmod,
}  # fmt: skip
_ORDERED_KINDS = frozenset({float, str, datetime, timedelta})
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""The AMQP integers, signed or not."""


def kind_of(value: object) -> type | None:
    """The family a value is comparable within: all numbers are one. `None` for what filters know nothing about."""
    return next((kind for base, kind in _KINDS.items() if isinstance(value, base)), None)


def compare(symbol: str, left: object, right: object) -> bool | None:
    kind = kind_of(left)
    if kind is None or kind is not kind_of(right):
        return None
    if isinstance(left, datetime) and isinstance(right, datetime):
        left, right = _in_utc(left), _in_utc(right)
    if symbol in _EQUALITY:
        return _EQUALITY[symbol](left, right)
    return _ORDER[symbol](left, right) if kind in _ORDERED_KINDS else None


def calculate(symbol: str, left: object, right: object) -> object:
    """Arithmetic as C# does it, except that what would throw there (overflow, division by zero) is unknown here."""
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
    """A LIKE pattern as what stands before its last `%`, and what must end the text after it (no `%`: nothing must).

    The parts between two `%` are taken where they occur first, in atomic groups: a later failure never comes back to
    try another place, because if the first place does not do, no other does.
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
    """Raises ValueError, saying what was expected, for a pattern that means nothing."""
    if escape is not None and len(escape) != 1:
        raise ValueError("an escape character of length 1")
    if len(pattern) > LONGEST_EXPRESSION:
        raise ValueError(f"a pattern of at most {LONGEST_EXPRESSION} characters")
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


# Terms ----------------------------------------------------------------------------------------------------------------


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


# The text -------------------------------------------------------------------------------------------------------------

_KEYWORDS = frozenset({"AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE"})
_NAMES = ("word", "name")
_LITERALS: Mapping[str, bool | None] = {"TRUE": True, "FALSE": False, "NULL": None}
_UNFINISHED = {"'": "a closing '", '"': 'a name and a closing "', "[": "a name and a closing ]"}
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<word>[^\W\d_]\w*)
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<string>'(?:[^']|'')*+')
      | (?P<name>"(?:[^"]|"")++"|\[(?:[^\]]|\]\])++\])
      | (?P<parameter>@\w+)
      | (?P<symbol><>|!=|<=|>=|[=<>+\-*/%(),.])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    kind: str
    """`word`, `number`, `string`, `name` (delimited), `parameter`, `end`; a keyword or a symbol is a kind by itself."""
    text: str
    at: int

    def name(self) -> str:
        return self.text if self.kind == "word" else self.unquoted()

    def unquoted(self) -> str:
        closing = self.text[-1]
        return self.text[1:-1].replace(closing * 2, closing)


def tokens(expression: str) -> Iterator[Token]:
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            first = expression[at]
            refuse(at, _UNFINISHED.get(first, "a name, a value or an operator"), first)
        kind, text = str(found.lastgroup), found.group()
        if kind == "symbol" or (kind == "word" and text.upper() in _KEYWORDS):
            kind = text.upper()
        if kind != "space":
            yield Token(kind, text, at)
        at = found.end()
    yield Token("end", "", at)


def refuse(at: int, expected: str, found: str) -> NoReturn:
    shown = found if len(found) <= 40 else f"{found[:40]}…"
    raise BadArgument(
        f"The SQL filter expression is not valid at character {at + 1}: expected {expected}, "
        f"found {shown or 'the end of the expression'}."
    )


def parse(expression: str, parameters: Mapping[str, object], new_id: Callable[[], uuid.UUID] = uuid.uuid4) -> Condition:
    """The condition an expression states; `BadArgument` says where it states none."""
    if len(expression) > LONGEST_EXPRESSION:
        raise BadArgument(
            f"The SQL filter expression has {len(expression)} characters; expected at most {LONGEST_EXPRESSION}."
        )
    return _Parser(expression, parameters, new_id).whole()


class _Parser:
    """One method per level of precedence, loosest first. Parentheses may hold either kind of term, so each level
    passes on what it got and asks for a value or a condition only where it needs one."""

    def __init__(self, expression: str, parameters: Mapping[str, object], new_id: Callable[[], uuid.UUID]) -> None:
        self._tokens = list(tokens(expression))
        self._index = 0
        self._depth = 0
        self._parameters = {name.removeprefix("@").casefold(): value for name, value in parameters.items()}
        self._new_id = new_id

    def whole(self) -> Condition:
        condition = self._as_condition(self._alternatives())
        if self._here.kind != "end":
            self._refuse("AND, OR or the end of the expression")
        return condition

    def _alternatives(self) -> Term:
        return self._joined("OR", self._requirements, disjunction)

    def _requirements(self) -> Term:
        return self._joined("AND", self._denial, conjunction)

    def _joined(
        self, keyword: str, operand: Callable[[], Term], join: Callable[[Sequence[Condition]], Condition]
    ) -> Term:
        first = operand()
        if self._here.kind != keyword:
            return first
        conditions = [self._as_condition(first)]
        while self._accept(keyword):
            conditions.append(self._as_condition(operand()))
        return join(conditions)

    def _denial(self) -> Term:
        if self._here.kind != "NOT":
            return self._test()
        odd = False
        while self._accept("NOT"):
            odd = not odd
        condition = self._as_condition(self._test())
        return negation(condition) if odd else condition

    def _test(self) -> Term:
        start = self._here
        term = self._sum()
        if self._here.kind in _EQUALITY or self._here.kind in _ORDER:
            left = self._as_value(term, start)
            return comparison(self._next().kind, left, self._operand())
        if self._accept("IS"):
            return self._is_null(term, start)
        denied = self._accept("NOT")
        if self._accept("IN"):
            condition = self._in(self._as_value(term, start))
        elif self._accept("LIKE"):
            condition = self._like(self._as_value(term, start))
        elif denied:
            self._refuse("IN or LIKE after NOT")
        else:
            return term
        return negation(condition) if denied else condition

    def _is_null(self, term: Term, start: Token) -> Condition:
        if not isinstance(term, Value) or term.exists is None:
            self._refuse("a property before IS", start)
        denied = self._accept("NOT")
        self._expect("NULL", "NULL" if denied else "NULL or NOT NULL")
        return Condition(lambda properties: (term.of(properties) is None) is not denied)

    def _in(self, left: Value) -> Condition:
        self._open("( and the values to choose from")
        choices = [self._operand()]
        while self._accept(","):
            choices.append(self._operand())
        self._close("a comma or )")
        return one_of(left, choices)

    def _like(self, left: Value) -> Condition:
        start = self._here
        pattern = self._operand()
        escape = self._operand() if self._accept("ESCAPE") else None
        if pattern.text is not None and (escape is None or escape.text is not None):
            try:
                like_pattern(pattern.text, escape.text if escape else None)
            except ValueError as problem:
                self._refuse(str(problem), start)
        return like(left, pattern, escape)

    def _sum(self) -> Term:
        return self._calculation(("+", "-"), self._product)

    def _product(self) -> Term:
        return self._calculation(("*", "/", "%"), self._signed)

    def _calculation(self, symbols: Sequence[str], operand: Callable[[], Term]) -> Term:
        start = self._here
        term = operand()
        if self._here.kind not in symbols:
            return term
        first = self._as_value(term, start)
        rest: list[tuple[str, Value]] = []
        while self._here.kind in symbols:
            symbol, start = self._next().kind, self._here
            rest.append((symbol, self._as_value(operand(), start)))
        return calculation(first, rest)

    def _signed(self) -> Term:
        if self._here.kind not in ("+", "-"):
            return self._primary()
        factor = 1
        while self._here.kind in ("+", "-"):
            factor = -factor if self._next().kind == "-" else factor
        start = self._here
        return calculation(self._as_value(self._primary(), start), [("*", constant(factor))])

    def _primary(self) -> Term:
        token = self._here
        if token.kind == "(":
            self._open("(")
            term = self._alternatives()
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

    def _named(self) -> Value:
        """A property, or a function's result: both begin with a name."""
        token = self._next()
        if token.kind == "word" and self._here.kind == "(":
            return self._function(token)
        if token.kind == "word" and self._here.kind == ".":
            return self._scoped(token)
        return user_property(constant(token.name()))

    def _scoped(self, scope: Token) -> Value:
        if scope.text.lower() not in ("sys", "user"):
            self._refuse("sys or user before the dot", scope)
        self._next()
        if self._here.kind not in _NAMES:
            self._refuse("a property's name after the dot")
        token = self._next()
        if scope.text.lower() == "user":
            return user_property(constant(token.name()))
        if token.name().lower() not in SYSTEM_PROPERTIES:
            self._refuse("the name of a system property", token)
        return system_property(SYSTEM_PROPERTIES[token.name().lower()])

    def _function(self, token: Token) -> Value:
        name = token.text.lower()
        if name not in ("newid", "property", "p"):
            self._refuse("the function newid, property or p", token)
        self._open("(")
        result = Value(lambda _: self._new_id()) if name == "newid" else user_property(self._operand())
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
            self._refuse("a parameter the filter has a value for", token)
        value = self._parameters[name]
        if value is not None and kind_of(value) is None:
            self._refuse("a parameter whose value a filter can compare", token)
        return value

    def _operand(self) -> Value:
        start = self._here
        return self._as_value(self._sum(), start)

    def _as_value(self, term: Term, start: Token) -> Value:
        if isinstance(term, Condition):
            self._refuse("a value rather than a condition", start)
        return term

    def _as_condition(self, term: Term) -> Condition:
        if isinstance(term, Value):
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
        refuse(token.at, expected, token.text)
