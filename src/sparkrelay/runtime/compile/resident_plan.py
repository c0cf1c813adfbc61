"""Plans of resident jobs: which of the user's steps can be in one, and how markers get through them.

A marker is a row that no step of the user's may see: a filter would drop it, an expression may fail on its nulls. So
the analysed plan is rewritten between our steps: ``where(condition)`` becomes ``where(marker is not null or
condition)``, and every computed column becomes ``if(marker is not null, null, column)``. Catalyst evaluates the
branches of ``if`` one at a time.

Only plans of projections and filters are rewritten. Everything else, Python functions, generators, sliding windows,
buffers or multiplies rows in a way of its own; such legs run a job for each micro-batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from sparkrelay.runtime.compile.catalyst import items, jvm, kind, nodes, pattern
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["let_markers_through", "resident_session", "why_not_resident"]

_OURS: Final = frozenset({"MapInArrow"})
_ROW_WISE: Final = frozenset({"Filter", "Project"})
_SOURCES: Final = frozenset({"LogicalRDD", "Range"})
#: The JVM ends an Arrow batch of rows here, and a marker is longer.
ARROW_BYTES: Final = 64 << 10


def why_not_resident(plan: DataFrame) -> str | None:
    """Return what keeps a leg's plan from running as a resident job, or None."""
    python = pattern("PYTHON_UDF")
    for node in nodes(plan._jdf.queryExecution().analyzed()):
        name = kind(node)
        if name in _SOURCES or name in _OURS:
            continue
        if name not in _ROW_WISE:
            return f"the plan holds {name}"
        for expression in items(node.expressions()):
            if expression.containsPattern(python):
                function = next(part for part in nodes(expression) if "Python" in kind(part))
                return f"{function.name()}() is a Python function"
    return None


def resident_session(frame: DataFrame) -> Any:
    """Return a session of the JVM's with the settings of the frame's own, and those that markers need."""
    session = frame.sparkSession._jsparkSession.cloneSession()
    session.conf().set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BYTES))
    # Or Spark takes legs of one partition each for one partition, in which they run one after the other.
    session.conf().set("spark.sql.unionOutputPartitioning", "false")
    # Or what stands twice behind an "or" would be evaluated before it, on markers too.
    session.conf().set("spark.sql.subexpressionElimination.skipForShortcutExpr", "true")
    return session


def let_markers_through(rows: DataFrame, session: Any) -> DataFrame:
    """Return ``rows`` with markers passing the steps between their last step of ours and their end."""
    plan = _rewritten(rows._jdf.queryExecution().analyzed())
    return DataFrame(jvm().org.apache.spark.sql.classic.Dataset.ofRows(session, plan), rows.sparkSession)


def _rewritten(node: Any) -> Any:
    name = kind(node)
    if name not in _ROW_WISE:
        return node
    child = _rewritten(node.child())
    catalyst = jvm().org.apache.spark.sql.catalyst
    marker = next(column for column in items(child.output()) if column.name() == hidden_columns.MARKER)
    is_marker = catalyst.expressions.IsNotNull(marker)
    if name == "Filter":
        return catalyst.plans.logical.Filter(catalyst.expressions.Or(is_marker, node.condition()), child)
    columns = [_guarded(column, is_marker) for column in items(node.projectList())]
    return catalyst.plans.logical.Project(_sequence(columns), child)


def _guarded(column: Any, is_marker: Any) -> Any:
    """Return a column of a projection that is not computed for markers."""
    if kind(column) != "Alias" or kind(column.child()) == "AttributeReference":
        return column
    expressions = jvm().org.apache.spark.sql.catalyst.expressions
    computed = column.child()
    literal = getattr(getattr(expressions, "Literal$"), "MODULE$")
    value = literal.create(None, computed.dataType()) if computed.nullable() else literal.default(computed.dataType())
    return column.withNewChildren(_sequence([expressions.If(is_marker, value, computed)]))


def _sequence(values: Sequence[Any]) -> Any:
    listed = jvm().java.util.ArrayList()
    for value in values:
        listed.add(value)
    return jvm().scala.jdk.javaapi.CollectionConverters.asScala(listed).toIndexedSeq()
