"""Joins of tables on DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.foreign_join.outdated_answers import Answers
from sparkrelay.operators.foreign_join.run import ForeignJoinRunner
from sparkrelay.operators.table.joined_rows import JoinedTables
from sparkrelay.operators.table_join.run import TableJoinRunner
from sparkrelay.runtime.compile.carried_columns import joined_columns
from sparkrelay.runtime.compile.schemas import arrow_schema, hidden_fields
from sparkrelay.topology import TableJoin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa

    from sparkrelay.operators.aggregate.calls import AggregateCalls
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.topology import Leg


def joined_tables(
    leg: Leg,
    join: TableJoin,
    tables: Mapping[str, AggregateCalls],
    states: Mapping[str, TableRunner],
    step: Mapping[str, Any],
) -> tuple[Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], StructType]:
    """Return the runner of a leg's join of tables, and its output columns.

    Args:
        leg: the leg.
        join: the join.
        tables: store -> aggregates of its table.
        states: store -> runner of the step that keeps it.
        step: fields of ``StepSpec``.

    Raises:
        TopologyException: a table cannot be joined, or two tables are incompatible.
    """
    foreign = join.referencing is not None
    rows = _foreign_rows(join, tables) if foreign else _rows(join, tables)
    for store in (*join.stores, *join.referencing_stores):
        state = states[store]
        if tables[store].computed:
            raise TopologyException(
                f"{join.call_site}: {join.text}: table {store!r} has columns that are computed from aggregates; use "
                "plain aggregates in agg(), and compute after the join"
            )
        if state.watermark is not None or state.layout.has_values:
            what = "windows" if state.watermark is not None else "DISTINCT, lists, sets, modes or percentiles"
            raise TopologyException(
                f"{join.call_site}: {join.text}: tables with {what} cannot be joined; write the table with "
                'to("topic"), and join builder.table("topic", ...)'
            )
    output = StructType([*rows, *hidden_fields(joined_columns(leg))])
    if foreign:
        assert isinstance(join.left, str), "the store of rows by foreign key"
        right, joined = _sides(join.right, states)
        key = states[join.left].layout.keys.names
        columns = tables[join.left].results
        return ForeignJoinRunner(
            **step,
            referencing=states[join.left],
            tables=right,
            joined=joined,
            how=join.how,
            keys=arrow_schema(StructType([columns[name] for name in key])),
            foreign=len(join.columns),
            own=_key_of(join.referencing, states),
            output=arrow_schema(output),
        ), output
    sides, joined = _sides(join, states)
    assert isinstance(joined, JoinedTables)
    spec = TableJoinRunner(
        **step,
        tables=sides,
        joined=joined,
        keys=arrow_schema(StructType(rows.fields[: len(join.columns)])),
        output=arrow_schema(output),
    )
    return spec, output


def answers_of(
    join: TableJoin | None, tables: Mapping[str, AggregateCalls], states: Iterable[TableRunner]
) -> Answers | None:
    """Return the filter of answers of a join by a foreign key; None for other joins.

    Args:
        join: the join.
        tables: store -> aggregates of its table.
        states: runners of the steps that keep stores.
    """
    if join is None or join.referencing is None:
        return None
    sides, joined = _sides(join.referencing, {spec.store: spec for spec in states})
    rows = _rows_of(join.referencing, tables)
    width = len(_key_of(join.referencing, {side.store: side for side in sides}))
    return Answers(sides, joined, arrow_schema(StructType(rows.fields[width:])))


def _sides(
    join: TableJoin | str, states: Mapping[str, TableRunner]
) -> tuple[tuple[TableRunner, ...], JoinedTables | int]:
    """Return the tables of which a table is made, and how they are joined."""
    stores = (join,) if isinstance(join, str) else join.stores
    numbers = {store: number for number, store in enumerate(stores)}
    joined = 0 if isinstance(join, str) else _tree(join, numbers)
    return tuple(states[store] for store in stores), joined


def _key_of(table: TableJoin | str | None, states: Mapping[str, TableRunner]) -> tuple[str, ...]:
    """Return the names of a table's key columns."""
    if isinstance(table, TableJoin):
        return table.columns
    assert table is not None, "a join by a foreign key has a left table"
    return tuple(states[table].layout.keys.names)


def _foreign_rows(join: TableJoin, tables: Mapping[str, AggregateCalls]) -> StructType:
    """Return the columns of a join by a foreign key: the left table's, then the right one's without its key.

    Raises:
        TopologyException: the types of a key differ, or both tables have a column.
    """
    where = f"{join.call_site}: {join.text}"
    assert join.referencing is not None, "a join by a foreign key has a left table"
    left, right = (_rows_of(side, tables) for side in (join.referencing, join.right))
    for name in join.columns:
        _check_alike(where, name, left, right)
    others = [StructField(f.name, f.dataType) for f in right.fields[len(join.columns) :]]
    _check_once(where, [*left, *others])
    return StructType([*(StructField(f.name, f.dataType) for f in left), *others])


def _rows_of(table: TableJoin | str, tables: Mapping[str, AggregateCalls]) -> StructType:
    return _rows(table, tables) if isinstance(table, TableJoin) else tables[table].results


def _rows(join: TableJoin, tables: Mapping[str, AggregateCalls]) -> StructType:
    """Return the columns of a join by key: the key's, then the left table's others, then the right one's.

    Raises:
        TopologyException: the types of a key differ, or both tables have a column.
    """
    where = f"{join.call_site}: {join.text}"
    left, right = (_rows_of(side, tables) for side in (join.left, join.right))
    for name in join.columns:
        _check_alike(where, name, left, right)
    keys = left.fields[: len(join.columns)]
    others = [StructField(f.name, f.dataType) for f in (*left.fields[len(keys) :], *right.fields[len(keys) :])]
    _check_once(where, [*keys, *others])
    return StructType([*keys, *others])


def _check_alike(where: str, name: str, left: StructType, right: StructType) -> None:
    """Reject keys whose types differ (TopologyException)."""
    kinds = [side[name].dataType for side in (left, right)]
    if kinds[0] != kinds[1]:
        raise TopologyException(
            f"{where}: {name!r} is {kinds[0].simpleString()} in the left table and {kinds[1].simpleString()} in "
            "the right one, so equal keys are encoded differently and belong to different tasks; read both topics "
            "with the same key format"
        )


def _check_once(where: str, fields: Iterable[StructField]) -> None:
    """Reject columns that both tables have (TopologyException)."""
    names = [field.name for field in fields]
    lower = [name.lower() for name in names]
    both = [name for name in names if lower.count(name.lower()) > 1]
    if both:
        raise TopologyException(
            f"{where}: both tables have a column {both[-1]!r}; rename or drop one of them before the join"
        )


def _tree(join: TableJoin, numbers: Mapping[str, int]) -> JoinedTables:
    left, right = (
        _tree(side, numbers) if isinstance(side, TableJoin) else numbers[side] for side in (join.left, join.right)
    )
    return JoinedTables(join.how, left, right)
