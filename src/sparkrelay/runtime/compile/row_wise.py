"""What may not stand among row-wise steps, and what keeps a plan from being run twice as it is: asked of Catalyst."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from sparkrelay.runtime.compile.catalyst import Node, analyzed, nodes, pattern, scala_object
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame

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
    node = analyzed(plan)
    subquery = pattern("PLAN_EXPRESSION")
    # Few calls to the JVM; only a suspicion is worth a walk through the expressions.
    if not node.java.deterministic() or node.java.containsPattern(subquery):
        for expression in _expressions(node):
            if not expression.java.deterministic():
                return f"{expression.java.sql()} is not deterministic"
            if expression.java.containsPattern(subquery):
                return f"{expression.java.sql()} holds a subquery"
        return "something in it is not deterministic, or holds a subquery"
    return depends_on_time(node)


def depends_on_time(plan: Node) -> str | None:
    """Return what in an analysed plan is made of the time at which it is planned, or None."""
    now = pattern("CURRENT_LIKE")
    if plan.java.containsPattern(now):
        for expression in (one for one in _expressions(plan) if one.java.containsPattern(now)):
            if any(
                part.java.nodePatterns().contains(now) and part.kind not in _SETTINGS for part in expression.below()
            ):
                return f"{expression.java.sql()} depends on the time"
    # Functions such as to_timestamp() are casts in the end, which their own children do not show.
    replaced = scala_object("optimizer.ReplaceExpressions").apply(plan.java)
    cast = pattern("CAST")
    if replaced.containsPattern(cast):
        for expression in _expressions(plan if replaced.fastEquals(plan.java) else Node(replaced)):
            if any(_reads_now(part, now) for part in _holding(expression, cast)):
                return f"{expression.java.sql()} depends on the time"
    return None


def _reads_now(part: Node, now: Any) -> bool:
    """Return whether an expression reads a text such as ``'today'`` as a time, for which Spark puts a constant."""
    if part.kind != "Cast" or str(part.java.dataType().typeName()) not in _TIMES:
        return False
    text = part.java.child()
    if not str(text.dataType().typeName()).startswith("string") or not text.foldable() or text.containsPattern(now):
        return False
    try:
        value = text.eval(None)
    except Py4JError:
        return False  # that it cannot be computed is for Spark to say, with its own words
    return value is not None and _NOW_AS_TEXT.match(str(value)) is not None


def _holding(expression: Node, wanted: Any) -> Iterator[Node]:
    """Yield an expression and what is below it, as far as there is the pattern in it."""
    if expression.java.containsPattern(wanted):
        yield expression
        for child in expression.children:
            yield from _holding(child, wanted)


def _expressions(plan: Node) -> Iterator[Node]:
    return (one for node in plan.below() for one in node.expressions)


def drawn(plan: DataFrame) -> list[str]:
    """Return the expressions of ``plan`` that give another answer each time that they are asked, the last step's first.

    Not the current time: all legs of a job have the same one, which Spark looks up as it plans the job.
    """
    node = analyzed(plan)
    if node.java.deterministic():
        return []
    return [str(one.java.sql()) for one in _expressions(node) if not one.java.deterministic()]


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
    whole = analyzed(plan)
    for node in _nodes_of_stream(whole):
        if node.kind not in _ROW_WISE:
            return node.kind
    subquery = pattern("PLAN_EXPRESSION")
    if whole.java.deterministic() and not whole.java.containsPattern(subquery):
        return None
    for expression in (one for node in _nodes_of_stream(whole) for one in node.expressions):
        if expression.java.containsPattern(subquery):
            return "a subquery, which Spark makes a join of; write it as join(DataFrame, on)"
        for part in expression.below():
            if part.kind in _PLACED:
                return f"{str(part.java.prettyName()).lower()}()"
    return None


def _nodes_of_stream(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan but for joins with what is broadcast, and what is behind those: a DataFrame's own."""
    children = plan.children
    if plan.kind == "Join" and str(plan.java.joinType()) in _BY_THE_STREAM and _is_broadcast(children[1]):
        yield from _nodes_of_stream(children[0])
        return
    yield plan
    for child in children:
        yield from _nodes_of_stream(child)


def _is_broadcast(side: Node) -> bool:
    """Return whether a join's side is sent to wherever the other one's rows are, and is not of the stream itself."""
    if side.kind != "ResolvedHint":
        return False
    strategy = side.java.hints().strategy()
    if not strategy.isDefined() or strategy.get().displayName() != "broadcast":
        return False
    # Where the stream's rows come in; names take calls to the JVM, and a plan may be built in each micro-batch.
    begins = (node for node in side.below() if node.kind == "MapInArrow" or not node.children)
    return not any(name.startswith(hidden_columns.PREFIX) for node in begins for _, name in node.output)


#: Joins whose rows come from the left side alone.
_BY_THE_STREAM = frozenset({"Inner", "LeftOuter"})
#: Nodes that may make none, or several, of a row.
_NOT_ONE_TO_ONE = frozenset({"Expand", "Filter", "Generate", "Join", "MapInArrow", "MapInPandas"})


def may_drop_rows(before: DataFrame, after: DataFrame) -> str | None:
    """Return what ``after``, built on ``before``, has that may drop or repeat rows; or None."""
    counts = [Counter(node.kind for node in analyzed(frame).below()) for frame in (before, after)]
    return next(iter(sorted(_NOT_ONE_TO_ONE & (counts[1] - counts[0]).keys())), None)


def reads_hidden(plan: DataFrame, before: DataFrame) -> bool:
    """Return whether the row-wise steps between ``before`` and ``plan`` make something of hidden columns.

    Users do not name them, but a ``*`` inside of another expression, as in ``struct(*)``, takes them in, and so does
    what is done to all columns.
    """
    node, begin = analyzed(plan), analyzed(before)
    while node.kind in {"Project", "Filter", "Generate"} and not node.java.fastEquals(begin.java):
        names = dict(node.output)
        for one in node.expressions:
            if not _leaves_as_it_is(one, names) and any(
                attribute.name.startswith(hidden_columns.PREFIX) for attribute in one.references
            ):
                return True
        (node,) = node.children
    return False


def _leaves_as_it_is(expression: Node, names: Mapping[int, str]) -> bool:
    """Return whether an expression is a column as it is: renamed perhaps, or a hidden one with its nulls filled."""
    if expression.kind == "Alias":
        (computed,) = expression.children
        filled = computed.kind == "Coalesce" and names[expression.number].startswith(hidden_columns.PREFIX)
        return filled or computed.kind == "AttributeReference"
    return expression.kind == "AttributeReference"
