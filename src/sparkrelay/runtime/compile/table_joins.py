"""Joins of tables on DataFrames: what comes out of one, and the step that reads its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.carried_columns import joined_columns
from sparkrelay.runtime.compile.schemas import arrow_schema, hidden_fields
from sparkrelay.runtime.contract.specs import JoinedTables, TableJoinSpec, TableSide
from sparkrelay.runtime.worker.operators.distinct_values import has_distinct
from sparkrelay.topology import TableJoin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.runtime.compile.aggregate_calls import AggregateCalls
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.topology import Leg

__all__ = ["joined_tables"]


def joined_tables(
    leg: Leg,
    join: TableJoin,
    tables: Mapping[str, AggregateCalls],
    states: Mapping[str, StateSpec],
    step: Mapping[str, Any],
) -> tuple[TableJoinSpec, StructType]:
    """Return the step that reads the joined tables of a leg, and what leaves it.

    Args:
        leg: the leg.
        join: what its rows are.
        tables: store -> what is made of the rows of its table.
        states: store -> the step that keeps it.
        step: what every step of the leg knows.

    Raises:
        TopologyException: what a store holds of a key is no row, or two tables do not go together.
    """
    rows = _rows(join, tables)
    for store in join.stores:
        state = states[store]
        if tables[store].computed:
            raise TopologyException(
                f"{join.call_site}: {join.text}: table {store!r} has columns that are computed of aggregates when it "
                "is read; have agg() give the aggregates alone, and compute behind the join"
            )
        if state.watermark is not None or has_distinct(state):
            what = (
                "of windows, which end"
                if state.watermark is not None
                else "of DISTINCT, lists, sets, modes or percentiles"
            )
            raise TopologyException(
                f"{join.call_site}: {join.text}: tables {what} are not joined with others yet; write that one with "
                'to("topic"), and join with builder.table("topic", ...)'
            )
    output = StructType([*rows, *hidden_fields(joined_columns(leg))])
    numbers = {store: number for number, store in enumerate(join.stores)}
    spec = TableJoinSpec(
        **step,
        tables=tuple(TableSide(states[store].contents, states[store]) for store in join.stores),
        joined=_tree(join, numbers),
        keys=arrow_schema(StructType(rows.fields[: len(join.columns)])),
        output=arrow_schema(output),
    )
    return spec, output


def _rows(join: TableJoin, tables: Mapping[str, AggregateCalls]) -> StructType:
    """Return the columns behind a join of tables: its key's, then the left table's others, then the right one's.

    Raises:
        TopologyException: a key has another type on the other side, or a column stands on both.
    """
    where = f"{join.call_site}: {join.text}"
    left, right = (
        _rows(side, tables) if isinstance(side, TableJoin) else tables[side].results for side in (join.left, join.right)
    )
    for name in join.columns:
        kinds = [side[name].dataType for side in (left, right)]
        if kinds[0] != kinds[1]:
            raise TopologyException(
                f"{where}: {name!r} is {kinds[0].simpleString()} in the left table and {kinds[1].simpleString()} in "
                "the right one, so equal values have other bytes, and are in other tasks; read both topics with one "
                "format of the key"
            )
    keys = left.fields[: len(join.columns)]
    others = [StructField(f.name, f.dataType) for f in (*left.fields[len(keys) :], *right.fields[len(keys) :])]
    lower = [field.name.lower() for field in (*keys, *others)]
    both = [field.name for field in others if lower.count(field.name.lower()) > 1]
    if both:
        raise TopologyException(
            f"{where}: both tables have a column {both[-1]!r}; rename or drop one of them before the join"
        )
    return StructType([*keys, *others])


def _tree(join: TableJoin, numbers: Mapping[str, int]) -> JoinedTables:
    left, right = (
        _tree(side, numbers) if isinstance(side, TableJoin) else numbers[side] for side in (join.left, join.right)
    )
    return JoinedTables(join.how, left, right)
