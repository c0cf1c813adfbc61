"""Subqueries in expressions, made joins of by Catalyst's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.frames import alias, new_number, project, replaced, with_children
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, kind, nodes
from sparkrelay.catalyst.rewriting import joined, true

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
    for rule in ("BooleanSimplification", "PushDownPredicates", "ReorderJoin", "PushDownPredicates"):
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
    known: list[tuple[Any, Any]] = []
    child = java.child()
    for subquery in found:
        default = _default(subquery.plan())
        if default is None or any(subquery.semanticEquals(one) for one, _ in known):
            continue
        total = scalars_as_joins(subquery.plan(), wanted)
        value = alias(total.output().head(), "total", new_number())
        there = alias(true(), "there", new_number())
        child = joined(child, project([value, there], total), "LeftOuter")
        column, is_there = (one.toAttribute().withNullability(True) for one in (value, there))
        known.append(
            (subquery, catalyst("expressions.If", catalyst("expressions.IsNotNull", is_there), column, default))
        )
    if not known:
        return java
    if kind(java) == "Filter":
        return project(items(java.output()), catalyst("plans.logical.Filter", replaced(java.condition(), known), child))
    return project([replaced(one, known) for one in items(java.projectList())], child)


def _default(plan: Any) -> Any | None:
    """Return the value that a total has without rows; None if the subquery is not a total."""
    if kind(plan) == "SubqueryAlias":
        return _default(plan.child())
    if kind(plan) != "Aggregate" or not plan.groupingExpressions().isEmpty():
        return None
    total = plan.aggregateExpressions().head()
    defaults = []
    for call in (node for node in nodes(total) if kind(node) == "AggregateExpression"):
        default = call.aggregateFunction().defaultResult()
        null = catalyst_object("expressions.Literal").create(None, call.dataType())
        defaults.append((call, default.get() if default.isDefined() else null))
    return replaced(total.child(), defaults)
