"""Subqueries as joins, by Catalyst's own rules.

Spark itself does so in its optimiser, which sees a plan only as it runs. A pipeline needs the joins before, where the
rows of its streams and tables are in a subquery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.jvm import catalyst_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.catalyst.tree import Expression, Plan

#: First the subqueries of predicates: the plan of one may hold others, which only then can be pulled up.
_REWRITES: Final = ("RewritePredicateSubquery", "RewriteLateralSubquery", "RewriteCorrelatedScalarSubquery")


def subqueries(plan: Plan) -> Iterator[Expression]:
    """Yield the subqueries in a plan; not those in their own plans."""
    for node in plan.below():
        for expression in node.expressions:
            yield from (one for one in expression.below() if one.plans)


def as_joins(java: Any) -> Any:
    """Return an analysed plan in the JVM with its correlated subqueries, ``IN`` and ``EXISTS`` as joins."""
    pull_up = catalyst_object("optimizer.PullupCorrelatedPredicates")
    for name in _REWRITES:
        rewrite = catalyst_object(f"optimizer.{name}")
        while True:
            made = rewrite.apply(pull_up.apply(java))
            if made.fastEquals(java):
                break
            java = made
    return java
