"""Event times of rows: the column that a watermark goes by, which Spark marks through whatever renames or copies it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.running.step import Running
from sparkrelay.topology.event_time import EventTime
from sparkrelay.topology.nodes import EmittingNode, Passing, RepartitionNode
from sparkrelay.topology.record import DELAY, as_column, attribute

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkrelay.topology.rows import Node, RowColumn, Rows


def event_time(rows: Rows) -> RowColumn | None:
    """Return the column that the watermark of rows goes by; None if they have no watermark, as those of a table."""
    if rows.node.is_table or (isinstance(rows.node, RepartitionNode) and rows.node.changes):
        # A column of a ``readStream`` keeps Spark's mark of it through an aggregation.
        return None
    found = [column for column in rows.columns if DELAY in (column.field.metadata or {})]
    found = [column for column in found if not has_waited(rows, column.number)]
    # A window of these times has the same watermark.
    plain = [column for column in found if not isinstance(column.field.dataType, StructType)]
    return next(iter((*plain, *found)), None)


def has_waited(rows: Rows, number: int) -> bool:
    """Return whether rows have waited for their successors, so that no watermark says how late their times come."""
    if any(step.kind == "EventTimeWatermark" for step, _ in rows.steps):
        return False
    node = rows.node
    for place in rows.depends_on(number):
        step = node.step if isinstance(node, EmittingNode) else None
        if isinstance(step, Running) and step.ahead and step.time == node.leaf.columns.names[place]:
            return True
        before = node.origin(place)
        if before is not None and has_waited(*before):
            return True
    return False


def had_watermark(rows: Rows) -> bool:
    """Return whether a watermark was said of rows, whether or not its column is still there."""
    if any(node.kind == "EventTimeWatermark" for node, _ in rows.steps):
        return True
    return isinstance(rows.node, Passing) and had_watermark(rows.node.given)


def event_time_of(rows: Rows, column: RowColumn) -> EventTime:
    """Return what a step that takes these rows in goes by."""
    return EventTime(rows.words(column.number), int(column.field.metadata[DELAY]))


def as_timestamp(rows: Rows, column: RowColumn) -> Column:
    """Return the event times of rows as timestamps: of a window those of the rows that may be in it."""
    time = as_column(attribute(rows, column.number))
    return F.window_time(time) if isinstance(column.field.dataType, StructType) else time


def roots(rows: Rows, number: int) -> frozenset[tuple[Node, int]]:
    """Return the columns that a column is made of, as far back as they are known: nodes, and places of columns."""
    found: set[tuple[Node, int]] = set()
    for place in rows.depends_on(number):
        before = rows.node.origin(place)
        found |= {(rows.node, place)} if before is None else roots(*before)
    return frozenset(found)


def require_same_time(rows: Rows, window: RowColumn, time: RowColumn, where: str) -> None:
    """Reject a window of another column than the watermark's: it would close by an unrelated time.

    Raises:
        TopologyException: neither is made of the other's columns.
    """
    if roots(rows, window.number).isdisjoint(roots(rows, time.number)):
        raise TopologyException(
            f"{where}: {window.name!r} is {rows.words(window.number)}, and the watermark before it is of "
            f"{time.name!r}: "
            "windows end by their own time; use one column for both"
        )
