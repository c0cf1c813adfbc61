"""Tables of the first rows of each key on DataFrames: their places, and what they may be ordered by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    AtomicType,
    IntegerType,
    StringType,
    StructType,
)

from sparkrelay.errors import TopologyException
from sparkrelay.operators.ranking.row_order import RowRanking
from sparkrelay.runtime.compile.column_names import columns_there_are
from sparkrelay.runtime.compile.row_steps import checked, visible

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Aggregation, Ranking

__all__ = ["check_order", "held_rows", "ranking_spec", "with_places"]


def with_places(table: Aggregation, rows: DataFrame) -> DataFrame:
    """Return rows with a column for their place, which the stateful step fills in; as they are where there is none.

    Raises:
        TopologyException: they have a column of that name.
    """
    ranking = table.ranking
    if ranking is None:
        return rows
    if ranking.number.lower() in {name.lower() for name in visible(rows).names}:
        raise TopologyException(
            f"{table.call_site}: {table.text}: the rows have a column {ranking.number!r} already; give the place "
            "another name, or drop the column before"
        )
    return checked(str(table.call_site), lambda: rows.withColumn(ranking.number, F.lit(1).cast(IntegerType())))


def check_order(table: Aggregation, columns: StructType) -> None:
    """Raise TopologyException for a column that a table's rows cannot be ordered by."""
    for one in () if table.ranking is None else table.ranking.order:
        if one.column not in columns.names:
            raise TopologyException(
                f"{table.call_site}: {table.text}: the rows have no column {one.column!r}; they have "
                f"{columns_there_are(columns.names, one.column)}"
            )
        kind = columns[one.column].dataType
        if not isinstance(kind, AtomicType) or (isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()):
            raise TopologyException(
                f"{table.call_site}: {table.text}: rows cannot be ordered by {one.column!r}, which is "
                f"{kind.simpleString()}; order by a number, a time or a text"
            )


def held_rows(ranking: Ranking) -> str:
    """Say which rows of each key a table holds."""
    first = f"rank {ranking.count}" if ranking.ties else f"first {ranking.count}"
    return f"{first} by {', '.join(map(str, ranking.order))}"


def ranking_spec(table: Aggregation, keys: Collection[str]) -> RowRanking | None:
    """Return which rows of each key a table holds; None where it is the newest one.

    Args:
        table: the table.
        keys: names of its grouping columns: by these the rows of a key are in no order.
    """
    ranking = table.ranking
    if ranking is None:
        return None
    order = tuple((one.column, one.descending, one.nulls_first) for one in ranking.order if one.column not in keys)
    return RowRanking(ranking.number, order, ranking.count, ranking.ties)
