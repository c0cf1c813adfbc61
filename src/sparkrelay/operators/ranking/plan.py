"""Rankings, as the compiler plans them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.operators.ranking.row_order import RowRanking

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkrelay.topology import Aggregation, Ranking


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
