"""DataFrames of plans, and the leaves that stand for rows whose source is yet to come.

A leaf is an empty relation with the source's columns. A pipeline is written over it, and whatever was analysed there is
put over the real rows later: Catalyst's numbers of columns stay, so nothing above has to be analysed again. Which leaf
it is says an alias around it, since the numbers change where Spark copies a relation, as for a join with itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.classic.dataframe import DataFrame

from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, java, kind, nothing, pattern, scala_object, seq

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame as AnyFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkrelay.catalyst.tree import Plan

_PREFIX: Final = "sparkrelay_"
#: The alias of a leaf, or of a subquery without one, in Spark's messages.
_QUALIFIER: Final = re.compile(rf"`?(?:{_PREFIX}\d+|__auto_generated_subquery_name)`?\.")


def analyzed(frame: AnyFrame) -> Any:
    """Return the analysed plan of a DataFrame, in the JVM."""
    return frame._jdf.queryExecution().analyzed()


def frame_of(plan: Any, spark: SparkSession, session: Any = None) -> DataFrame:
    """Return a DataFrame of a plan in the JVM; ``session`` is the JVM's, where it is not that of ``spark``."""
    session = spark._jsparkSession if session is None else session
    return DataFrame(java("org.apache.spark.sql.classic.Dataset").ofRows(session, plan), spark)


def attributes(schema: StructType) -> Any:
    """Return new attributes of the JVM's for columns."""
    java_schema = java("org.apache.spark.sql.types.DataType").fromJson(schema.json())
    return catalyst_object("types.DataTypeUtils").toAttributes(java_schema)


def leaf_frame(output: Any, number: int, spark: SparkSession, *, streaming: bool) -> DataFrame:
    """Return the DataFrame of a new leaf.

    Args:
        output: its attributes, in the JVM.
        number: of the leaf.
        spark: the session.
        streaming: True for the rows of a stream. Those of a table are not: Spark refuses streams in subqueries.
    """
    nil = scala_object("scala.collection.immutable.Nil")
    relation = catalyst("plans.logical.LocalRelation", output, nil, streaming, nothing())
    named = catalyst_object("plans.logical.SubqueryAlias").apply(f"{_PREFIX}{number}", relation)
    return frame_of(named, spark)


def leaf_number(plan: Plan) -> int | None:
    """Return the number of the leaf that a node is; None for another node."""
    if plan.kind != "SubqueryAlias":
        return None
    name = str(plan.fields["identifier"]["name"])
    return int(name[len(_PREFIX) :]) if name.startswith(_PREFIX) and name[len(_PREFIX) :].isdigit() else None


def without_leaves(message: str) -> str:
    """Return one of Spark's messages without the aliases of leaves."""
    return _QUALIFIER.sub("", message)


def project(columns: Iterable[Any], child: Any) -> Any:
    """Return a plan of these columns of another one."""
    return catalyst("plans.logical.Project", seq(columns), child)


def alias(expression: Any, name: str, number: Any) -> Any:
    """Return an expression as a column with a number of Catalyst's (``ExprId``)."""
    nil = scala_object("scala.collection.immutable.Nil")
    return catalyst("expressions.Alias", expression, name, number, nil, nothing(), nil)


def as_attribute(expression: Any, attribute: Any) -> Any:
    """Return an expression as a column with an attribute's name, number and qualifier, such as ``a`` of ``a.x``."""
    nil = scala_object("scala.collection.immutable.Nil")
    fields = str(attribute.name()), attribute.exprId(), attribute.qualifier()
    return catalyst("expressions.Alias", expression, *fields, nothing(), nil)


def new_number() -> Any:
    """Return a new number of Catalyst's."""
    return catalyst_object("expressions.NamedExpression").newExprId()


def with_children(node: Any, children: Iterable[Any]) -> Any:
    """Return a node of a plan or an expression with other children."""
    return node.withNewChildren(seq(children))


def replaced(expression: Any, known: list[tuple[Any, Any]]) -> Any:
    """Return an expression in which others stand for some that are in it."""
    for whole, other in known:
        if expression.equals(whole) or expression.semanticEquals(whole):
            return other
    if kind(expression) == "Between":
        # Its arguments are beside its children, which are what it comes to.
        arguments = expression.input(), expression.lower(), expression.upper(), expression.replacement()
        return catalyst("expressions.Between", *(replaced(one, known) for one in arguments))
    if expression.nodePatterns().contains(pattern("RUNTIME_REPLACEABLE")):
        given = expression.replacement()
        made = replaced(given, known)
        return expression if made.equals(given) else made
    children = items(expression.children())
    return with_children(expression, [replaced(child, known) for child in children]) if children else expression
