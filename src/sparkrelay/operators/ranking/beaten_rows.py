"""Pre-filtering before a repartition topic: rows that cannot be among the first of their key."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.ranking.row_order import RowOrder, RowRanking
from sparkrelay.operators.row_numbers import numbered_by_key
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.runtime.worker.event_times import event_times_ms

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class BestRows:
    """Keeps the rows that can be among the first of their key downstream.

    A row is dropped if enough rows of its micro-batch precede it. If a watermark uses the rows downstream, the newest
    row of each key is kept as well. Tombstones are always kept.

    Attributes:
        ranking: the ranking downstream.
        by: its key columns.
        event_time: the column of the watermark downstream, or None.
        ahead_ms: event times further ahead of the machine's clock than this do not advance the watermark.
    """

    ranking: RowRanking
    by: tuple[str, ...]
    event_time: str | None
    ahead_ms: int

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of one task that can be among the first downstream."""
        alive = np.arange(rows.num_rows)
        if hidden_columns.TOMBSTONE in rows.schema.names:
            dead = pc.fill_null(rows.column(hidden_columns.TOMBSTONE), False).to_numpy(zero_copy_only=False)
            alive = np.flatnonzero(~dead)
        if len(alive) < 2:
            return rows
        columns = pa.table({name: rows.column(name) for name in {*self.by, *(n for n, *_ in self.ranking.order)}})
        some = columns.take(pa.array(alive)) if len(alive) < rows.num_rows else columns
        _, which = numbered_by_key([whole(some.column(name)) for name in self.by])
        kept = np.ones(rows.num_rows, dtype=np.bool_)
        kept[alive] = False
        kept[alive[RowOrder(self.ranking).best(some, which)]] = True
        if self.event_time is not None:
            newest = _newest(rows.column(self.event_time).take(pa.array(alive)), which, self.ahead_ms)
            kept[alive[newest]] = True
        return rows if kept.all() else rows.filter(pa.array(kept))


def _newest(column: pa.Array, which: NDArray[np.int64], ahead_ms: int) -> NDArray[np.int64]:
    """Return each key's row with the newest event time that advances a watermark."""
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    times = event_times_ms(column)
    counts = times <= time.time() * 1000 + ahead_ms
    there, times = there[counts], times[counts]
    if not len(there):
        return there
    newest = np.full(int(which.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, which[there], times)
    at = there[times == newest[which[there]]]
    # One of equally new rows is enough.
    _, firsts = np.unique(which[at], return_index=True)
    found: NDArray[np.int64] = at[firsts]
    return found
