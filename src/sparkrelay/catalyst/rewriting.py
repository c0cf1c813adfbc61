"""Nodes of plans, written as others: what Catalyst leaves to executors becomes joins and groupings of tables.

Each function returns a plan in the JVM that has the same rows, and the same columns by number.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.catalyst.frames import alias, as_attribute, new_number, project, replaced
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, java, kind, nothing, seq

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: The only value of the key of an aggregation of all rows.
ALL: Final = "all"


class Keyed(NamedTuple):
    """Rows of a table.

    Attributes:
        plan: in the JVM.
        key: the columns of the plan that are the table's key.
    """

    plan: Any
    key: list[Any]


def totals(aggregate: Any) -> Any:
    """Return an aggregation of all rows as one by a column with the same value in each row."""
    below, by = _with_one(aggregate.child())
    return catalyst("plans.logical.Aggregate", seq([by]), aggregate.aggregateExpressions(), below, nothing())


def _with_one(plan: Any) -> tuple[Any, Any]:
    """Return rows with a column that is the same in each of them, and that column."""
    one = _one()
    return project([one, *items(plan.output())], plan), one.toAttribute()


def _one() -> Any:
    return alias(true(), ALL, new_number())


def first_rows(limit: int, sort: Any) -> Any:
    """Return the first rows of a sorted table as those whose row number is at most the limit."""
    child = sort.child()
    output = items(child.output())
    one, ordered, orders = _one(), [], []
    for place, order in enumerate(items(sort.order())):
        by = alias(order.child(), f"order_{place}", new_number())
        ordered.append(by)
        orders.append(order.withNewChildren(seq([by.toAttribute()])))
    below = project([*output, one, *ordered], child)
    number = alias(_over(catalyst("expressions.RowNumber"), [one.toAttribute()], orders), "row", new_number())
    window = catalyst("plans.logical.Window", seq([number]), seq([one.toAttribute()]), seq(orders), below, nothing())
    most = catalyst_object("expressions.Literal").apply(limit)
    few = catalyst("expressions.LessThanOrEqual", number.toAttribute(), most)
    return project(output, catalyst("plans.logical.Filter", few, window))


def _over(function: Any, partition: Sequence[Any], orders: Sequence[Any]) -> Any:
    frame = function.frame()
    specification = catalyst("expressions.WindowSpecDefinition", seq(partition), seq(orders), frame)
    return catalyst("expressions.WindowExpression", function, specification)


def distinct_rows(plan: Any) -> Any:
    """Return the distinct rows of a table as its groups."""
    output = by = plan.output()
    if len(items(output)) == 1:
        # A null alone is no key of a message.
        plan, _ = _with_one(plan)
        by = plan.output()
    return catalyst("plans.logical.Aggregate", by, output, plan, nothing())


def as_join(of_sets: Any) -> Any:
    """Return ``INTERSECT`` or ``EXCEPT`` as the distinct rows of a semi or anti join."""
    for rule in ("ReplaceIntersectWithSemiJoin", "ReplaceExceptWithAntiJoin"):
        of_sets = catalyst_object(f"optimizer.{rule}").apply(of_sets)
    return of_sets


def all_rows(output: Sequence[Any], left: Keyed, right: Keyed) -> Any:
    """Return the rows of two tables as a full join in which no row has a partner.

    Rows are spread over the tasks by their keys.

    Args:
        output: attributes of the result.
        left: the one table; its first columns are those of the result.
        right: the other one.
    """
    (one, is_left, *hashed), (other, *flags) = (_with_side(left, is_left=True), _with_side(right, is_left=False))
    equal = (catalyst("expressions.EqualTo", *both) for both in zip((is_left, *hashed), flags, strict=True))
    both = joined(one, other, "FullOuter", all_of(equal))
    there = catalyst("expressions.IsNotNull", is_left.withNullability(True))
    shown = zip(output, items(one.output()), items(other.output()), strict=False)
    return project(
        (as_attribute(catalyst("expressions.If", there, mine, theirs), by) for by, mine, theirs in shown), both
    )


def _with_side(rows: Keyed, *, is_left: bool) -> tuple[Any, Any, Any]:
    """Return rows with new numbers, with a flag of their side and a hash of their key; and these two columns."""
    plan, key, _ = _copied(rows)
    side = alias(catalyst_object("expressions.Literal").apply(is_left), "is_left", new_number())
    hashed = alias(catalyst("expressions.XxHash64", seq(key)), "spread", new_number())
    return project([*items(plan.output()), side, hashed], plan), side.toAttribute(), hashed.toAttribute()


def by_pairs(join: Any, left: Keyed, right: Keyed) -> Any:
    """Return a join with a condition on both sides as one with the pairs that meet the condition.

    A condition can remove a pair from an inner join alone: in others a row without a pair counts, too. So the pairs are
    an inner join, and each row is joined with its pairs by its own key.

    Args:
        join: an outer, semi, anti or existence join.
        left: its left rows.
        right: its right rows.
    """
    how, condition, output = kind(join.joinType()), join.condition().get(), items(join.output())
    if how in {"LeftSemi", "LeftAnti", "ExistenceJoin"}:
        copy, keys, numbers = _copied(left)
        pairs = joined(copy, right.plan, "Inner", replaced(condition, numbers))
        partners = catalyst("plans.logical.Aggregate", seq(keys), seq(keys), pairs, nothing())
        found = _join(left.plan, partners, join.joinType(), equal_keys(left.key, keys))
    elif how == "LeftOuter":
        copy, keys, numbers = _copied(left)
        pairs = joined(copy, right.plan, "Inner", replaced(condition, numbers))
        pairs = project([*keys, *items(right.plan.output())], pairs)
        found = joined(left.plan, pairs, "LeftOuter", equal_keys(left.key, keys))
    elif how == "RightOuter":
        copy, keys, numbers = _copied(right)
        pairs = joined(left.plan, copy, "Inner", replaced(condition, numbers))
        pairs = project([*keys, *items(left.plan.output())], pairs)
        found = joined(pairs, right.plan, "RightOuter", equal_keys(right.key, keys))
    else:
        (copy, keys, numbers), (other, others, more) = _copied(left), _copied(right)
        pairs = joined(copy, other, "Inner", replaced(condition, numbers + more))
        matched = alias(true(), "matched", new_number())
        pairs = project([*keys, *others, matched], pairs)
        lefts = joined(left.plan, pairs, "LeftOuter", equal_keys(left.key, keys))
        both = catalyst("expressions.And", matched.toAttribute(), equal_keys(right.key, others))
        found = joined(lefts, right.plan, "FullOuter", both)
    return project(output, found)


def not_in(join: Any, either: Any, others: Sequence[Any]) -> Any:
    """Return ``NOT IN`` as ``NOT EXISTS`` with an equal row, with a null on the right, and with a null on the left.

    Args:
        join: an anti join.
        either: of its condition the part ``a = b OR (a = b) IS NULL``.
        others: the other parts.
    """
    equal, right = either.children().head(), join.right()
    own = _numbers(join.left().output())
    kept = joined(join.left(), right, "LeftAnti", all_of([*others, equal]))
    further = {number for one in others for number in _numbers(one.references().toSeq())} - own
    columns = [one for one in items(right.output()) if int(one.exprId().id()) in further]
    for side in items(equal.children()):
        if not side.nullable():
            continue
        null, some, condition = catalyst("expressions.IsNull", side), right, [*others]
        if _numbers(side.references().toSeq()) <= own:
            condition.append(null)
        else:
            some = catalyst("plans.logical.Filter", null, right)
        # One of several equal rows is enough.
        some = distinct_rows(project(columns or [_one()], some))
        kept = joined(kept, some, "LeftAnti", all_of(condition) if condition else None)
    return kept


def _numbers(attributes: Any) -> set[int]:
    return {int(one.exprId().id()) for one in items(attributes)}


def _copied(rows: Keyed) -> tuple[Any, list[Any], list[tuple[Any, Any]]]:
    """Return rows with new numbers; their key; and their columns, each with its copy."""
    output = items(rows.plan.output())
    copies = [alias(one, str(one.name()), new_number()) for one in output]
    both = [(one, copy.toAttribute()) for one, copy in zip(output, copies, strict=True)]
    key = [next(copy for one, copy in both if one.equals(column)) for column in rows.key]
    return project(copies, rows.plan), key, both


def joined(left: Any, right: Any, how: str, condition: Any = None) -> Any:
    """Return a join."""
    return _join(left, right, catalyst_object(f"plans.{how}"), condition)


def _join(left: Any, right: Any, how: Any, condition: Any) -> Any:
    hint = catalyst_object("plans.logical.JoinHint").NONE()
    given = nothing() if condition is None else java("scala.Option").apply(condition)
    return catalyst("plans.logical.Join", left, right, how, given, hint)


def equal_keys(own: Sequence[Any], theirs: Sequence[Any]) -> Any:
    """Return the condition that two keys are equal."""
    return all_of(
        catalyst(f"expressions.{'EqualNullSafe' if one.nullable() else 'EqualTo'}", one, other)
        for one, other in zip(own, theirs, strict=True)
    )


def all_of(conditions: Iterable[Any]) -> Any:
    """Return the condition that all of these hold."""
    return functools.reduce(lambda a, b: catalyst("expressions.And", a, b), conditions)


def where_found(found: Any | None, value: Any) -> Any:
    """Return a column that is null if its side has no row; ``found`` says whether it has one, None: always."""
    if found is None:
        return value
    nothing = catalyst_object("expressions.Literal").create(None, value.dataType())
    return catalyst("expressions.If", found, value, nothing)


def true() -> Any:
    """Return a literal."""
    return catalyst_object("expressions.Literal").TrueLiteral()
