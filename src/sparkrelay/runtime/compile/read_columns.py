"""Which columns of its source a plan reads: the others are neither decoded nor kept nor sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.compile.catalyst import items, kind, lets_nothing_through, nodes, number_of
from sparkrelay.runtime.compile.column_origins import made_by, reached
from sparkrelay.runtime.compile.row_wise import depends_on_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["wanted_columns"]


def wanted_columns(plan: DataFrame, source: DataFrame) -> frozenset[str]:
    """Return the columns of ``source`` that ``plan``, built on it, really reads, at whatever time it runs."""
    leaf = source._jdf.queryExecution().analyzed()
    names = {number_of(attribute): str(attribute.name()) for attribute in items(leaf.output())}
    analyzed = plan._jdf.queryExecution().analyzed()
    if depends_on_time(analyzed) is not None:
        # Once it is optimised, the time is a constant, and what would be read at another hour may be gone.
        reached = _reached(analyzed)
        read = set(names) if reached is None else reached
    elif lets_nothing_through(plan):
        # Spark has cut the source off, and with it what would show it: the steps name columns all the same.
        read = set(names)
    else:
        optimized = plan._jdf.queryExecution().optimizedPlan()
        read = {number_of(attribute) for node in nodes(optimized) for attribute in items(node.references().toSeq())}
        # The leaf's own output counts when nothing stands above it.
        read |= {number_of(attribute) for attribute in items(optimized.output())}
    return frozenset(name for number, name in names.items() if number in read)


def _reached(analyzed: Any) -> set[int] | None:
    """Return the attributes that the output of a plan, and which rows are in it, are made of by its expressions.

    None where it is not known what makes one of them.
    """
    made = made_by(analyzed)
    todo = items(analyzed.output())
    begins: set[int] = set()
    for node in nodes(analyzed):
        if kind(node) == "MapInArrow" or not items(node.children()):
            begins.update(map(number_of, items(node.output())))
        # These two make columns, which count where they are read.
        if kind(node) not in {"Project", "Expand"}:
            todo += items(node.references().toSeq())
    read = reached(todo, made)
    return read if read <= made.keys() | begins else None
