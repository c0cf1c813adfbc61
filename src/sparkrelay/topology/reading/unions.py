"""Unions of streams."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sparkrelay.catalyst.jvm import java
from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import UnionNode
from sparkrelay.topology.record import DELAY, begin, columns_of, unique
from sparkrelay.topology.refusals import NO_UNION_OF_TABLES
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


def united(record: Record, call: Call, streams: Sequence[Rows], at: Plan) -> Rows:
    """Write a union down: of two streams at a time.

    Raises:
        TopologyException: one of them is a table.
    """
    if any(rows.node.is_table for rows in streams):
        raise TopologyException(
            f"{call.where}: {call.method}() takes streams of the same builder; {NO_UNION_OF_TABLES}"
        )
    output = _output(at.java.output(), streams)
    return functools.reduce(lambda left, right: _two(record, call, left, right, output), streams)


def _two(record: Record, call: Call, left: Rows, right: Rows, output: Any) -> Rows:
    node = UnionNode(call_site=call.call_site, text=f"{call.method}(...)", given=left, other=right)
    names = unique(column.name for column in left.columns)
    return begin(record.add(node, output, Spread({}), names=names))


def _output(output: Any, streams: Sequence[Rows]) -> Any:
    """Return the attributes of a union: a column with a watermark in each stream has one, with the longer delay."""
    fields = columns_of(output)
    for place, field in enumerate(fields):
        delays = [(rows.schema.fields[place].metadata or {}).get(DELAY) for rows in streams]
        others = {name: value for name, value in (field.metadata or {}).items() if name != DELAY}
        if None not in delays:
            others[DELAY] = max(delay for delay in delays if delay is not None)
        if others != (field.metadata or {}):
            output = output.updated(place, output.apply(place).withMetadata(_metadata(others)))
    return output


def _metadata(of: dict[str, Any]) -> Any:
    builder = java("org.apache.spark.sql.types.MetadataBuilder")()
    for name, value in of.items():
        (builder.putLong if isinstance(value, int) and not isinstance(value, bool) else builder.putBoolean)(name, value)
    return builder.build()
