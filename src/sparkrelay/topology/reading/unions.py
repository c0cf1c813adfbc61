"""Unions of streams, and of tables."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sparkrelay.catalyst import rewriting
from sparkrelay.catalyst.frames import analyzed
from sparkrelay.catalyst.jvm import items, java
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import UnionNode
from sparkrelay.topology.reading.kept_tables import keyed
from sparkrelay.topology.record import DELAY, begin, columns_of, renumbered, unique
from sparkrelay.topology.refusals import NO_UNION_OF_BOTH
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.reading.calls import Call, Reading
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


def united(reader: Reading, streams: Sequence[Rows], at: Plan) -> Rows:
    """Write a union down: of two streams, or two tables, at a time.

    Raises:
        TopologyException: there are streams and tables.
    """
    record, call = reader.record, reader.call
    tables = [rows.node.is_table for rows in streams]
    if all(tables):
        return _of_tables(reader, streams, at)
    if any(tables):
        raise TopologyException(f"{call.where}: {call.method}(): {NO_UNION_OF_BOTH}")
    output = _output(at.java.output(), streams)
    return functools.reduce(lambda left, right: _two(record, call, left, right, output), streams)


def _of_tables(reader: Reading, tables: Sequence[Rows], at: Plan) -> Rows:
    rows, *others = tables
    for number, other in enumerate(others, 1):
        output = items(at.java.output() if number == len(others) else renumbered(analyzed(rows.frame).output()))
        rows = reader.rows(read_plan(rewriting.all_rows(output, keyed(rows), keyed(other))))
    return rows


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
