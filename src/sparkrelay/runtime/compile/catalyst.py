"""What we read out of Catalyst through py4j: what plans and expressions are made of, and which columns a plan wants.

Column expressions come from PySpark itself, so ``groupBy(F.window("ts", "10 minutes")).agg(F.sum(F.col("a") * 2))``
means what it means there: grouping keys and aggregate arguments become an ordinary projection before the stateful
step, and only the aggregate functions themselves are ours. Refused: column expressions of our own, because they would
never be quite those that users know.
"""

from __future__ import annotations

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
    "number_of",
    "pattern",
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
    names = {number_of(attribute): str(attribute.name()) for attribute in items(leaf.output())}
    optimized = plan._jdf.queryExecution().optimizedPlan()
    read = {number_of(attribute) for node in nodes(optimized) for attribute in items(node.references().toSeq())}
    # The leaf's own output counts when nothing stands above it.
    top = {number_of(attribute) for attribute in items(optimized.output())}
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


#: What Catalyst marks as current_time() and its like, but which stays as it is.
_NAMES_OF_NOW = frozenset({"CurrentCatalog", "CurrentDatabase", "CurrentUser"})


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
    now = pattern("CURRENT_LIKE")
    # Two calls to the JVM; only a suspicion is worth a walk through the expressions.
    if analyzed.deterministic() and not analyzed.containsPattern(now):
        return None
    for expression in (one for node in nodes(analyzed) for one in items(node.expressions())):
        if not expression.deterministic():
            return f"{expression.sql()} is not deterministic"
        if any(part.nodePatterns().contains(now) and kind(part) not in _NAMES_OF_NOW for part in nodes(expression)):
            return f"{expression.sql()} depends on the time"
    return None


#: Nodes of a logical plan that look at more than one row at a time, or at another frame.
_MANY_ROWS = frozenset(
    {
        *("Aggregate", "Deduplicate", "Distinct", "Except", "GlobalLimit", "Intersect", "Join", "LocalLimit", "Offset"),
        *("Pivot", "Repartition", "RepartitionByExpression", "Sample", "Sort", "Tail", "Union", "Window"),
    }
)
#: Functions whose value depends on how Spark cuts the rows into partitions.
_PLACED = frozenset(
    {"InputFileBlockLength", "InputFileBlockStart", "InputFileName", "MonotonicallyIncreasingID", "SparkPartitionID"}
)


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
    for node in _nodes_of_stream(analyzed):
        if (name := str(node.nodeName())) in _MANY_ROWS:
            return name
    if analyzed.deterministic():
        return None
    expressions = (one for node in nodes(analyzed) for one in items(node.expressions()))
    parts = (part for expression in expressions for part in nodes(expression))
    return next((f"{str(part.prettyName()).lower()}()" for part in parts if kind(part) in _PLACED), None)


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
    """Return the name of the class of a plan's node, or of an expression's."""
    return str(node.productPrefix())


def number_of(attribute: Any) -> int:
    """Return Catalyst's number of an attribute."""
    return int(attribute.exprId().id())


def pattern(name: str) -> Any:
    """Return one of Catalyst's tree patterns: every node knows which of them are below it."""
    patterns = getattr(getattr(jvm().org.apache.spark.sql.catalyst.trees, "TreePattern$"), "MODULE$")
    return getattr(patterns, name)()


def jvm() -> Any:
    """Return py4j's view of the live session's JVM."""
    from pyspark import SparkContext  # noqa: PLC0415 - the live context's JVM, not an import-time one

    context = SparkContext._active_spark_context
    assert context is not None, "columns exist only while a SparkContext does"
    view: Any = context._jvm
    return view
