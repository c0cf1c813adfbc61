"""What we read out of Catalyst through py4j: what plans and expressions are made of, and which columns a plan wants.

Column expressions come from PySpark itself, so ``groupBy(F.window("ts", "10 minutes")).agg(F.sum(F.col("a") * 2))``
means what it means there: grouping keys and aggregate arguments become an ordinary projection before the stateful
step, and only the aggregate functions themselves are ours. Refused: column expressions of our own, because they would
never be quite those that users know.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, functions as F

from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = [
    "as_column",
    "items",
    "jvm",
    "kind",
    "lets_nothing_through",
    "may_drop_rows",
    "must_rebuild",
    "nodes",
    "not_row_wise",
    "projected_sql",
    "reads_hidden",
    "wanted_columns",
]


def as_column(column: Any) -> Column:
    """Return ``column`` as a Column; a string names one."""
    return column if isinstance(column, Column) else F.col(column)


def wanted_columns(plan: DataFrame, source: DataFrame) -> frozenset[str]:
    """Return the columns of ``source`` that ``plan``, built on it, really reads after optimisation."""
    leaf = source._jdf.queryExecution().analyzed()
    names = {attribute.exprId().id(): attribute.name() for attribute in items(leaf.output())}
    optimized = plan._jdf.queryExecution().optimizedPlan()
    read = {attribute.exprId().id() for node in nodes(optimized) for attribute in items(node.references().toSeq())}
    # The leaf's own output counts when nothing stands above it.
    top = {attribute.exprId().id() for attribute in items(optimized.output())}
    return frozenset(name for expression, name in names.items() if expression in read | top)


def projected_sql(projection: DataFrame) -> dict[str, str]:
    """Return each column of a projection as SQL: the same text in every run of the same pipeline.

    ``Column.toString`` would not do: it shows Python functions with the address of an object.
    """
    texts = {}
    for expression in items(projection._jdf.queryExecution().analyzed().expressions()):
        source = expression.child() if kind(expression) == "Alias" else expression
        texts[str(expression.name())] = str(source.sql())
    return texts


#: In the text of a function that reads the clock.
_TIME = ("current_time(", "current_timestamp", "current_date", "localtimestamp", "now(")


def must_rebuild(plan: DataFrame) -> str | None:
    """Return why ``plan`` may not be run twice as it is, or None.

    A plan that holds an exchange or a cached relation would show stale data when it is run again; one with the
    current time or anything nondeterministic would repeat its first answer.
    """
    analyzed = plan._jdf.queryExecution().analyzed()
    for node in nodes(plan._jdf.queryExecution().executedPlan()):
        name = node.nodeName()
        if "Exchange" in name or "InMemory" in name or "AdaptiveSparkPlan" in name:
            return f"the plan holds {name}"
    for node in nodes(analyzed):
        for expression in items(node.expressions()):
            if not expression.deterministic():
                return f"{expression.sql()} is not deterministic"
            text = expression.toString().lower()
            if any(word in text for word in _TIME):
                return f"{expression.sql()} depends on the time"
    return None


#: Nodes of a logical plan that look at more than one row at a time, or at another frame.
_MANY_ROWS = frozenset(
    {
        *("Aggregate", "Deduplicate", "Distinct", "Except", "GlobalLimit", "Intersect", "Join", "LocalLimit", "Offset"),
        *("Pivot", "Repartition", "RepartitionByExpression", "Sample", "Sort", "Tail", "Union", "Window"),
    }
)
_NODE_OF_LINE = re.compile(r"^[\s:+-]*(\w+)", re.MULTILINE)
#: Functions whose value depends on how Spark cuts the rows into partitions.
_PLACED = ("monotonically_increasing_id(", "spark_partition_id(", "input_file_name(", "session_window(")


def lets_nothing_through(plan: DataFrame) -> bool:
    """Return whether Spark has found that ``plan`` has no rows whatever comes in, as behind ``where(F.lit(False))``.

    It then runs none of the steps before that, in no partition.
    """
    optimized = plan._jdf.queryExecution().optimizedPlan()
    return any(kind(node) == "LocalRelation" and node.data().isEmpty() for node in nodes(optimized))


def not_row_wise(plan: DataFrame) -> str | None:
    """Return what in ``plan`` makes a row's result depend on the rows beside it, or None.

    A micro-batch holds whatever has arrived, so such a result would depend on how the stream happens to be cut.
    """
    analyzed = plan._jdf.queryExecution().analyzed()
    text = str(analyzed.toString())
    # The text costs one call to the JVM; only a suspicion is worth a walk through the nodes.
    if not _MANY_ROWS.isdisjoint(_NODE_OF_LINE.findall(text)):
        for node in _nodes_of_stream(analyzed):
            if node.nodeName() in _MANY_ROWS:
                return str(node.nodeName())
    return next((f"{name})" for name in _PLACED if name in text.lower()), None)


def _nodes_of_stream(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan but for joins with what is broadcast, and what is behind those: a DataFrame's own."""
    children = items(plan.children())
    if plan.nodeName() == "Join" and kind(children[1]) == "ResolvedHint" and str(plan.joinType()) in _BY_THE_STREAM:
        yield from _nodes_of_stream(children[0])
        return
    yield plan
    for child in children:
        yield from _nodes_of_stream(child)


#: Joins whose rows come from the left side alone.
_BY_THE_STREAM = frozenset({"Inner", "LeftOuter"})
#: Nodes that may make none, or several, of a row.
_NOT_ONE_TO_ONE = frozenset({"Expand", "Filter", "Generate", "MapInArrow", "MapInPandas"})


def may_drop_rows(before: DataFrame, after: DataFrame) -> str | None:
    """Return what ``after``, built on ``before``, has that may drop or repeat rows; or None."""
    counts = [
        Counter(str(node.nodeName()) for node in nodes(frame._jdf.queryExecution().analyzed()))
        for frame in (before, after)
    ]
    return next(iter(sorted(_NOT_ONE_TO_ONE & (counts[1] - counts[0]).keys())), None)


def reads_hidden(plan: DataFrame, before: DataFrame) -> bool:
    """Return whether the row-wise steps between ``before`` and ``plan`` make something of hidden columns.

    Users do not name them, but a ``*`` inside of another expression, as in ``struct(*)``, takes them in, and so does
    what is done to all columns.
    """
    node, begin = (frame._jdf.queryExecution().analyzed() for frame in (plan, before))
    while kind(node) in {"Project", "Filter", "Generate"} and not node.fastEquals(begin):
        for expression in items(node.expressions()):
            if not _leaves_as_it_is(expression) and any(
                str(attribute.name()).startswith(hidden_columns.PREFIX)
                for attribute in items(expression.references().toSeq())
            ):
                return True
        node = node.child()
    return False


def _leaves_as_it_is(expression: Any) -> bool:
    """Return whether an expression is a column as it is: renamed perhaps, or a hidden one with its nulls filled."""
    if kind(expression) == "Alias":
        filled = kind(expression.child()) == "Coalesce" and str(expression.name()).startswith(hidden_columns.PREFIX)
        return filled or kind(expression.child()) == "AttributeReference"
    return kind(expression) == "AttributeReference"


def nodes(plan: Any) -> Iterator[Any]:
    """Yield a plan or an expression and all that is below it."""
    yield plan
    for child in items(plan.children()):
        yield from nodes(child)


def items(sequence: Any) -> list[Any]:
    """Return what is in a sequence of the JVM's."""
    return [sequence.apply(i) for i in range(sequence.size())]


def kind(node: Any) -> str:
    """Return the name of an object's class."""
    return str(node.getClass().getSimpleName())


def jvm() -> Any:
    """Return py4j's view of the live session's JVM."""
    from pyspark import SparkContext  # noqa: PLC0415 - the live context's JVM, not an import-time one

    context = SparkContext._active_spark_context
    assert context is not None, "columns exist only while a SparkContext does"
    view: Any = context._jvm
    return view
