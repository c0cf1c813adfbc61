"""Which columns of its source a plan reads: the others are neither decoded nor kept nor sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.runtime.compile.catalyst import analyzed, lets_nothing_through, optimized
from sparkrelay.runtime.compile.column_origins import made_by, reached
from sparkrelay.runtime.compile.row_wise import depends_on_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkrelay.runtime.compile.catalyst import Node


def wanted_columns(plan: DataFrame, source: DataFrame) -> frozenset[str]:
    """Return the columns of ``source`` that ``plan``, built on it, really reads, at whatever time it runs."""
    names = dict(analyzed(source).output)
    if depends_on_time(analyzed(plan)) is not None:
        # Once it is optimised, the time is a constant, and what would be read at another hour may be gone.
        deciding = _deciding(analyzed(plan))
        read = set(names) if deciding is None else deciding
    elif lets_nothing_through(plan):
        # Spark has cut the source off, and with it what would show it: the steps name columns all the same.
        read = set(names)
    else:
        read = {attribute.number for node in optimized(plan).below() for attribute in node.references}
        # The leaf's own output counts when nothing stands above it.
        read |= {attribute.number for attribute in optimized(plan).output}
    return frozenset(name for number, name in names.items() if number in read)


def _deciding(plan: Node) -> set[int] | None:
    """Return the attributes that decide a plan's output, or which rows it has; None if the origin of one is unknown."""
    made = made_by(plan)
    todo = list(plan.output)
    begins: set[int] = set()
    for node in plan.below():
        if node.kind == "MapInArrow" or not node.children:
            begins.update(number for number, _ in node.output)
        # These two make columns, which count where they are read.
        if node.kind not in {"Project", "Expand"}:
            todo += node.references
    read = reached([number for number, _ in todo], made)
    return read if read <= made.keys() | begins else None
