"""Answers one SQL query over the view of the backlog, and nothing else.

Spark SQL can do more than ask: it writes folders and tables, changes settings, reads any file by its path, shows the
environment, and calls shell commands and Java methods. So the query's plan is checked, as Spark has parsed it, and
again as Spark has analysed it: every node must be one that only computes rows, every relation must be the view, and no
function may reach outside. The text is not parsed here, and Spark replaces nothing in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from syphon.model import SyphonError, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW = "backlog"
COMPUTES_ROWS = frozenset(
    {
        *("Aggregate", "Deduplicate", "Distinct", "Except", "Expand", "Filter", "Generate", "GlobalLimit", "Intersect"),
        *("Join", "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project"),
        *("Range", "RepartitionByExpression", "ResolvedHint", "ResolvedInlineTable", "Sample", "Sort", "SubqueryAlias"),
        *("Union", "Unpivot", "Window", "WithWindowDefinition", "WithCTE", "CTERelationDef", "CTERelationRef"),
        *("UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable", "UnresolvedRelation", "UnresolvedWith"),
        *("UnresolvedSubqueryColumnAliases", "UnresolvedTableValuedFunction", "UnresolvedTVFAliases"),
        *("PipeOperator", "UnionLoop", "UnionLoopRef"),
    }
)
"""The nodes of a plan that a query may have. A node that a later Spark adds is refused until it is added here."""
REACHES_OUT = re.compile(
    r"CallMethodViaReflection|TryReflect|ScalaUDF|ScalaAggregator|(?:Python|Hive)\w+"
    r"|XmlToStructs|SchemaOfXml|(?:From|To|SchemaOf)(?:Avro|Protobuf)"
)
"""Expressions that call code which is not Spark's own, or have an option that names a file or an address."""
FUNCTIONS = frozenset(
    {
        *("java_method", "reflect", "try_reflect", "from_xml", "schema_of_xml"),
        *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf"),
    }
)
"""Their names. Spark computes some constants when it analyses a query: these must be found before."""
SUBSTITUTION = "spark.sql.variable.substitute"
"""Whether Spark replaces `${env:NAME}` and the like in a query."""


class BadQuery(SyphonError):
    """Spark or syphon refuses the query."""


def answer_query(spark: SparkSession, query: str) -> DataFrame:
    """The rows that a query on the view gives. Raises BadQuery; then nothing has been run, read or written."""
    session: Any = spark._jsparkSession
    with asking(), _as_it_is_written(spark):
        for node in _nodes(session.sessionState().sqlParser().parsePlan(query)):
            _check(node)
            for expression in _seq(node.expressions()):
                _check_function(expression)
            if _name(node) == "UnresolvedRelation" and node.multipartIdentifier().size() > 1:
                raise BadQuery(_refused(node.multipartIdentifier().mkString(".")))
        # Spark analyses a query here, and runs it when its rows are fetched. It would run a command at once.
        frame = spark.sql(query)
        for node in _nodes(frame._jdf.queryExecution().analyzed()):
            _check(node)
            for expression in _seq(node.expressions()):
                _check_expression(expression)
        return frame


def _nodes(plan: Any) -> Iterator[Any]:
    """All nodes of a plan, its subqueries included. What is behind the view is ours."""
    if _is_our_view(plan):
        return
    yield plan
    for part in (plan.children(), plan.innerChildren(), plan.subqueries()):
        for inner in _seq(part):
            yield from _nodes(inner)


def _check(node: Any) -> None:
    if _name(node) not in COMPUTES_ROWS:
        raise BadQuery(_refused(str(node.nodeName())))


def _check_function(expression: Any) -> None:
    """Checks an expression as it was parsed, when functions are still names."""
    if _name(expression) == "UnresolvedFunction" and str(expression.nameParts().last()).lower() in FUNCTIONS:
        raise BadQuery(_refused(str(expression.nameParts().last())))
    if "UnresolvedIdentifier" in _name(expression):  # a name that Spark has yet to compute
        raise BadQuery(_refused("identifier()"))
    for inner in _seq(expression.children()):
        _check_function(inner)


def _check_expression(expression: Any) -> None:
    if REACHES_OUT.fullmatch(_name(expression)):
        raise BadQuery(_refused(str(expression.prettyName())))
    for inner in _seq(expression.children()):
        _check_expression(inner)


def _refused(what: str) -> str:
    return f"{what} is not allowed here. Write one query that reads the view {VIEW} and nothing else"


def _is_our_view(node: Any) -> bool:
    return _name(node) == "View" and node.isTempView() and str(node.desc().identifier().table()).lower() == VIEW


def _name(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _seq(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.size())]


@contextmanager
def _as_it_is_written(spark: SparkSession) -> Iterator[None]:
    """Has Spark read a query without replacing anything in it."""
    before = str(spark.conf.get(SUBSTITUTION))
    spark.conf.set(SUBSTITUTION, "false")
    try:
        yield
    finally:
        spark.conf.set(SUBSTITUTION, before)


@contextmanager
def asking() -> Iterator[None]:
    """Raises an error of Spark in a query as BadQuery, in one line."""
    from pyspark.errors import PySparkException

    with suppress(ImportError):  # Spark 4 also prints its internals to stderr; Spark 3.5 has no such logger
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    try:
        yield
    except PySparkException as error:
        raise BadQuery(first_line(error)) from None
