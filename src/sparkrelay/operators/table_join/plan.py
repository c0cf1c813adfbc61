"""Joins of tables, as the compiler plans them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay.operators.foreign_join.outdated_answers import Answers
from sparkrelay.operators.foreign_join.run import ForeignJoinRunner
from sparkrelay.operators.pair_join.run import PairJoinRunner
from sparkrelay.operators.table.joined_rows import JoinedTables
from sparkrelay.operators.table_join.run import TableJoinRunner
from sparkrelay.runtime.compile.carried_columns import joined_columns
from sparkrelay.topology import TableJoin
from sparkrelay.topology.schemas import arrow_schema, hidden_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.topology import Leg


def joined_tables(
    leg: Leg, join: TableJoin, states: Mapping[str, TableRunner], step: Mapping[str, Any]
) -> tuple[Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], StructType]:
    """Return the runner of a leg's join of tables, and its output columns.

    Args:
        leg: the leg.
        join: the join.
        states: store -> runner of the step that keeps it.
        step: fields of ``StepSpec``.
    """
    rows = join.columns
    output = StructType([*rows, *hidden_fields(joined_columns(leg))])
    keys = arrow_schema(StructType(rows.fields[: join.width]))
    if join.referencing is not None:
        assert isinstance(join.left, str), "the store of rows by foreign key"
        right, joined = _sides(join.right, states)
        referencing = states[join.left]
        return ForeignJoinRunner(
            **step,
            referencing=referencing,
            tables=right,
            joined=joined,
            how=join.how,
            keys=referencing.layout.keys,
            foreign=join.foreign,
            own=_key_of(join.referencing, states),
            output=arrow_schema(output),
        ), output
    if join.by:
        assert isinstance(join.left, str), "the store of the left rows by what is equal"
        assert isinstance(join.right, str), "and that of the right ones"
        return PairJoinRunner(
            **step,
            tables=(states[join.left], states[join.right]),
            how=join.how,
            width=join.by,
            keys=keys,
            output=arrow_schema(output),
        ), output
    sides, joined = _sides(join, states)
    assert isinstance(joined, JoinedTables)
    return TableJoinRunner(**step, tables=sides, joined=joined, keys=keys, output=arrow_schema(output)), output


def answers_of(join: TableJoin | None, states: Mapping[str, TableRunner]) -> Answers | None:
    """Return the filter of answers of a join by a foreign key; None for other joins.

    Args:
        join: the join.
        states: store -> runner of the step that keeps it.
    """
    if join is None or join.referencing is None:
        return None
    sides, joined = _sides(join.referencing, states)
    referencing = join.referencing
    if isinstance(referencing, TableJoin):
        row = arrow_schema(StructType(referencing.columns.fields[referencing.width :]))
    else:
        row = states[referencing].layout.row
    return Answers(sides, joined, row)


def _sides(
    join: TableJoin | str, states: Mapping[str, TableRunner]
) -> tuple[tuple[TableRunner, ...], JoinedTables | int]:
    """Return the tables of which a table is made, and how they are joined."""
    stores = (join,) if isinstance(join, str) else join.stores
    numbers = {store: number for number, store in enumerate(stores)}
    joined = 0 if isinstance(join, str) else _tree(join, numbers)
    return tuple(states[store] for store in stores), joined


def _key_of(table: TableJoin | str, states: Mapping[str, TableRunner]) -> tuple[str, ...]:
    """Return the names of a table's key columns."""
    if isinstance(table, TableJoin):
        return tuple(table.columns.names[: table.width])
    return tuple(states[table].layout.keys.names)


def _tree(join: TableJoin, numbers: Mapping[str, int]) -> JoinedTables:
    left, right = (
        _tree(side, numbers) if isinstance(side, TableJoin) else numbers[side] for side in (join.left, join.right)
    )
    return JoinedTables(join.how, left, right)
