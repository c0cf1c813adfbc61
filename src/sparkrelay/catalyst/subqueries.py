"""Subqueries in expressions, made joins of by Catalyst's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.frames import alias, new_number, project, replaced, with_children
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, kind, nodes, nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkrelay.catalyst.tree import Expression, Plan

#: What only follows once the others have changed nothing more: a predicate's subquery may hold further ones.
_RULES: Final = ("RewritePredicateSubquery", "RewriteLateralSubquery", "RewriteCorrelatedScalarSubquery")


def subqueries(plan: Plan, wanted: Callable[[Plan], bool]) -> Iterator[Expression]:
    """Yield the expressions at a plan's nodes that hold a subquery with a wanted plan somewhere in it."""
    for node in plan.below():
        for expression in node.expressions:
            if any(wanted(one) or any(subqueries(one, wanted)) for part in expression.below() for one in part.plans):
                yield expression


def as_joins(java: Any) -> Any:
    """Return an analysed plan in the JVM in which predicates' and correlated subqueries are joins."""
    for name in _RULES:
        before = None
        while before is None or not java.fastEquals(before):
            before = java
            for rule in ("PullupCorrelatedPredicates", name):
                java = catalyst_object(f"optimizer.{rule}").apply(java)
    return java


def with_conditions(java: Any) -> Any:
    """Return a plan in the JVM whose joins have the conditions that stand above them: ``FROM a, b WHERE a.x = b.y``."""
    for rule in ("BooleanSimplification", "PushPredicateThroughJoin", "ReorderJoin", "PushPredicateThroughJoin"):
        java = catalyst_object(f"optimizer.{rule}").apply(java)
    return java


def scalars_as_joins(java: Any, wanted: Callable[[Any], bool]) -> Any:
    """Return a plan in the JVM in which the totals that expressions ask for are joined rows.

    ``x > (SELECT avg(x) FROM t)`` is a left join with a table of one row. Where it is not there, for want of rows, the
    total has the value that Spark gives it.

    Args:
        java: the plan.
        wanted: whether a subquery's plan has rows of the pipeline.
    """
    children = items(java.children())
    made = [scalars_as_joins(child, wanted) for child in children]
    if any(now is not child for now, child in zip(made, children, strict=True)):
        java = with_children(java, made)
    if kind(java) not in {"Filter", "Project"}:
        return java
    found = [
        node
        for one in items(java.expressions())
        for node in nodes(one)
        if kind(node) == "ScalarSubquery" and node.outerAttrs().isEmpty() and wanted(node.plan())
    ]
    known, child = [], java.child()
    for subquery in found:
        if any(subquery.semanticEquals(one) for one, _ in known) or (nothing_there := _default(subquery.plan())) is None:
            continue
        total = scalars_as_joins(subquery.plan(), wanted)
        value = alias(total.output().head(), "total", new_number())
        there = alias(catalyst_object("expressions.Literal").TrueLiteral(), "there", new_number())
        hint = catalyst_object("plans.logical.JoinHint").NONE()
        outer = catalyst_object("plans.LeftOuter")
        child = catalyst("plans.logical.Join", child, project([value, there], total), outer, nothing(), hint)
        column, is_there = (one.toAttribute().withNullability(True) for one in (value, there))
        known.append((subquery, catalyst("expressions.If", catalyst("expressions.IsNotNull", is_there), column, nothing_there)))
    if not known:
        return java
    if kind(java) == "Filter":
        return project(items(java.output()), catalyst("plans.logical.Filter", replaced(java.condition(), known), child))
    return project([replaced(one, known) for one in items(java.projectList())], child)


def _default(plan: Any) -> Any | None:
    """Return what a total of no rows is; None for a subquery that is no total."""
    if kind(plan) == "SubqueryAlias":
        return _default(plan.child())
    if kind(plan) != "Aggregate" or not plan.groupingExpressions().isEmpty():
        return None
    literal = catalyst_object("expressions.Literal")
    calls = [node for node in nodes(plan.aggregateExpressions().head()) if kind(node) == "AggregateExpression"]
    defaults = [
        default.get() if (default := call.aggregateFunction().defaultResult()).isDefined() else literal.create(None, call.dataType())
        for call in calls
    ]
    return replaced(plan.aggregateExpressions().head().child(), [*zip(calls, defaults, strict=True)])
