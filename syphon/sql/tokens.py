"""The tokens of a filter or an action."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from .values import BadExpression

_KEYWORDS = frozenset({"AND", "OR", "NOT", "LIKE", "ESCAPE", "IN", "IS", "NULL", "EXISTS", "TRUE", "FALSE"})
_UNFINISHED = {"'": "a closing '", '"': 'a name and a closing "', "[": "a name and a closing ]"}
_TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<word>[^\W\d_]\w*)
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<string>'(?:[^']|'')*+')
      | (?P<name>"(?:[^"]|"")++"|\[(?:[^\]]|\]\])++\])
      | (?P<parameter>@\w+)
      | (?P<symbol><>|!=|<=|>=|[=<>+\-*/%(),.;])""",
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


def tokens(expression: str, what: str = "filter") -> Iterator[Token]:
    at = 0
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            first = expression[at]
            refuse(what, at, _UNFINISHED.get(first, "a name, a value or an operator"), first)
        kind, text = str(found.lastgroup), found.group()
        if kind == "symbol" or (kind == "word" and text.upper() in _KEYWORDS):
            kind = text.upper()
        if kind != "space":
            yield Token(kind, text, at)
        at = found.end()
    yield Token("end", "", at)


def refuse(what: str, at: int, expected: str, found: str) -> NoReturn:
    shown = found if len(found) <= 40 else f"{found[:40]}…"
    raise BadExpression(
        f"The SQL {what} expression is not valid at character {at + 1}: expected {expected}, "
        f"found {shown or 'the end of the expression'}."
    )
