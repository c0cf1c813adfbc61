"""What may not stand among row-wise steps, and what keeps a plan from being run twice as it is: asked of Catalyst."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from sparkrelay.runtime.compile.catalyst import items, kind, nodes, pattern, scala_object
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = [
    "depends_on_time",
    "differs_each_time",
    "drawn",
    "may_drop_rows",
    "must_rebuild",
    "not_row_wise",
    "reads_hidden",
]

#: What Catalyst marks as current_time() and its like, but which is no time and stays as it is.
_SETTINGS = frozenset({"CurrentCatalog", "CurrentDatabase", "CurrentPath", "CurrentTimeZone", "CurrentUser"})
#: Types that such texts are read as; a time of day without a date is one of the day on which it is read.
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
_NOW_AS_TEXT = re.compile(r"\s*(?:(?:now|today|tomorrow|yesterday)\b|T?\d{1,2}:)", re.IGNORECASE)


def must_rebuild(plan: DataFrame) -> str | None:
    """Return why ``plan`` may not be run twice as it is, or None.

    A plan that holds an exchange or a cached relation would show stale data when it is run again; one with the
    current time or anything nondeterministic would repeat its first answer.
    """
    for node in nodes(plan._jdf.queryExecution().executedPlan()):
        name = node.nodeName()
        if "Exchange" in name or "InMemory" in name or "AdaptiveSparkPlan" in name:
            return f"the plan holds {name}"
    return differs_each_time(plan)


def differs_each_time(plan: DataFrame) -> str | None:
    """Return what makes ``plan`` give another answer for the same rows each time that it is planned, or None."""
    analyzed = plan._jdf.queryExecution().analyzed()
    subquery = pattern("PLAN_EXPRESSION")
    # Few calls to the JVM; only a suspicion is worth a walk through the expressions.
    if not analyzed.deterministic() or analyzed.containsPattern(subquery):
        for expression in _expressions(analyzed):
            if not expression.deterministic():
                return f"{expression.sql()} is not deterministic"
            if expression.containsPattern(subquery):
                return f"{expression.sql()} holds a subquery"
    return depends_on_time(analyzed)


def depends_on_time(analyzed: Any) -> str | None:
    """Return what in an analysed plan is made of the time at which it is planned, or None."""
    now = pattern("CURRENT_LIKE")
    if analyzed.containsPattern(now):
        for expression in (one for one in _expressions(analyzed) if one.containsPattern(now)):
            if any(part.nodePatterns().contains(now) and kind(part) not in _SETTINGS for part in nodes(expression)):
                return f"{expression.sql()} depends on the time"
    # Functions such as to_timestamp() are casts in the end, which their own children do not show.
    replaced = scala_object("optimizer.ReplaceExpressions").apply(analyzed)
    cast = pattern("CAST")
    if replaced.containsPattern(cast):
        for expression in _expressions(replaced):
            if any(_reads_now(part, now) for part in _holding(expression, cast)):
                return f"{expression.sql()} depends on the time"
    return None


def _reads_now(part: Any, now: Any) -> bool:
    """Return whether an expression reads a text such as ``'today'`` as a time, for which Spark puts a constant."""
    if kind(part) != "Cast" or str(part.dataType().typeName()) not in _TIMES:
        return False
    text = part.child()
    if not str(text.dataType().typeName()).startswith("string") or not text.foldable() or text.containsPattern(now):
        return False
    try:
        value = text.eval(None)
    except Py4JError:
        return False  # that it cannot be computed is for Spark to say, with its own words
    return value is not None and _NOW_AS_TEXT.match(str(value)) is not None


def _holding(expression: Any, wanted: Any) -> Iterator[Any]:
    """Yield an expression and what is below it, as far as there is the pattern in it."""
    if expression.containsPattern(wanted):
        yield expression
        for child in items(expression.children()):
            yield from _holding(child, wanted)


def _expressions(analyzed: Any) -> Iterator[Any]:
    return (one for node in nodes(analyzed) for one in items(node.expressions()))


def drawn(plan: DataFrame) -> list[str]:
    """Return the expressions of ``plan`` that give another answer each time that they are asked, the last step's first.

    Not the current time: all legs of a job have the same one, which Spark looks up as it plans the job.
    """
    analyzed = plan._jdf.queryExecution().analyzed()
    if analyzed.deterministic():
        return []
    return [str(expression.sql()) for expression in _expressions(analyzed) if not expression.deterministic()]


#: Nodes of a logical plan that make what they make of each row by itself, and leave it where it is.
_ROW_WISE = frozenset(
    {
        *("Expand", "Filter", "Generate", "MapInArrow", "MapInPandas", "Project"),
        *(
            "CollectMetrics",
            "EventTimeWatermark",
            "SubqueryAlias",
            "View",
            "CTERelationDef",
            "CTERelationRef",
            "WithCTE",
        ),
        *("LogicalRDD", "Range"),
    }
)
#: Functions whose value depends on how Spark cuts the rows into partitions.
_PLACED = frozenset(
    {"InputFileBlockLength", "InputFileBlockStart", "InputFileName", "MonotonicallyIncreasingID", "SparkPartitionID"}
)


def not_row_wise(plan: DataFrame) -> str | None:
    """Return what in ``plan`` makes a row's result depend on the rows beside it, or moves rows; None: nothing does.

    A micro-batch holds whatever has arrived, so such a result would depend on how the stream happens to be cut. And
    the rows of a task have to stay in the Spark partition that works for it.
    """
    analyzed = plan._jdf.queryExecution().analyzed()
    for node in _nodes_of_stream(analyzed):
        if (name := kind(node)) not in _ROW_WISE:
            return name
    subquery = pattern("PLAN_EXPRESSION")
    if analyzed.deterministic() and not analyzed.containsPattern(subquery):
        return None
    for expression in (one for node in _nodes_of_stream(analyzed) for one in items(node.expressions())):
        if expression.containsPattern(subquery):
            return "a subquery, which Spark makes a join of; write it as join(DataFrame, on)"
        for part in nodes(expression):
            if kind(part) in _PLACED:
                return f"{str(part.prettyName()).lower()}()"
    return None


def _nodes_of_stream(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan but for joins with what is broadcast, and what is behind those: a DataFrame's own."""
    children = items(plan.children())
    if kind(plan) == "Join" and str(plan.joinType()) in _BY_THE_STREAM and _is_broadcast(children[1]):
        yield from _nodes_of_stream(children[0])
        return
    yield plan
    for child in children:
        yield from _nodes_of_stream(child)


def _is_broadcast(side: Any) -> bool:
    """Return whether a join's side is sent to wherever the other one's rows are, and is not of the stream itself."""
    if kind(side) != "ResolvedHint":
        return False
    strategy = side.hints().strategy()
    if not strategy.isDefined() or strategy.get().displayName() != "broadcast":
        return False
    # Where the stream's rows come in; each name takes a call to the JVM, and a plan may be built in each micro-batch.
    begins = (node for node in nodes(side) if kind(node) == "MapInArrow" or not items(node.children()))
    columns = (str(attribute.name()) for node in begins for attribute in items(node.output()))
    return not any(name.startswith(hidden_columns.PREFIX) for name in columns)


#: Joins whose rows come from the left side alone.
_BY_THE_STREAM = frozenset({"Inner", "LeftOuter"})
#: Nodes that may make none, or several, of a row.
_NOT_ONE_TO_ONE = frozenset({"Expand", "Filter", "Generate", "Join", "MapInArrow", "MapInPandas"})


def may_drop_rows(before: DataFrame, after: DataFrame) -> str | None:
    """Return what ``after``, built on ``before``, has that may drop or repeat rows; or None."""
    counts = [
        Counter(kind(node) for node in nodes(frame._jdf.queryExecution().analyzed())) for frame in (before, after)
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
