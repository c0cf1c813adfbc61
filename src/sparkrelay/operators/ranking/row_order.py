"""The order of a ranking, with Spark's rules of sorting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.row_numbers import places
from sparkrelay.records.arrow_buffers import whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowRanking:
    """The rows of each key that a table keeps.

    Attributes:
        number: the grouping column with a row's place, from 1; with ``ties``, the column with its rank.
        order: columns of the order: name, whether descending, whether nulls come first.
        count: number of rows of a key; with ``ties``, the highest rank.
        ties: whether equal rows share a rank.
    """

    number: str
    order: tuple[tuple[str, bool, bool], ...]
    count: int
    ties: bool = False

    def said(self) -> dict[str, Any]:
        """Return the ranking as JSON."""
        return {"number": self.number, "order": [list(column) for column in self.order], "count": self.count}


class RowOrder:
    """Sorts the rows of several keys."""

    def __init__(self, ranking: RowRanking) -> None:
        self._ranking = ranking

    def sort(self, rows: pa.Table, which: Numbers) -> Numbers:
        """Return the order of rows by key, then by the ranking; stable.

        Args:
            rows: the columns of the order.
            which: index of each row's key.
        """
        columns: dict[str, Any] = {"key": pa.array(which)}
        keys = [("key", "ascending")]
        for index, (name, descending, nulls_first) in enumerate(self._ranking.order):
            column, way = whole(rows.column(name)), "descending" if descending else "ascending"
            columns[f"null{index}"] = pc.is_null(column).cast(pa.int8())
            keys.append((f"null{index}", "descending" if nulls_first else "ascending"))
            if pa.types.is_floating(column.type):
                # In Spark, NaN is greater than any number; Arrow always sorts it last.
                nan = pc.fill_null(pc.is_nan(column), False)
                columns[f"nan{index}"] = nan.cast(pa.int8())
                keys.append((f"nan{index}", way))
                column = pc.if_else(nan, pa.scalar(0, column.type), column)
            columns[f"value{index}"] = column
            keys.append((f"value{index}", way))
        columns["at"] = pa.array(np.arange(rows.num_rows))
        keys.append(("at", "ascending"))
        order: Numbers = pc.sort_indices(pa.table(columns), keys).to_numpy().astype(np.int64)
        return order

    def ranks(self, rows: pa.Table, which: Numbers, counts: Numbers | None = None) -> Numbers:
        """Return the rank of each row in its key: 1 plus the number of rows before it.

        Args:
            rows: sorted rows (:meth:`sort`).
            which: index of each row's key.
            counts: number of equal rows that each stands for; None: 1.
        """
        if not rows.num_rows:
            return np.zeros(0, dtype=np.int64)
        counts = np.ones(len(which), dtype=np.int64) if counts is None else counts
        of_key = np.r_[True, which[1:] != which[:-1]]
        of_rank = of_key.copy()
        for name, _, _ in self._ranking.order:
            column = whole(rows.column(name))
            of_rank[1:] |= ~_equal(column.slice(0, len(column) - 1), column.slice(1))
        before = np.cumsum(counts) - counts
        numbers = np.arange(len(which))
        ranks: Numbers = 1 + (
            before[np.maximum.accumulate(np.where(of_rank, numbers, 0))]
            - before[np.maximum.accumulate(np.where(of_key, numbers, 0))]
        )
        return ranks

    def best(self, rows: pa.Table, which: Numbers) -> Numbers:
        """Return the rows that would be kept if there were no others, in their original order.

        Args:
            rows: the columns of the order.
            which: index of each row's key, from 0.
        """
        some = self._not_beaten(rows, which)
        if len(some) < rows.num_rows:
            rows, which = rows.take(pa.array(some)), which[some]
        order = self.sort(rows, which)
        which = which[order]
        if self._ranking.ties:
            kept = self.ranks(rows.take(pa.array(order)), which) <= self._ranking.count
        else:
            kept = places(which) < self._ranking.count
        return np.sort(some[order[kept]])

    def _not_beaten(self, rows: pa.Table, which: Numbers) -> Numbers:
        """Return the rows that can be the first of their key, in one pass; all rows if that cannot decide."""
        everything = np.arange(rows.num_rows)
        if self._ranking.count > 1 or not self._ranking.order or not rows.num_rows:
            return everything
        name, descending, _ = self._ranking.order[0]
        column = whole(rows.column(name))
        kind = column.type
        if column.null_count or not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)):
            return everything
        values = column.cast(pa.int64(), safe=False).to_numpy() if kind != pa.uint64() else None
        if values is None:
            return everything
        compare, worst = (np.maximum, np.iinfo(np.int64).min) if descending else (np.minimum, np.iinfo(np.int64).max)
        first = np.full(int(which.max()) + 1, worst)
        compare.at(first, which, values)
        return np.flatnonzero(values == first[which])


def _equal(some: pa.Array, others: pa.Array) -> NDArray[np.bool_]:
    """Return which values are equal; null equals null and NaN equals NaN."""
    equal = pc.fill_null(pc.equal(some, others), False)
    equal = pc.or_(equal, pc.and_(pc.is_null(some), pc.is_null(others)))
    if pa.types.is_floating(some.type):
        both_nan = pc.and_(pc.fill_null(pc.is_nan(some), False), pc.fill_null(pc.is_nan(others), False))
        equal = pc.or_(equal, both_nan)
    found: NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False)
    return found
