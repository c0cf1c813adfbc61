"""Plans of resident jobs: which of the user's steps they can contain, and how markers pass them.

A marker is a row that the user's steps must not see: a filter would drop it, an expression may fail on its nulls. So
the analyzed plan is rewritten between our steps: ``where(condition)`` becomes ``where(marker is not null or
condition)``, and every computed column becomes ``if(marker is not null, null, column)``. Catalyst evaluates only one
branch of ``if``.

Only projections and filters are rewritten. Everything else (Python functions, generators, sliding windows) buffers or
multiplies rows; such legs run a job for each micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from sparkrelay.runtime.compile.catalyst import analyzed, java, pattern, scala_object
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from sparkrelay.runtime.compile.catalyst import Node

_OURS: Final = frozenset({"MapInArrow"})
_ROW_WISE: Final = frozenset({"Filter", "Project"})
_SOURCES: Final = frozenset({"LogicalRDD", "Range"})
#: The JVM ends an Arrow batch at this size; a marker is longer.
ARROW_BYTES: Final = 64 << 10


def why_not_resident(plan: DataFrame) -> str | None:
    """Return why a leg's plan cannot run as a resident job, or None."""
    python = pattern("PYTHON_UDF")
    for node in analyzed(plan).below():
        name = node.kind
        if name in _SOURCES or name in _OURS:
            continue
        if name not in _ROW_WISE:
            return f"the plan holds {name}"
        for expression in node.expressions:
            if expression.java.containsPattern(python):
                function = next(part for part in expression.below() if "Python" in part.kind)
                return f"{function.java.name()}() is a Python function"
    return None


def resident_session(frame: DataFrame) -> Any:
    """Return a JVM session with the settings of the frame's session, and those that markers need."""
    session = frame.sparkSession._jsparkSession.cloneSession()
    session.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES))
    # Otherwise Spark merges legs of one partition each into one partition, where they run in sequence.
    session.conf().set("spark.sql.unionOutputPartitioning", "false")
    # Otherwise common subexpressions after an "or" are evaluated before it, on markers too.
    session.conf().set("spark.sql.subexpressionElimination.skipForShortcutExpr", "true")
    return session


def let_markers_through(rows: DataFrame, session: Any) -> DataFrame:
    """Return ``rows`` with markers passing the user's steps after our last one."""
    plan = _rewritten(analyzed(rows))
    return DataFrame(java("org.apache.spark.sql.classic.Dataset").ofRows(session, plan), rows.sparkSession)


def _rewritten(node: Node) -> Any:
    if node.kind not in _ROW_WISE:
        return node.java
    (below,) = node.children
    child = _rewritten(below)
    marker = [name for _, name in below.output].index(hidden_columns.MARKER)
    is_marker = _new("expressions.IsNotNull", child.output().apply(marker))
    if node.kind == "Filter":
        return _new("plans.logical.Filter", _new("expressions.Or", is_marker, node.java.condition()), child)
    columns = node.java.projectList()
    for index, (number, _) in enumerate(node.output):
        alias = node.aliases.get(number)
        if alias is not None and alias.children[0].kind != "AttributeReference":
            columns = columns.updated(index, _guarded(alias, is_marker))
    return _new("plans.logical.Project", columns, child)


def _guarded(alias: Node, is_marker: Any) -> Any:
    """Return a projection's column that is not computed for markers."""
    computed = alias.children[0].java
    literal = scala_object("expressions.Literal")
    value = literal.create(None, computed.dataType()) if computed.nullable() else literal.default(computed.dataType())
    children = java("java.util.Collections").singletonList(_new("expressions.If", is_marker, value, computed))
    return alias.java.withNewChildren(java("scala.jdk.javaapi.CollectionConverters").asScala(children).toIndexedSeq())


def _new(name: str, *fields: Any) -> Any:
    """Return a new node or expression, given its class below Catalyst's package."""
    return java(f"org.apache.spark.sql.catalyst.{name}")(*fields)
