"""Subqueries in expressions, made joins of by Catalyst's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.jvm import catalyst_object

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
