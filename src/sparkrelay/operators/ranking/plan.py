"""Rankings on DataFrames."""

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


def with_places(table: Aggregation, rows: DataFrame) -> DataFrame:
    """Return rows with a column for the place, which the stateful step fills in; unchanged without a ranking.

    Raises:
        TopologyException: the rows already have a column of this name.
    """
    ranking = table.ranking
    if ranking is None:
        return rows
    if ranking.number.lower() in {name.lower() for name in visible(rows).names}:
        raise TopologyException(
            f"{table.call_site}: {table.text}: the rows already have a column {ranking.number!r}; use another name for "
            "the place, or drop the column first"
        )
    return checked(str(table.call_site), lambda: rows.withColumn(ranking.number, F.lit(1).cast(IntegerType())))


def check_order(table: Aggregation, columns: StructType) -> None:
    """Reject columns that rows cannot be ordered by (TopologyException)."""
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
                f"{kind.simpleString()}; order by a number, a time or a string"
            )


def held_rows(ranking: Ranking) -> str:
    """Describe the rows of each key that a table keeps."""
    first = f"rank {ranking.count}" if ranking.ties else f"first {ranking.count}"
    return f"{first} by {', '.join(map(str, ranking.order))}"


def ranking_spec(table: Aggregation, keys: Collection[str]) -> RowRanking | None:
    """Return the ranking of a table, without its grouping columns ``keys``; None if it keeps the newest row."""
    ranking = table.ranking
    if ranking is None:
        return None
    order = tuple((one.column, one.descending, one.nulls_first) for one in ranking.order if one.column not in keys)
    return RowRanking(ranking.number, order, ranking.count, ranking.ties)
