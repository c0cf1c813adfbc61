"""Joins of two tables: what ``KTable.join(KTable)`` writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

from sparkrelay.errors import TopologyException
from sparkrelay.topology.calls.foreign_joins import join_by_foreign_key
from sparkrelay.topology.calls.lookups import shared_columns
from sparkrelay.topology.calls.stored_tables import holds_rows, key_of, stored_table
from sparkrelay.topology.calls.stream_joins import join_way
from sparkrelay.topology.nodes import AggregationNode, TableJoinNode

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.lineage import Lineage
    from sparkrelay.topology.nodes import Node, Record, StoredTable

_WAYS: Final = ("inner", "left", "right", "full")


def join_tables(  # noqa: PLR0917 - as they are written
    record: Record,
    left: tuple[Node, Lineage],
    right: tuple[Node, Lineage],
    on: Any,
    how: Any,
    call_site: CallSite,
) -> StoredTable:
    """Record a join of two tables: by their common key, or by the right one's, a foreign key of the left one.

    Tables with the same key are already co-partitioned, so neither is repartitioned.

    Args:
        record: of the builder.
        left: what the left table stands for, and which of its columns decide in which task a row is.
        right: the same of the right one.
        on: names of the columns that both are keyed by, or that the right one is and the left one has.
        how: one of PySpark's words.
        call_site: the line that wrote it.

    Raises:
        TopologyException: an argument is of the wrong kind, or the tables are not keyed alike.
    """
    way = join_way(how, "two tables", _WAYS, call_site)
    columns = shared_columns(on, call_site)
    tables = [_stored(record, node, call_site) for node, _ in (left, right)]
    keys = []
    for table, (node, lineage), side in zip(tables, (left, right), ("left", "right"), strict=True):
        key = key_of(table) if isinstance(table, AggregationNode) and holds_rows(table) else lineage.key()
        if key is None:
            raise TopologyException(
                f"{call_site}: join() of two tables has both keyed by the columns that say in which task a row is; "
                f"those of the {side} one, of {node.call_site}, are not its key's, or in another order, or computed. "
                'Write it with to("topic", key=...), and join with builder.table("topic", ...)'
            )
        keys.append(key)
    if sorted(columns) == sorted(keys[1]) != sorted(keys[0]):
        return join_by_foreign_key(record, tables, (left[0], right[0]), keys, way, call_site)
    if keys[0] != keys[1] or sorted(columns) != sorted(keys[0]):
        _refuse(keys, columns, call_site)
    text = f"join({', '.join(columns)}, {way})"
    return record.add(TableJoinNode(tables[0], tables[1], (left[0], right[0]), keys[0], way, text, call_site))


def _stored(record: Record, node: Node, call_site: CallSite) -> StoredTable:
    table, step = stored_table(record, node)
    if table is not None:
        return table
    text = step.text if step is not None else "a step"
    raise TopologyException(
        f"{call_site}: join() of two tables finds their rows where they are stored, and behind {text} at "
        f"{step.call_site if step is not None else call_site} none are: builder.table() and to_table() take steps "
        "before a join, tables of agg() and of joins do not. Put the step behind the join, or write that table with "
        'to("topic"), and join with builder.table("topic", ...)'
    )


def _refuse(keys: list[tuple[str, ...]], columns: tuple[str, ...], call_site: CallSite) -> NoReturn:
    one, other = (", ".join(map(repr, key)) for key in keys)
    if keys[0] == keys[1]:
        raise TopologyException(
            f"{call_site}: join() of two tables goes by their key, {one}, not by {', '.join(map(repr, columns))}: say "
            f"on={list(keys[0]) if len(keys[0]) > 1 else keys[0][0]!r}"
        )
    if sorted(keys[0]) == sorted(keys[1]):
        way = "give both keys the columns in one order"
    elif len(keys[0]) == len(keys[1]) == 1:
        way = (
            f'if they mean the same, give the columns one name, withColumnRenamed("{keys[1][0]}", "{keys[0][0]}"); '
            f'else make a table that is keyed alike, to_stream().repartition("{keys[0][0]}").to_table()'
        )
    else:
        way = "make a table that is keyed alike, to_stream().repartition(...).to_table()"
    raise TopologyException(
        f"{call_site}: join() of two tables goes by their keys, which are {one} in the left one and {other} in the "
        f"right one: {way}. Or by a foreign key: then on= is the right table's key, {other}, of which the left one has "
        "columns; where the right one names rows of the left one, begin with it, right.join(left, ...)"
    )
