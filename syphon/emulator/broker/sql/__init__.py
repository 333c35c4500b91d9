"""The SQL of subscription rules: parses an expression into a condition that is evaluated for each message.

Microsoft's article "Subscription Rule SQL Filter Syntax" defines the language. It is our own code because no library
has this language: SQL libraries parse statements about tables, and JMS selectors have no scopes (`sys.`, `user.`),
delimited names, parameters, EXISTS or property(). Only parentheses recurse, and their depth is limited, so that a
hostile expression or message cannot exhaust the stack or the processor.

`None` is SQL's unknown everywhere: a missing property, a NULL, the comparison of values that cannot be compared.
"""

from .expressions import Condition
from .parser import parse
from .values import compare, kind_of

__all__ = ["Condition", "compare", "kind_of", "parse"]
