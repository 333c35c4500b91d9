"""The SQL of Service Bus: parses a filter into a condition, and the action of a rule into statements. No I/O.

The emulator's rules and the `--where` of every command are this one language.

Microsoft's articles "Subscription Rule SQL Filter Syntax" and "Subscription Rule SQL Action Syntax" define the
language. It is our own code because no library has this language: SQL libraries parse statements about tables, and JMS
selectors have no scopes (`sys.`, `user.`), delimited names, parameters, EXISTS or property(). Only parentheses recurse,
and their depth is limited, so that a hostile expression or message cannot exhaust the stack or the processor.

`None` is SQL's unknown everywhere: a missing property, a NULL, the comparison of values that cannot be compared.
"""

from .expressions import Condition, FilterableProperties
from .parser import Statement, parse, parse_action
from .plain_values import of_section, plain, utc
from .values import BadExpression, compare, kind_of
from .where import Where

__all__ = [
    "BadExpression",
    "Condition",
    "FilterableProperties",
    "Statement",
    "Where",
    "compare",
    "kind_of",
    "of_section",
    "parse",
    "parse_action",
    "plain",
    "utc",
]
