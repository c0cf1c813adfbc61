"""The best rows of windows that end, where rows that are equal in the order have one rank, however many they are.

The rows of a key stand beside one another (``counted_rows``), behind the end of their window. Only those up to the rank
that is asked for are kept: a row that others have beaten never comes back, since a stream's rows do not change. When a
window is over its rows go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.ranking.counted_rows import (
    CountedRows,
    changes_of,
    counts_and_rows,
    places_in_store,
    together,
)
from sparkrelay.operators.ranking.row_order import RowOrder
from sparkrelay.operators.row_numbers import numbered_by_key
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.operators.watermarks import end_fronts
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import whole
from sparkrelay.state.byte_arrays import side_by_side
from sparkrelay.state.join_rows import key_parts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.specs import RankingSpec, StateSpec
    from sparkrelay.state.batch import Watermark
    from sparkrelay.state.view import Changes, StoreView

    Numbers = NDArray[np.int64]

__all__ = ["TaskRankedWindows", "ranked_results"]


class TaskRankedWindows:
    """One task's rows on their way among the best of their windows."""

    def __init__(self, spec: StateSpec, rows: pa.Table, watermark: Watermark) -> None:
        """Take the rows.

        Args:
            spec: the stateful step.
            rows: the task's, those that are late left out.
            watermark: of the store with the batch.
        """
        assert spec.watermark is not None, "the windows end"
        self._ranking = _ranking(spec)
        self._watermark = watermark
        self._order = RowOrder(self._ranking)
        columns = [as_type(whole(rows.column(name)), spec.input.field(name).type) for name in spec.keys]
        keys, which = numbered_by_key(columns)
        if keys.null_count:
            # As in Kafka Streams, a record without a key belongs to no group.
            there = keys.is_valid()
            rows = rows.filter(there)
            columns = [column.filter(there) for column in columns]
            keys, which = numbered_by_key(columns)
        _, firsts = np.unique(which, return_index=True)
        window = columns[spec.keys.index(spec.watermark.window)].take(pa.array(firsts))
        #: What the rows of each key begin with in the store.
        self._parts = side_by_side(end_fronts(window), key_parts(keys.take(pa.array(firsts))))
        best = self._order.best(rows, which)
        self._which = which[best]
        self._columns = _stored_columns(spec)
        self._rows = self._columns.values(rows.take(pa.array(best)))

    def operate(self, view: StoreView) -> Changes:
        """Return what the rows, and the watermark, change."""
        at = places_in_store(self._parts.take(pa.array(self._which)), self._rows)
        brought = CountedRows(self._which, at, np.ones(len(at), dtype=np.int64), self._rows)
        rows = together(CountedRows.stored(view, self._parts), brought)
        columns = pa.table(self._columns.read(rows.rows))
        order = self._order.sort(columns, rows.which)
        ranks = self._order.ranks(columns.take(pa.array(order)), rows.which[order], rows.counts[order])
        held = np.zeros(len(order), dtype=np.bool_)
        held[order] = ranks <= self._ranking.count
        touched = pc.or_(pc.is_in(rows.keys, value_set=at), pa.array(~held))
        return changes_of(view, replace(rows, counts=np.where(held, rows.counts, 0)), touched, self._watermark)


def ranked_results(spec: StateSpec, stored: pa.RecordBatch) -> tuple[pa.Array, list[pa.Array]]:
    """Return the rows of windows that are over, each as often as it came: their message keys, and their columns.

    Args:
        spec: the stateful step.
        stored: ``key, value`` of the store.

    Returns:
        The message keys; and the columns without those of the key, and last the timestamps.
    """
    counts, rows = counts_and_rows(stored.column("value"))
    columns = pa.table(_stored_columns(spec).read(rows.take(pa.array(np.repeat(np.arange(len(rows)), counts)))))
    keys, which = numbered_by_key([whole(columns.column(name)) for name in spec.keys])
    order = RowOrder(_ranking(spec))
    sorted_ = order.sort(columns, which)
    columns, at = columns.take(pa.array(sorted_)), pa.array(sorted_)
    ranks = order.ranks(columns, which[sorted_])
    assert spec.newest is not None, "rows are kept as they came"
    shown = [whole(columns.column(name)) for name in (*spec.newest.names, hidden_columns.TIMESTAMP)]
    shown[spec.newest.names.index(_ranking(spec).number)] = pa.array(ranks, pa.int32())
    return keys.take(at), shown


def _ranking(spec: StateSpec) -> RankingSpec:
    assert spec.ranking is not None, "the best rows in an order"
    return spec.ranking


def _stored_columns(spec: StateSpec) -> StoredColumns:
    """Return how rows are stored: with the columns of their key, of which the store's keys may have a digest."""
    assert spec.newest is not None, "rows are kept as they came"
    return StoredColumns(pa.schema([*(spec.input.field(name) for name in spec.keys), *spec.newest]))
