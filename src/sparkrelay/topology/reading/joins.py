"""Joins: what a ``Join`` of an analysed plan means by the kinds of its sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst import rewriting
from sparkrelay.catalyst.frames import analyzed, with_children
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.errors import TopologyException
from sparkrelay.topology.reading import lookups, stream_joins, table_joins
from sparkrelay.topology.reading.conditions import Both, null_aware, terms_of
from sparkrelay.topology.record import only
from sparkrelay.topology.refusals import STATIC, STREAM_ALONE

if TYPE_CHECKING:
    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.rows import Rows

#: Joins with a DataFrame whose rows come from the pipeline's side alone, by the side's place.
_BY_OWN: Final = (
    frozenset({"Cross", "Inner", "LeftAnti", "LeftOuter", "LeftSemi"}),
    frozenset({"Cross", "Inner", "RightOuter"}),
)


def static_side(reader: Reading, at: Plan) -> int | None:
    """Return which child has the rows of the pipeline, where the other one is a DataFrame; None where both have.

    Raises:
        TopologyException: rows of the DataFrame alone are wanted, or it has no end.
    """
    own = [place for place, child in enumerate(at.children) if reader.has_leaf(child)]
    if len(own) != 1:
        return None
    where = f"{reader.call.where}: {reader.call.method}()"
    if at.join_type not in _BY_OWN[own[0]]:
        raise TopologyException(f"{where} with a DataFrame, {at.join_type}: {STREAM_ALONE}")
    if at.children[1 - own[0]].java.isStreaming():
        raise TopologyException(f"{where} {STATIC}")
    return own[0]


def joined(reader: Reading, at: Plan, above: list[tuple[Plan, int]]) -> Rows:
    """Write a join down; return the rows behind it, with the columns of the plan's node.

    Args:
        reader: of the plan.
        at: the ``Join``.
        above: the row-wise nodes above it, from the top down; one that belongs to the join is taken out.

    Raises:
        TopologyException: the two sides cannot be joined in this way.
    """
    left, right = (reader.rows(child) for child in at.children)
    given = at.by_field.get("condition", ())
    if at.join_type in {"LeftSemi", "LeftAnti", "ExistenceJoin"} and right.node.is_table:
        # What is joined with them sees no column of them but through the condition.
        right = only(right, {number for one in given for number in one.references()})
    condition = Both(given[0], at.java.condition().get()) if given else None
    tables = left.node.is_table and right.node.is_table
    if tables and at.join_type == "LeftAnti" and condition and (found := null_aware(condition)) is not None:
        either, others = found
        plan = with_children(at.java, [analyzed(rows.frame) for rows in (left, right)])
        return reader.rows(read_plan(rewriting.not_in(plan, either.java, [one.java for one in others])))
    try:
        terms = terms_of(condition, left, right)
    except ValueError as error:
        raise TopologyException(f"{reader.call.where}: {reader.call.method}(): {error}") from None
    if tables:
        return table_joins.joined(reader, at, left, right, terms, above)
    if right.node.is_table:
        return lookups.looked_up(reader, at, left, right, terms, mirrored=False)
    if left.node.is_table:
        return lookups.looked_up(reader, at, right, left, terms, mirrored=True)
    return stream_joins.joined(reader, at, left, right, terms)


def output_of(at: Plan) -> list[Any]:
    """Return the attributes of a join, in the JVM."""
    output = at.java.output()
    return [output.apply(place) for place in range(int(output.size()))]
