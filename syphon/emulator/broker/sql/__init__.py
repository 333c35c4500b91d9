"""The SQL of subscription rules: parses a filter into a condition, and an action into statements that change a message.

Microsoft's articles "Subscription Rule SQL Filter Syntax" and "Subscription Rule SQL Action Syntax" define the
language. It is our own code because no library has this language: SQL libraries parse statements about tables, and JMS
selectors have no scopes (`sys.`, `user.`), delimited names, parameters, EXISTS or property(). Only parentheses recurse,
and their depth is limited, so that a hostile expression or message cannot exhaust the stack or the processor.

`None` is SQL's unknown everywhere: a missing property, a NULL, the comparison of values that cannot be compared.
"""

from .expressions import Condition
from .parser import Statement, parse, parse_action
from .values import compare, kind_of

__all__ = ["Condition", "Statement", "compare", "kind_of", "parse", "parse_action"]
