"""The SQL of subscription rules: text in, a condition that messages are held against out.

The language is the one of Microsoft's article "Subscription Rule SQL Filter Syntax". It is our own code because the
language is nobody else's: SQL libraries parse statements about tables, and JMS selectors have neither scopes (`sys.`,
`user.`) nor delimited names, parameters, EXISTS or property(). Nothing here recurses except parentheses, whose depth
is bounded, so that neither a hostile expression nor a hostile message can exhaust the stack or the processor.

`None` is SQL's unknown throughout: a missing property, a NULL, the outcome of comparing what cannot be compared.
"""

from .expressions import Condition
from .parser import parse
from .values import compare, kind_of

__all__ = ["Condition", "compare", "kind_of", "parse"]
