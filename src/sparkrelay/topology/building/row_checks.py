"""Checks of row-wise steps, once it is known where their rows go: what would be silently wrong is refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.topology.parts import Segment
from sparkrelay.topology.refusals import CUT_BY_SPARK, MANY_ROWS_OF_TABLE, MATCHES_OF_TABLE
from sparkrelay.topology.rows import DRAWING, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.topology.rows import Written
    from sparkrelay.topology.structure import Leg

#: Functions whose value depends on how Spark cuts rows into partitions.
_PLACED: Final = frozenset(
    {"InputFileBlockLength", "InputFileBlockStart", "InputFileName", "MonotonicallyIncreasingID", "SparkPartitionID"}
)
#: Digits of seeds that a user may have written.
_SHORT: Final = 9
#: Nodes that make several rows of one, or none.
MULTIPLYING: Final = frozenset({"Expand", "Generate"})


def check_rows(legs: Sequence[Leg]) -> None:
    """Check the steps of all legs.

    Raises:
        TopologyException: a function is not row-wise; what was made of a table's row could not be taken back; or
            values are drawn that would be others on each way.
    """
    for leg in legs:
        for rows in _all_rows(leg):
            check_places(rows)
        _check_taken_back(leg)
    _check_drawn_once(legs)


def check_of_table(rows: Rows, where: object, method: str) -> None:
    """Refuse steps that make several rows of one of a table's, or none.

    Args:
        rows: behind the steps.
        where: the line that wrote them.
        method: what was called there.

    Raises:
        TopologyException: a step does.
    """
    if rows.node.is_table and any(node.kind in MULTIPLYING for node, _ in rows.steps):
        raise TopologyException(f"{where}: {method}() {MANY_ROWS_OF_TABLE}")
    if rows.node.is_table and any(_matches(node) for node, _ in rows.steps):
        raise TopologyException(f"{where}: {method}() {MATCHES_OF_TABLE}")


def _segments(leg: Leg) -> Iterator[Segment]:
    return (part for part in (*leg.before, *leg.of_table, *leg.after) if isinstance(part, Segment))


def _all_rows(leg: Leg) -> Iterator[Rows]:
    return (segment.rows for segment in _segments(leg))


def _line(rows: Rows, holds: Callable[[Rows], object]) -> str:
    """Return the call behind which something holds of rows for the first time, as ``file:line: method()``."""
    for one in rows.written:
        if holds(Rows(rows.node, one.frame)):
            return f"{one.call_site}: {one.method}()"
    if rows.written:
        return f"{rows.written[-1].call_site}: {rows.written[-1].method}()"
    return f"{rows.node.call_site}: {rows.node.text}"


def check_places(rows: Rows) -> None:
    """Refuse functions whose value depends on how Spark cuts rows into partitions.

    Raises:
        TopologyException: a step has one.
    """

    def found(rows: Rows) -> Expression | None:
        parts = (part for node, _ in rows.steps for one in node.expressions for part in one.below())
        return next((part for part in parts if part.kind in _PLACED), None)

    if rows.is_deterministic:
        return
    for node, _ in rows.steps:
        for one in node.expressions:
            check_name_without_seed(one, one.name if one.kind == "Alias" else "", rows)
    if (placed := found(rows)) is not None:
        raise TopologyException(f"{_line(rows, found)} is not row-wise ({words(placed)}): {CUT_BY_SPARK}")


def check_name_without_seed(one: Expression, name: str, rows: Rows) -> None:
    """Refuse a column that Spark has named after the seed of what it draws.

    Raises:
        TopologyException: the name has a seed in it.
    """
    drawing = (part for part in one.below() if part.kind in DRAWING)
    seeds = {str(child.fields.get("value")) for part in drawing for child in part.children if child.kind == "Literal"}
    if any(len(seed) > _SHORT and seed in name for seed in seeds):
        raise TopologyException(
            f"{rows.written[-1].call_site if rows.written else rows.node.call_site}: {name!r} has in its name the seed "
            'that PySpark has drawn, another one in every process; give the column a name, alias("drawn")'
        )


def _check_taken_back(leg: Leg) -> None:
    """Refuse what makes something else of a table's row when it is to be taken back."""
    changed = [part.rows for part in leg.of_table if leg.sends_changes or part.rows.filters]
    if leg.source.changes and leg.aggregation is not None:
        changed += [part.rows for part in leg.before if isinstance(part, Segment)]
    for rows in changed:
        if rows.differs_each_time is not None:
            raise TopologyException(
                f"{_line(rows, lambda one: one.differs_each_time)} of a table: {rows.differs_each_time}. When a row "
                "changes, what was made of it before is taken back, and by then it would be something else. Compute it "
                "in front of the table, or put to_stream() before it"
            )


def _matches(node: Plan) -> bool:
    """Return whether a node is a join that may drop rows or repeat them."""
    return node.kind == "Join" and not node.join_type.startswith("ExistenceJoin")


def check_deletions_pass(rows: Rows) -> None:
    """Refuse steps that may keep a record without a value from the table of newest rows that it deletes from.

    Raises:
        TopologyException: a step may.
    """

    def explodes(rows: Rows) -> bool:
        return any(node.kind == "Generate" and not node.fields.get("outer") for node, _ in rows.steps)

    if explodes(rows):
        raise TopologyException(
            f"{_line(rows, explodes)} in front of to_table() may drop rows, and with them records without a value, "
            "which delete their key's row. Use where(...), which lets them pass; or put to_table() before this step, "
            "and to_stream() between both"
        )


def _check_drawn_once(legs: Sequence[Leg]) -> None:
    """Refuse steps in front of a fork whose values would not be the same on each way."""
    ways: Counter[Written] = Counter()
    rows_of: dict[Written, Rows] = {}
    for leg in legs:
        if leg.late_for is not None:
            # A row takes this way or the other one.
            continue
        for rows in _all_rows(leg):
            ways.update(rows.written)
            rows_of |= dict.fromkeys(rows.written, rows)
    for written, count in ways.items():
        if count < 2:
            continue
        rows = Rows(rows_of[written].node, written.frame)
        if rows.draws is not None:
            raise TopologyException(
                f"{written.call_site}: {written.method}(): the stream has several ways out behind this, each of them "
                f"repeats the step, and {rows.draws} is not deterministic: one row would have other values on each. "
                'Put repartition("column") behind it and begin the ways there, or write it to a topic first'
            )
