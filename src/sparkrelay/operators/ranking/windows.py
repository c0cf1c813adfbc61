"""Rankings with ties of windowed rows: equal rows share a rank.

The rows of a key are stored together (``counted_rows``), after the end of their window. Rows beyond the last rank are
dropped: a stream's rows do not change, so they cannot come back. The rows are emitted when the window closes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
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
from sparkrelay.operators.table.run import TableRunner, Taskwise
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.runtime.worker.event_times import window_ends
from sparkrelay.state.key_parts import key_parts
from sparkrelay.state.window_keys import window_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sparkrelay.operators.ranking.layout import RowsBesideLayout
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state.batch import Watermark
    from sparkrelay.state.view import Changes, StoreView

    Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedWindowsRunner(TableRunner):
    """Runs a step that keeps the first rows of windows."""

    layout: RowsBesideLayout

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Taskwise:
        """Return the work on the tasks' rows."""
        del share
        layout = self.layout
        return Taskwise(rows, lambda task, own: TaskRankedWindows(layout, own, watermarks[task.task.partition]).operate)

    def shown(self, stored: pa.RecordBatch) -> tuple[pa.Array, list[pa.Array]]:
        """Return the rows of closed windows, repeated by their counts; see :meth:`TableRunner.shown`."""
        counts, rows = counts_and_rows(stored.column("value"))
        layout, ranking = self.layout, self.layout.ranking
        columns = pa.table(_stored_columns(layout).read(rows.take(pa.array(np.repeat(np.arange(len(rows)), counts)))))
        keys, which = numbered_by_key([whole(columns.column(name)) for name in layout.keys.names])
        order = RowOrder(ranking)
        sorted_ = order.sort(columns, which)
        columns, at = columns.take(pa.array(sorted_)), pa.array(sorted_)
        ranks = order.ranks(columns, which[sorted_])
        shown = [whole(columns.column(name)) for name in (*layout.row.names, hidden_columns.TIMESTAMP)]
        shown[layout.row.names.index(ranking.number)] = pa.array(ranks, pa.int32())
        return keys.take(at), shown


class TaskRankedWindows:
    """The work of one task."""

    def __init__(self, layout: RowsBesideLayout, rows: pa.Table, watermark: Watermark) -> None:
        """Take the task's rows that are not late, and the store's watermark after the batch."""
        assert layout.window is not None, "a ranking by windows"
        self._ranking = layout.ranking
        self._watermark = watermark
        self._order = RowOrder(self._ranking)
        columns = [as_type(whole(rows.column(field.name)), field.type) for field in layout.keys]
        keys, which = numbered_by_key(columns)
        if keys.null_count:
            # As in Kafka Streams, records without a key are dropped.
            there = keys.is_valid()
            rows = rows.filter(there)
            columns = [column.filter(there) for column in columns]
            keys, which = numbered_by_key(columns)
        _, firsts = np.unique(which, return_index=True)
        window = columns[layout.keys.get_field_index(layout.window)].take(pa.array(firsts))
        #: The prefix of each key in the store.
        self._parts = window_keys(window_ends(window), key_parts(keys.take(pa.array(firsts))))
        best = self._order.best(rows, which)
        self._which = which[best]
        self._columns = _stored_columns(layout)
        self._rows = self._columns.values(rows.take(pa.array(best)))

    def operate(self, view: StoreView) -> Changes:
        """Return the changes of the store."""
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


def _stored_columns(layout: RowsBesideLayout) -> StoredColumns:
    """Return the codec of stored rows. They include the key columns, as the store's keys may have only a digest."""
    return StoredColumns(layout.columns)
